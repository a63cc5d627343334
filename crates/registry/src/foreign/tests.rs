use super::*;
use crate::bootstrap;
use crate::features::{Emulation, Release};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Map, Value, json};
use setpoint_facts::{DEFINITIONS, Definition, Field, Type};
use setpoint_store::{Compare, MemoryStore, Op, is_sealed};
use std::task::Poll;

const OLDEST: Release = Emulation::PRESENT.min_compatibility();

/// One object of each of many kinds, with all members set at random: as JSON and in protobuf, both
/// written by Go's encoders.
const REFERENCE: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../schema/tests/data/protobuf.jsonl"));
const KEY: &str = "/registry/configmaps/default/a";
const JSON: Encoding = Encoding { built_in: StorageMediaType::Json, is_cbor: false };
fn codec(encoding: Encoding) -> Codec {
    Codec { formers: bootstrap::catalog().formers(OLDEST), encoding, known: Known::default() }
}

/// A ConfigMap in its stored form.
fn config_map(n: &str) -> Bytes {
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "default", "uid": "u"}, "data": {"n": n},
    });
    to_bytes(&map)
}
/// As a kube-apiserver stores it by default.
fn packed(json: &[u8]) -> Bytes {
    protobuf::object(json).unwrap().into()
}
/// The stored form of an object with its defaults.
fn completed(mut object: Value) -> Bytes {
    let text = |member: &str| object[member].as_str().unwrap().to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let (group, version) = parts(&api_version);
    let schema = builtin::type_schema(group, version, &kind).unwrap();
    kind::fill_stored(group, version, &kind, &schema, &mut object);
    to_bytes(&object)
}
/// A value in protobuf with another `apiVersion` in its envelope.
fn in_version(packed: &[u8], api_version: &str, kind: &str) -> Bytes {
    let field = |number: u8, text: &str| {
        [&[number << 3 | 2, u8::try_from(text.len()).unwrap()], text.as_bytes()].concat()
    };
    let names = [field(1, api_version), field(2, kind)].concat();
    let rest = &packed[6 + usize::from(packed[5])..];
    let length = u8::try_from(names.len()).unwrap();
    [protobuf::MAGIC, &[0x0a, length], &names, rest].concat().into()
}
/// In a valid envelope, but of an unknown kind.
fn unknown() -> Bytes {
    Bytes::from_static(b"k8s\0\x0a\x0f\x0a\x05x.y/z\x12\x06Strange\x12\0")
}

async fn commit(store: &dyn Store, key: &str, value: Option<Bytes>) -> Revision {
    let key = Bytes::from(key.to_owned());
    let op = value.map_or_else(|| Op::Delete(key.clone()), |value| Op::Put(key.clone(), value));
    match store.commit(Txn { ops: vec![op], ..Txn::default() }).await.unwrap() {
        Committed::Done(revision) => revision,
        Committed::Refused { .. } => unreachable!("nothing is compared"),
    }
}

#[test]
fn values_that_go_encoded_are_read_in_canonical_form() {
    for line in REFERENCE.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let mut value = Bytes::from(STANDARD.decode(case["protobuf"].as_str().unwrap()).unwrap());
        assert_eq!(read(b"", &mut value, &Formers::default()), Ok(true), "{}", case["kind"]);
        assert_eq!(value, completed(case["json"].clone()), "{}", case["kind"]);
    }
}

