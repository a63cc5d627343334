use super::*;
use crate::decode::{Format, conform, parse};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use serde_json::{Value, json};

/// One object of each of many kinds, all members filled at random: as JSON and in protobuf, both
/// written by Go's encoders.
const REFERENCE: &str = include_str!("../../tests/data/protobuf.jsonl");

/// The tree of a body, held to its type as a request's is.
fn read(bytes: &[u8], group: &str, version: &str, kind: &str) -> Value {
    let mut decoded = parse(bytes, Format::Protobuf).unwrap();
    let schema = crate::builtin::type_schema(group, version, kind).unwrap();
    conform(&schema, kind, &mut decoded.value, &mut decoded.problems).unwrap();
    assert_eq!(decoded.problems, Vec::<String>::new(), "{kind}");
    decoded.value
}

#[test]
fn both_ways_lead_to_what_the_reference_writes() {
    for line in REFERENCE.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| case[name].as_str().unwrap();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let bytes = STANDARD.decode(text("protobuf")).unwrap();
        assert_eq!(read(&bytes, group, version, kind), case["json"], "{kind}");
        assert!(object(case["json"].to_string().as_bytes()).unwrap() == bytes, "{kind}");
    }
}

#[test]
fn times_before_1970_are_values_and_the_zero_time_is_none() {
    let json = |created: &str| {
        format!(
            r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"x","creationTimestamp":"{created}"}}}}"#
        )
    };
    for (sent, stored) in [
        ("1969-12-31T23:59:59Z", json!("1969-12-31T23:59:59Z")),
        ("0001-01-01T00:00:00Z", Value::Null),
    ] {
        let bytes = object(json(sent).as_bytes()).unwrap();
        let read = read(&bytes, "", "v1", "ConfigMap");
        assert_eq!(*read["metadata"].get("creationTimestamp").unwrap_or(&Value::Null), stored);
        let body = json(sent);
        let mut decoded = parse(body.as_bytes(), Format::Json).unwrap();
        let schema = crate::builtin::type_schema("", "v1", "ConfigMap").unwrap();
        conform(&schema, "ConfigMap", &mut decoded.value, &mut decoded.problems).unwrap();
        let created = decoded.value["metadata"].get("creationTimestamp");
        assert_eq!(*created.unwrap_or(&Value::Null), stored);
    }
}

#[test]
fn no_bytes_of_a_map_are_empty_bytes() {
    let body = br#"{"kind":"ConfigMap","apiVersion":"v1","binaryData":{"a":null,"b":""}}"#;
    let mut decoded = parse(body, Format::Json).unwrap();
    let schema = crate::builtin::type_schema("", "v1", "ConfigMap").unwrap();
    conform(&schema, "ConfigMap", &mut decoded.value, &mut decoded.problems).unwrap();
    assert_eq!(decoded.value["binaryData"], json!({"a": "", "b": ""}));
    let bytes = object(decoded.value.to_string().as_bytes()).unwrap();
    assert_eq!(read(&bytes, "", "v1", "ConfigMap")["binaryData"], decoded.value["binaryData"]);
}

#[test]
fn absent_values_are_written_and_absent_pointers_are_not() {
    let bytes = object(br#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x"}}"#);
    // As `kubectl create configmap x` sends it, without its empty creation time's neighbours left
    // out.
    let metadata = b"\x0a\x11\x0a\x01x\x12\0\x1a\0\"\0*\x002\x008\0B\0";
    let expected =
        [b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x13", &metadata[..], b"\x1a\0\"\0"]
            .concat();
    assert_eq!(bytes.unwrap(), expected);
}

#[test]
fn list_is_written_as_its_object_would_be() {
    let items = [json!({"metadata": {"name": "a"}, "data": {"k": "v"}}), json!({"metadata": {}})];
    let whole = json!({
        "kind": "ConfigMapList", "apiVersion": "v1",
        "metadata": {"resourceVersion": "7", "remainingItemCount": 3}, "items": items,
    });
    let encoder = ListEncoder::new("v1", "ConfigMapList").unwrap();
    let [first, second] = items.map(|item| item.to_string());
    let mut items = Vec::new();
    encoder.push_item(first.as_bytes(), &mut items).unwrap();
    encoder.push_item(br#"{"metadata":{},"data":7}"#, &mut items).unwrap_err();
    encoder.push_item(second.as_bytes(), &mut items).unwrap();
    let (head, tail) = encoder.around(&whole["metadata"].to_string(), items.len()).unwrap();
    assert_eq!([head, items, tail].concat(), object(whole.to_string().as_bytes()).unwrap());
}

#[test]
fn kinds_of_every_group_have_their_shape() {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 404,
        "details": {"name": "x", "causes": [{"reason": "r"}]},
    });
    let bytes = object(status.to_string().as_bytes()).unwrap();
    let causes = b"\x22\x07\x0a\x01r\x12\0\x1a\0";
    assert!(bytes.windows(causes.len()).any(|window| window == causes), "{bytes:?}");
    let partial = br#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"x"},"spec":{}}"#;
    let config_map = br#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x"}}"#;
    let raw = |json: &[u8]| {
        let bytes = object(json).unwrap();
        let at = bytes.windows(3).position(|window| window == b"\x12\x13\x0a").unwrap();
        bytes[at..].to_vec()
    };
    assert_eq!(raw(partial), raw(config_map), "metadata is field 1 of both");
    assert!(has_kind("apps", "v1", "DeploymentList") && !has_kind("apps", "v2", "Deployment"));
}

