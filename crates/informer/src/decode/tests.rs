use super::*;
use k8s_openapi::api::core::v1::Pod;
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        r#"[ -~é"\\\[\]]{0,20}"#.prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 48, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::hash_map("[a-d]{0,3}", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Every shape of serde, with lists on either side of each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Shapes {
    #[serde(default)]
    list: Vec<Vec<u8>>,
    tuple: (i32, Vec<String>, char),
    some: Option<Vec<Variant>>,
    unit: (),
    newtype: Wrapped,
    raw: Box<Raw>,
    last: Vec<u16>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Wrapped(Vec<i8>);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Variant {
    Unit,
    Newtype(Vec<u8>),
    Tuple(u8, Vec<u8>),
    Struct { of: Vec<u8> },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Raw {
    inner: Value,
}

proptest! {
    #[test]
    fn values_decode_as_with_serde_json(value in json_value()) {
        let text = serde_json::to_vec(&value).unwrap();
        prop_assert_eq!(
            from_slice::<Value>(&text).unwrap(),
            serde_json::from_slice::<Value>(&text).unwrap()
        );
    }

    #[test]
    fn errors_are_those_of_serde_json(bytes in prop::collection::vec(
        prop_oneof![4 => prop::sample::select(&br#"[]{}:,"\ 1tn"#[..]), 1 => any::<u8>()],
        0..40,
    )) {
        let ours = from_slice::<Value>(&bytes).map_err(|error| error.to_string());
        let theirs = serde_json::from_slice::<Value>(&bytes).map_err(|error| error.to_string());
        prop_assert_eq!(ours, theirs);
    }
}

#[test]
fn every_serde_shape_decodes_and_every_list_has_its_exact_capacity() {
    let shapes = Shapes {
        list: vec![vec![1], vec![], vec![1, 2, 3]],
        tuple: (-1, vec!["a".into()], 'x'),
        some: Some(vec![
            Variant::Unit,
            Variant::Newtype(vec![1]),
            Variant::Tuple(1, vec![1, 2]),
            Variant::Struct { of: vec![1, 2, 3] },
        ]),
        unit: (),
        newtype: Wrapped(vec![1]),
        raw: Box::new(Raw { inner: json!([[1], {"a": [2, 3]}]) }),
        last: vec![7],
    };
    let mut tree = serde_json::to_value(&shapes).unwrap();
    // Ignored values have lists too, which must not be confused with those that follow.
    tree["ignored"] = json!([[1, 2, 3], [], {"a": [1]}]);
    let decoded: Shapes = from_slice(&serde_json::to_vec(&tree).unwrap()).unwrap();
    assert_eq!(decoded, shapes);
    assert_eq!(decoded.last.capacity(), 1);
    assert_eq!(decoded.newtype.0.capacity(), 1);
    assert_eq!(decoded.list.capacity(), 3);
    assert_eq!(decoded.list[0].capacity(), 1);
    let some = decoded.some.unwrap();
    assert_eq!(some.capacity(), 4);
    let Variant::Struct { of } = &some[3] else { panic!("{some:?}") };
    assert_eq!(of.capacity(), 3);
}

#[test]
fn list_of_one_container_has_a_capacity_of_one() {
    let pod = json!({
        "metadata": {"name": "p", "managedFields": [{"fieldsV1": {"f:spec": {"a": [1, 2]}}}]},
        "spec": {
            "unknown": [[], [1]],
            "containers": [{"name": "c", "ports": [{"containerPort": 80}], "args": ["a", "b"]}],
        },
    });
    let pod: Pod = from_slice(pod.to_string().as_bytes()).unwrap();
    let containers = pod.spec.unwrap().containers;
    assert_eq!(containers.capacity(), 1);
    assert_eq!(containers[0].ports.as_ref().unwrap().capacity(), 1);
    assert_eq!(containers[0].args.as_ref().unwrap().capacity(), 2);
    assert_eq!(pod.metadata.managed_fields.unwrap().capacity(), 1);
}

#[test]
fn raw_values_are_unchanged() {
    let text = br#"{"a":[1,2],"b":[3]}"#;
    #[derive(Deserialize)]
    struct Parts {
        a: Box<serde_json::value::RawValue>,
        b: Vec<u8>,
    }
    let parts: Parts = from_slice(text).unwrap();
    assert_eq!(parts.a.get(), "[1,2]");
    assert_eq!(parts.b, [3]);
}

/// Three fields of a Pod.
#[derive(Debug, Deserialize)]
struct Three {
    metadata: Named,
    spec: Placed,
}

#[derive(Debug, Deserialize)]
struct Named {
    name: String,
    labels: std::collections::BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Placed {
    node_name: Option<String>,
}

#[test]
fn types_that_declare_a_part_are_detected_and_their_values_are_measured() {
    let text = json!({
        "metadata": {"name": "p", "uid": "u", "labels": {"app": "web"}},
        "spec": {
            "nodeName": "n1",
            "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}],
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    })
    .to_string();
    let (pod, n_bytes, is_part) = whole::<Pod>(text.as_bytes()).unwrap();
    assert!(!is_part);
    let container = size_of::<k8s_openapi::api::core::v1::Container>();
    assert!(
        (container + size_of::<Pod>()..3 * container + 2 * size_of::<Pod>()).contains(&n_bytes)
    );
    assert_eq!(pod.spec.unwrap().containers.capacity(), 1);
    let (_, _, is_part) = whole::<Three>(text.as_bytes()).unwrap();
    assert!(is_part);
    let (three, n_bytes) = part::<Three>(text.as_bytes()).unwrap();
    assert_eq!((&*three.metadata.name, &*three.metadata.labels["app"]), ("p", "web"));
    assert_eq!(three.spec.node_name.as_deref(), Some("n1"));
    assert!(n_bytes < 400, "{n_bytes}");
    // Errors are the same either way.
    let broken = text.replace("n1", "n\\");
    assert_eq!(
        part::<Three>(broken.as_bytes()).unwrap_err().to_string(),
        whole::<Three>(broken.as_bytes()).unwrap_err().to_string()
    );
    let (_, n_bytes) = part::<Value>(text.as_bytes()).unwrap();
    assert!(n_bytes > text.len(), "{n_bytes}");
}

/// Dates up to the end of the year 9999 are dates of Kubernetes, but not all of them of the types.
#[test]
fn dates_that_types_cannot_hold_are_the_last_ones_that_they_can() {
    #[derive(Debug, Deserialize)]
    struct Times {
        time: k8s_openapi::apimachinery::pkg::apis::meta::v1::Time,
        micro: Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime>,
        text: String,
    }
    for (time, micro, seconds) in [
        ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59.999999Z", 253_402_207_200),
        ("9999-12-30T22:00:01Z", "9999-12-30T22:00:00.000001Z", 253_402_207_200),
        ("9999-12-30T22:00:00Z", "9999-12-30T22:00:00.000000Z", 253_402_207_200),
        ("9999-12-30T21:59:59Z", "9999-12-30T21:59:59.000000Z", 253_402_207_199),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00.000000Z", 1_767_225_600),
    ] {
        let object = json!({"time": time, "micro": micro, "text": time, "other": [1]}).to_string();
        let (decoded, ..) = whole::<Times>(object.as_bytes()).unwrap();
        let (partly, _) = part::<Times>(object.as_bytes()).unwrap();
        for times in [decoded, partly] {
            assert_eq!(times.time.0.as_second(), seconds, "{time}");
            assert_eq!(times.micro.unwrap().0.as_second(), seconds, "{micro}");
            assert_eq!(times.text, time, "texts stay");
        }
    }
    let never = json!({"status": {"conditions": [{
        "type": "Ready", "status": "True", "lastTransitionTime": "9999-12-31T23:59:59Z",
    }]}});
    assert!(whole::<Pod>(never.to_string().as_bytes()).is_ok());
    let wrong = json!({"time": "9999-12-3x", "text": ""}).to_string();
    assert!(whole::<Times>(wrong.as_bytes()).is_err());
}