#[tokio::test]
async fn values_in_cbor_are_read_in_canonical_form() {
    let inner = Arc::new(MemoryStore::default());
    let store = ForeignStore::new(inner.clone(), Formers::default(), JSON);
    let key = "/registry/ex.io/foos/default/a";
    // As a kube-apiserver stores it: members in order, strings as bytes, floats as floats.
    let stored = b"\xd9\xd9\xf7\xa4\x44kind\x43Foo\x44spec\xa2\x41f\xf9\x3e\x00\x41n\xf9\x3c\x00\x48metadata\xa1\x44name\x41a\x4aapiVersion\x48ex.io/v1";
    commit(&*inner, key, Some(Bytes::from_static(stored))).await;
    let got = store.get(key.as_bytes(), At::Latest).await.unwrap().value.unwrap();
    let expected =
        r#"{"apiVersion":"ex.io/v1","kind":"Foo","metadata":{"name":"a"},"spec":{"f":1.5,"n":1}}"#;
    assert_eq!(got.value, expected);
    commit(&*inner, key, Some(Bytes::from_static(&stored[..20]))).await;
    let error = store.get(key.as_bytes(), At::Latest).await.unwrap_err().to_string();
    assert!(error.contains("is encoded in CBOR"), "{error}");
    let all = RangeRequest::prefix("/registry/");
    let range = store.range(all).await.unwrap().value;
    assert!(is_sealed(&range.entries[0].value));
}

#[tokio::test]
async fn every_way_to_a_value_reads_it() {
    let inner = Arc::new(MemoryStore::default());
    let store = ForeignStore::new(inner.clone(), Formers::default(), JSON);
    let before = commit(&*inner, KEY, Some(packed(&config_map("1")))).await;
    let got = store.get(KEY.as_bytes(), At::Latest).await.unwrap().value.unwrap();
    assert_eq!((got.value, got.modified), (config_map("1"), before));
    let all = |at| RangeRequest { at, ..RangeRequest::prefix("/registry/") };
    let range = store.range(all(At::Latest)).await.unwrap().value;
    assert_eq!(range.entries[0].value, config_map("1"));

    let mut feed = store.changes("/".into(), before).await.unwrap();
    commit(&*inner, KEY, Some(packed(&config_map("2")))).await;
    commit(&store, KEY, Some(config_map("3"))).await;
    commit(&*inner, KEY, Some(packed(&config_map("4")))).await;
    commit(&store, KEY, None).await;
    let mut changes = Vec::new();
    while changes.len() < 4 {
        for change in feed.next().await.unwrap().changes {
            changes.push((change.value, change.previous.unwrap().value));
        }
    }
    let step = |now: &str, before: &str| (Some(config_map(now)), config_map(before));
    let expected =
        [step("2", "1"), step("3", "2"), step("4", "3"), (None, config_map("4"))].to_vec();
    assert_eq!(changes, expected);
    // Older states are converted too, and so is the state that a commit returns.
    let range = store.range(all(At::Exactly(before))).await.unwrap().value;
    assert_eq!(range.entries[0].value, config_map("1"));
    commit(&*inner, KEY, Some(packed(&config_map("5")))).await;
    let compares = vec![Compare::Absent(KEY.into())];
    match store.commit(Txn { compares, ..Txn::default() }).await.unwrap() {
        Committed::Refused { found, .. } => {
            assert_eq!(found[0].as_ref().unwrap().value, config_map("5"));
        }
        done => panic!("{done:?}"),
    }
    // This one writes JSON.
    commit(&store, KEY, Some(config_map("6"))).await;
    let stored = inner.get(KEY.as_bytes(), At::Latest).await.unwrap().value.unwrap();
    assert_eq!(stored.value, config_map("6"));
}

#[tokio::test]
async fn definitions_of_a_former_version_are_read() {
    const KEY: &str = "/registry/apiextensions.k8s.io/customresourcedefinitions/as.example.dev";
    let inner = Arc::new(MemoryStore::default());
    let store = ForeignStore::new(inner.clone(), bootstrap::catalog().formers(OLDEST), JSON);
    let stored = json!({
        "kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1beta1",
        "metadata": {"name": "as.example.dev"},
        "spec": {"group": "example.dev", "version": "v1", "validation": {}},
    });
    let mut line = to_bytes(&stored).to_vec();
    line.push(b'\n');
    commit(&*inner, KEY, Some(line.into())).await;
    let read = store.get(KEY.as_bytes(), At::Latest).await.unwrap().value.unwrap().value;
    let read: Value = serde_json::from_slice(&read).unwrap();
    assert_eq!(read["apiVersion"], "apiextensions.k8s.io/v1");
    assert_eq!(read["spec"]["versions"][0]["name"], "v1");
    // One that this registry wrote is not touched.
    let written = to_bytes(&read);
    commit(&store, KEY, Some(written.clone())).await;
    let read = store.get(KEY.as_bytes(), At::Latest).await.unwrap().value.unwrap().value;
    assert_eq!(read, written);
}