#[test]
fn everything_served_can_be_written() {
    for row in setpoint_facts::RESOURCES {
        assert!(has_kind(row.group, row.version, row.kind), "{row:?}");
        assert!(
            !row.serves("list") || has_kind(row.group, row.version, &format!("{}List", row.kind))
        );
        for sub in row.subresources {
            let (group, version, kind) = sub.kind;
            // Connections (`proxy`, `log`) have options for the query and no body.
            assert!(kind.ends_with("Options") || has_kind(group, version, kind), "{sub:?}");
        }
    }
}

#[test]
fn free_form_json_is_copied_as_it_stands() {
    let json = br#"{"kind":"ControllerRevision","apiVersion":"apps/v1","data":{"b":1.50,"a":"\u003c"},"revision":1}"#;
    let bytes = object(json).unwrap();
    let data = br#"{"b":1.50,"a":"\u003c"}"#;
    assert!(bytes.windows(data.len()).any(|window| window == data));
}

#[test]
fn watch_event_holds_the_object_in_its_envelope() {
    assert_eq!(watch_event("ADDED", b"k8s\0o"), b"\x0a\x05ADDED\x12\x07\x0a\x05k8s\0o");
}

#[test]
fn what_has_not_the_shape_of_its_type_is_refused() {
    let error = |tree: Value| object(tree.to_string().as_bytes()).unwrap_err();
    assert_eq!(
        error(json!({"kind": "Foo", "apiVersion": "x.io/v1"})).to_string(),
        r#"no kind "Foo" is registered for version "x.io/v1""#
    );
    let secret = |data: Value| error(json!({"kind": "Secret", "apiVersion": "v1", "data": data}));
    assert_eq!(
        secret(json!({"k": "?"})).to_string(),
        r#"the value of a field named "data" is no base64"#
    );
    assert_eq!(
        secret(json!("x")).to_string(),
        r#"the value of a field named "data" is no list or map"#
    );
    assert!(matches!(secret(json!([])), EncodeError::Json(_)));
    assert!(matches!(error(json!({"kind": 1})), EncodeError::UnknownKind { .. }));
    assert!(matches!(object(b"{"), Err(EncodeError::Json(_))));
}

proptest! {
    #[test]
    fn what_is_written_reads_the_same(
        replicas in any::<i32>(), name in "[a-z]{0,300}", labels in prop::collection::btree_map(".*", ".*", 0..4),
        paused in any::<bool>(), ports in prop::collection::vec(1..65536, 0..4),
    ) {
        let ports: Vec<Value> = ports.iter().map(|port| json!({"containerPort": port})).collect();
        let deployment = json!({
            "kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": name, "annotations": labels},
            "spec": {"replicas": replicas, "paused": paused, "template": {"spec": {"containers": [{"name": name, "ports": ports}]}}},
        });
        let schema = crate::builtin::type_schema("apps", "v1", "Deployment").unwrap();
        let mut at_rest = deployment;
        conform(&schema, "Deployment", &mut at_rest, &mut Vec::new()).unwrap();
        let bytes = object(at_rest.to_string().as_bytes()).unwrap();
        prop_assert_eq!(read(&bytes, "apps", "v1", "Deployment"), at_rest);
    }

    #[test]
    fn cut_and_broken_bodies_are_refused_or_read(
        at in any::<prop::sample::Index>(),
        cut in 0_usize..1500,
        broken in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let lines: Vec<&str> = REFERENCE.lines().collect();
        let case: Value = serde_json::from_str(at.get::<&str>(&lines)).unwrap();
        let mut bytes = STANDARD.decode(case["protobuf"].as_str().unwrap()).unwrap();
        for (at, byte) in broken {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        for bytes in [&bytes[..cut.min(bytes.len())], &bytes] {
            let Ok(mut decoded) = parse(bytes, Format::Protobuf) else { continue };
            let kind = case["kind"].as_str().unwrap();
            let (group, version) = case["apiVersion"].as_str().unwrap().split_once('/').unwrap_or(("", "v1"));
            let schema = crate::builtin::type_schema(group, version, kind).unwrap();
            let _ = conform(&schema, kind, &mut decoded.value, &mut decoded.problems);
        }
    }
}