#[tokio::test]
async fn mutating_policies_of_a_former_version_are_read() {
    let store = Arc::new(MemoryStore::default());
    let reader = ForeignStore::new(store.clone(), bootstrap::catalog().formers(OLDEST), JSON);
    let rows = [
        ("MutatingAdmissionPolicy", "mutatingadmissionpolicies"),
        ("MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings"),
    ];
    for (kind, resource) in rows {
        let key = format!("/registry/{resource}/a");
        let object = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
            "metadata": {"name": "a"}, "spec": {},
        });
        let stored = packed(&to_bytes(&object));
        let former = in_version(&stored, "admissionregistration.k8s.io/v1beta1", kind);
        commit(&*store, &key, Some(former)).await;
        let read = reader.get(key.as_bytes(), At::Latest).await.unwrap().value.unwrap().value;
        assert_eq!(read, completed(object));
    }
}

#[tokio::test]
async fn webhook_configurations_of_a_former_version_are_read_with_its_defaults() {
    let store = Arc::new(MemoryStore::default());
    let reader = ForeignStore::new(store.clone(), bootstrap::catalog().formers(OLDEST), JSON);
    for (kind, resource) in [
        ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
        ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
    ] {
        let key = format!("/registry/{resource}/a");
        let object = json!({
            "kind": kind, "apiVersion": "admissionregistration.k8s.io/v1beta1",
            "metadata": {"name": "a"},
            "webhooks": [
                {"name": "a.example.com"},
                {"name": "b.example.com", "failurePolicy": "Fail", "sideEffects": "None"},
            ],
        });
        let mut line = to_bytes(&object).to_vec();
        line.push(b'\n');
        commit(&*store, &key, Some(line.into())).await;
        let read = reader.get(key.as_bytes(), At::Latest).await.unwrap().value.unwrap().value;
        let read: Value = serde_json::from_slice(&read).unwrap();
        assert_eq!(read["apiVersion"], "admissionregistration.k8s.io/v1");
        let members = ["failurePolicy", "matchPolicy", "sideEffects", "timeoutSeconds"];
        let of = |n: usize| members.map(|member| read["webhooks"][n][member].clone());
        assert_eq!(of(0), [json!("Ignore"), json!("Exact"), json!("Unknown"), json!(30)]);
        assert_eq!(of(1), [json!("Fail"), json!("Exact"), json!("None"), json!(30)]);
        assert_eq!(read["webhooks"][0]["admissionReviewVersions"], json!(["v1beta1"]));
    }
}

/// The key of an object with the name `a`.
fn key_of(group: &str, kind: &str) -> String {
    let catalog = bootstrap::catalog();
    let row = catalog.rows.values().find(|row| {
        &*row.gvk.group == group && &*row.gvk.kind == kind && &*row.gvk.version == "v1"
    });
    format!("{}a", row.unwrap_or_else(|| panic!("{kind} of {group}")).storage_prefix)
}

#[test]
fn versions_that_are_retired_are_read() {
    let formers = bootstrap::catalog().formers(OLDEST);
    let catalog = bootstrap::catalog();
    let rows = catalog.rows.values().filter(|row| &*row.gvk.version == "v1");
    let retired = rows.flat_map(|row| {
        let of_row = row.kind.formers.iter().filter(|former| former.restore.is_none());
        of_row.map(|former| (&*row.gvk.group, former.version, &*row.gvk.kind))
    });
    let retired: Vec<_> = retired.collect();
    assert_eq!(retired.len(), 24, "{retired:?}");
    for (group, version, kind) in retired {
        let key = key_of(group, kind);
        let object = json!({
            "apiVersion": format!("{group}/v1"), "kind": kind, "metadata": {"name": "a"},
        });
        let former = format!("{group}/{version}");
        let mut renamed = object.clone();
        renamed["apiVersion"] = former.clone().into();
        let line = |object: &Value| Bytes::from([&to_bytes(object)[..], b"\n"].concat());
        let present = packed(&to_bytes(&object));
        let forms =
            [(in_version(&present, &former, kind), present), (line(&renamed), line(&object))];
        for (mut value, mut expected) in forms {
            for value in [&mut value, &mut expected] {
                assert_eq!(read(key.as_bytes(), value, &formers), Ok(true), "{kind} {version}");
            }
            assert_eq!(value, expected, "{kind} {version}");
        }
    }
}

#[test]
fn retired_versions_are_converted() {
    let formers = bootstrap::catalog().formers(OLDEST);
    let check = |group: &str, version: &str, kind: &str, spec: Value, expected: Value| {
        let object = json!({
            "apiVersion": format!("{group}/{version}"), "kind": kind, "metadata": {"name": "a"},
            "spec": spec,
        });
        let mut value = to_bytes(&object);
        read(key_of(group, kind).as_bytes(), &mut value, &formers).unwrap();
        let read: Value = serde_json::from_slice(&value).unwrap();
        assert_eq!(read["spec"], expected, "{spec}");
        assert_eq!(read["apiVersion"], format!("{group}/v1"));
    };
    let level = |shares: &str| json!({"type": "Limited", "limited": {shares: 7}});
    check(
        "flowcontrol.apiserver.k8s.io",
        "v1beta2",
        "PriorityLevelConfiguration",
        level("assuredConcurrencyShares"),
        level("nominalConcurrencyShares"),
    );
    let budget = |selector: Value, expected: Value| {
        let [spec, expected] = [selector, expected].map(|s| json!({"selector": s}));
        check("policy", "v1beta1", "PodDisruptionBudget", spec, expected);
    };
    let label = "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match";
    let by_label = |operator| json!({"key": label, "operator": operator});
    // An empty selector selected nothing.
    budget(json!({}), json!({"matchExpressions": [by_label("Exists")]}));
    budget(json!({"matchExpressions": [by_label("DoesNotExist")]}), json!({}));
    budget(json!({"matchLabels": {"a": "b"}}), json!({"matchLabels": {"a": "b"}}));
    let other = json!({"key": "a", "operator": "Exists"});
    budget(
        json!({"matchExpressions": [by_label("Exists"), other]}),
        json!({"matchExpressions": [other]}),
    );
}

#[test]
fn no_prefix_of_former_versions_begins_with_another() {
    let formers = bootstrap::catalog().formers(OLDEST);
    for pair in formers.windows(2) {
        let [one, next] = [&pair[0].prefix, &pair[1].prefix];
        assert!(one == next || !next.starts_with(&**one), "{one} {next}");
        assert_eq!(formers_at(one.as_bytes(), &formers)[0].prefix, *one);
    }
    assert!(formers_at(b"/registry/pods/default/a", &formers).is_empty());
    assert!(formers_at(b"", &formers).is_empty());
}

/// What a kube-apiserver stores of an object, and what it answers.
fn check_complete(stored: &Value, expected: &Value) {
    let mut value = packed(&to_bytes(stored));
    assert_eq!(read(b"", &mut value, &Formers::default()), Ok(true));
    let read: Value = serde_json::from_slice(&value).unwrap();
    for (pointer, expected) in expected.as_object().unwrap() {
        assert_eq!(read.pointer(pointer), Some(expected), "{pointer}");
    }
}

#[test]
fn what_a_kube_apiserver_stores_without_its_defaults_gets_them() {
    let labels = json!({"batch.kubernetes.io/controller-uid": "u", "controller-uid": "u"});
    check_complete(
        &json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"},
            "spec": {"template": {"metadata": {"labels": labels}, "spec": {"containers": []}}},
        }),
        &json!({"/metadata/labels": labels}),
    );
    check_complete(
        &json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "a"}}),
        &json!({"/status/phase": "Pending"}),
    );
    let spec = json!({
        "serviceName": "s", "selector": {}, "template": {"spec": {"containers": []}},
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}],
    });
    check_complete(
        &json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "a"}, "spec": spec,
        }),
        &json!({
            "/spec/volumeClaimTemplates/0/apiVersion": "v1",
            "/spec/volumeClaimTemplates/0/kind": "PersistentVolumeClaim",
            "/spec/volumeClaimTemplates/0/metadata/name": "data",
        }),
    );
}

#[tokio::test]
async fn the_bitmap_of_node_ports_is_read_as_it_is() {
    let inner = Arc::new(MemoryStore::default());
    let store = ForeignStore::new(inner.clone(), Formers::default(), JSON);
    let key = keys::NODE_PORT_BITMAP;
    commit(&*inner, key, Some(unknown())).await;
    let read = store.get(key.as_bytes(), At::Latest).await.unwrap().value.unwrap();
    assert_eq!(read.value, unknown());
}

#[tokio::test]
async fn an_unreadable_value_fails_its_own_get_only() {
    let inner = Arc::new(MemoryStore::default());
    let store = ForeignStore::new(inner.clone(), Formers::default(), JSON);
    let after = commit(&*inner, KEY, Some(packed(&config_map("1")))).await;
    let mut cut = packed(&config_map("2"));
    cut.truncate(cut.len() - 3);
    // One bit of the last byte is another, and a string is no text.
    let mut flipped = config_map("3").to_vec();
    *flipped.last_mut().unwrap() ^= 2;
    let no_text = b"{\"data\":\"\xff\"}";
    let bad: [(&str, &str, Bytes); 5] = [
        ("/registry/stranges/s", "protobuf", unknown()),
        ("/registry/configmaps/default/b", "protobuf", cut),
        ("/registry/configmaps/default/c", "JSON", flipped.into()),
        ("/registry/configmaps/default/d", "JSON", Bytes::from_static(no_text)),
        ("/registry/configmaps/default/e", "JSON", Bytes::from_static(b"[{}]")),
    ];
    for (key, encoding, value) in &bad {
        commit(&*inner, key, Some(value.clone())).await;
        let error = store.get(key.as_bytes(), At::Latest).await.unwrap_err().to_string();
        let encoded = format!("is encoded in {encoding}");
        assert!(error.contains(key) && error.contains(&encoded), "{error}");
    }
    let range = store.range(RangeRequest::prefix("/registry/")).await.unwrap().value;
    let sealed: Vec<bool> = range.entries.iter().map(|entry| is_sealed(&entry.value)).collect();
    assert_eq!(sealed, [false, true, true, true, true, true]);
    let mut feed = store.changes("/".into(), after).await.unwrap();
    let mut changes = Vec::new();
    while changes.len() < bad.len() {
        changes.extend(feed.next().await.unwrap().changes);
    }
    assert!(changes.iter().all(|change| is_sealed(change.value.as_ref().unwrap())));
}

#[tokio::test]
async fn a_range_of_many_values_yields() {
    let inner = Arc::new(MemoryStore::default());
    for n in 0..4 * READ_AT_ONCE {
        let key = format!("/registry/configmaps/default/{n:04}");
        commit(&*inner, &key, Some(packed(&config_map(&n.to_string())))).await;
    }
    let store = ForeignStore::new(inner, Formers::default(), JSON);
    let mut ranging = store.range(RangeRequest::prefix("/registry/"));
    let mut n_polls = 1;
    let found = loop {
        match futures::poll!(&mut ranging) {
            Poll::Ready(found) => break found.unwrap().value,
            Poll::Pending => n_polls += 1,
        }
    };
    assert_eq!((n_polls, found.entries.len()), (5, 4 * READ_AT_ONCE));
    for (n, entry) in found.entries.iter().enumerate() {
        assert_eq!(entry.value, config_map(&n.to_string()));
    }
}

/// Any value of a type, without values that protobuf cannot distinguish from absence.
fn any_value(ty: &Type, depth: usize, rng: &mut SmallRng) -> Value {
    match ty {
        Type::Str => Value::from(["x", "a b", "\u{e9}\"\\\n", "0"].choose(rng).copied()),
        Type::Int => Value::from(rng.random_range(0..=i32::MAX)),
        Type::Num => Value::from(f64::from(rng.random_range(-1000_i32..1000)) + 0.5),
        Type::Bool => Value::from(rng.random_bool(0.5)),
        Type::IntOrString => match rng.random_bool(0.5) {
            true => Value::from(rng.random_range(0..=i32::MAX)),
            false => Value::from("25%"),
        },
        Type::Quantity => Value::from(["100m", "2Gi", "0", "3"].choose(rng).copied()),
        Type::Time => Value::from("2026-11-20T10:00:00Z"),
        Type::MicroTime => Value::from("2026-11-20T10:00:00.000017Z"),
        Type::Bytes => Value::from(STANDARD.encode(rng.random::<[u8; 7]>())),
        Type::Any | Type::Object => json!({"a": [1, "b", {"c": null}]}),
        Type::List(of) => {
            (0..rng.random_range(1..3)).map(|_| any_value(of, depth + 1, rng)).collect()
        }
        Type::Map(of) => {
            let keys = ["a", "b/c", ""].choose_multiple(rng, 2).copied();
            let members: Vec<_> =
                keys.map(|key| (key.to_owned(), any_value(of, depth + 1, rng))).collect();
            Value::Object(Map::from_iter(members))
        }
        Type::Ref(at) => any_defined(&DEFINITIONS[usize::from(*at)], depth, rng),
    }
}
fn any_defined(definition: &'static Definition, depth: usize, rng: &mut SmallRng) -> Value {
    match (definition.ty, definition.name.rsplit('.').next().unwrap()) {
        (Type::Object, _) => any_object(definition, depth, rng),
        (Type::Any, "FieldsV1") => json!({"f:data": {".": {}, "f:a": {}}}),
        (Type::Any, "JSONSchemaPropsOrBool") => Value::from(rng.random_bool(0.5)),
        (Type::Any, "JSONSchemaPropsOrArray") => json!({"type": "string", "maximum": 1.5}),
        (Type::Any, "JSONSchemaPropsOrStringArray") => json!(["a", "b"]),
        (ref ty, _) => any_value(ty, depth, rng),
    }
}
fn any_object(definition: &'static Definition, depth: usize, rng: &mut SmallRng) -> Value {
    // Ends the recursion of recursive types.
    let part = if depth < 4 { 0.6 } else { 0.5_f64.powi(i32::try_from(depth).unwrap() - 2) };
    let fields = definition.fields.iter().filter(|field| !field.protobuf.is_empty());
    let chosen: Vec<&Field> = fields.filter(|_| rng.random_bool(part)).collect();
    let members = chosen
        .into_iter()
        .map(|field| (field.name.to_owned(), any_value(&field.ty, depth + 1, rng)));
    Value::Object(members.collect())
}

/// An object of one of the kinds, changed before it is named.
fn any_of_a_kind(
    at: prop::sample::Index,
    rng: &mut SmallRng,
    change: impl Fn(&mut Value, &mut SmallRng),
) -> (&'static setpoint_facts::Resource, Value) {
    let rows = setpoint_facts::RESOURCES.iter().filter(|row| row.serves("create"));
    let row = *at.get(&rows.collect::<Vec<_>>());
    let definition = setpoint_facts::kind(row.group, row.version, row.kind).unwrap();
    let mut object = any_object(&DEFINITIONS[usize::from(definition)], 0, rng);
    change(&mut object, rng);
    object["apiVersion"] = match row.group {
        "" => row.version.into(),
        group => format!("{group}/{}", row.version).into(),
    };
    object["kind"] = row.kind.into();
    (row, object)
}

/// Empties some of the values.
fn set_zeros(value: &mut Value, rng: &mut SmallRng) {
    if rng.random_bool(0.2) {
        *value = match value {
            Value::String(_) => "".into(),
            Value::Number(_) => 0.into(),
            Value::Bool(_) => false.into(),
            Value::Array(_) => json!([]),
            Value::Object(_) => json!({}),
            Value::Null => Value::Null,
        };
    }
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| set_zeros(item, rng)),
        Value::Object(members) => members.values_mut().for_each(|item| set_zeros(item, rng)),
        _ => {}
    }
}

/// Whether an object may have an empty list or map that no accepted object has.
fn is_refused(at_rest: &Bytes) -> bool {
    const REFUSED: [&str; 7] = [
        r#""ports":[]"#,
        r#""resizePolicy":[]"#,
        r#""restartPolicyRules":[]"#,
        r#""policies":[]"#,
        r#""dependencies":{}"#,
        r#""requestMappings":[]"#,
        r#""requests":{}"#,
    ];
    let text = str::from_utf8(at_rest).unwrap();
    REFUSED.iter().any(|refused| text.contains(refused))
}

#[test]
fn all_that_is_stored_can_be_read() {
    let catalog = bootstrap::catalog();
    let stored = catalog.rows.values().filter(|row| row.serves(&crate::Verb::Get));
    let kinds: Vec<_> = stored.map(|row| &row.gvk).collect();
    assert!(kinds.len() > 50);
    for gvk in kinds {
        assert!(protobuf::has_kind(&gvk.group, &gvk.version, &gvk.kind), "{gvk:?}");
    }
}

proptest! {
    #[test]
    fn any_object_of_any_kind_round_trips(at in any::<prop::sample::Index>(), seed in any::<u64>()) {
        let rng = &mut SmallRng::seed_from_u64(seed);
        let (row, mut object) = any_of_a_kind(at, rng, |_, _| {});
        let schema = builtin::type_schema(row.group, row.version, row.kind).unwrap();
        let mut problems = Vec::new();
        decode::conform(&schema, row.kind, &mut object, &mut problems).unwrap();
        prop_assert_eq!(&problems, &Vec::<String>::new());
        let at_rest = to_bytes(&object);
        let mut value = packed(&at_rest);
        prop_assert_eq!(read(b"", &mut value, &Formers::default()), Ok(true));
        let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
        prop_assert_eq!(text(&value), text(&completed(object)));
        // As JSON that a kube-apiserver wrote.
        let mut line = Bytes::from([&at_rest[..], b"\n"].concat());
        prop_assert_eq!(read(b"", &mut line, &Formers::default()), Ok(true));
        prop_assert_eq!(text(&line), text(&value));
    }

    #[test]
    fn what_is_written_is_read_as_it_was(at in any::<prop::sample::Index>(), seed in any::<u64>()) {
        let rng = &mut SmallRng::seed_from_u64(seed);
        let (row, mut object) = any_of_a_kind(at, rng, set_zeros);
        // A write makes them by itself.
        if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
            metadata.remove("managedFields");
        }
        let schema = builtin::type_schema(row.group, row.version, row.kind).unwrap();
        // Some members cannot be zero.
        if decode::conform(&schema, row.kind, &mut object, &mut Vec::new()).is_ok() {
            let at_rest = completed(object);
            prop_assume!(!is_refused(&at_rest));
            let mut value = codec(Encoding::default()).write(b"", &at_rest);
            read(b"", &mut value, &Formers::default()).unwrap();
            let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
            prop_assert_eq!(text(&value), text(&at_rest));
        }
    }

    #[test]
    fn no_input_causes_a_panic(raw in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut value = Bytes::from([protobuf::MAGIC, &raw].concat());
        let _ = read(b"", &mut value, &Formers::default());
        codec(JSON).read_many(b"", &mut value);
    }
}
