//! Custom resources: the effect of their schema on a write (spec: crd §4, §5, §7).
use crate::definitions::{define, definition};
use crate::server::{Server, refused};
use serde_json::{Value, json};
use setpoint_registry::{FieldValidation, ListOptions, RegistryBuilder, Verb, WriteOptions};
use setpoint_store::{MemoryStore, Op, Store as _, Txn};
use std::sync::Arc;

const BIGS: &str = "/apis/ex.io/v1/namespaces/default/bigs";
const BIG: &str = "/apis/ex.io/v1/namespaces/default/bigs/a";

fn big(spec: Value) -> Value {
    json!({"apiVersion": "ex.io/v1", "kind": "Big", "metadata": {"name": "a"}, "spec": spec})
}

async fn server() -> Server {
    let server = Server::start().await;
    let mut definition = definition(
        "bigs",
        "Big",
        json!({
            "spec": {"type": "object", "required": ["i"], "properties": {
                "i": {"type": "integer", "minimum": 1},
                "s": {"type": "string", "enum": ["a", "b"]},
                "d": {"type": "object", "default": {}, "properties": {"n": {"type": "integer", "default": 5}}},
                "nul": {"type": "string"},
                "replicas": {"type": "integer"},
                "m": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                    "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}}},
            }},
            "status": {"type": "object", "properties": {"replicas": {"type": "integer"}, "phase": {"type": "string"}}},
        }),
    );
    definition["spec"]["versions"][0]["subresources"] = json!({
        "status": {},
        "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
    });
    define(&server, definition).await;
    server
}

#[tokio::test(start_paused = true)]
async fn unknown_fields_are_pruned_with_a_warning_or_refused() {
    let server = server().await;
    let mut sent = big(json!({"i": 1, "zz": 1, "nul": null}));
    sent["foo"] = json!(1);
    sent["metadata"]["bar"] = json!(1);
    let stored = server.create(BIGS, sent.clone()).await.unwrap();
    assert_eq!(stored["spec"], json!({"i": 1, "d": {"n": 5}}));
    assert_eq!(stored.get("foo"), None);
    assert_eq!(
        server.warnings(),
        [r#"unknown field "metadata.bar""#, r#"unknown field "foo""#, r#"unknown field "spec.zz""#]
    );
    let strict =
        WriteOptions { field_validation: FieldValidation::Strict, ..WriteOptions::default() };
    sent["metadata"] = json!({"name": "b"});
    assert_eq!(
        refused(server.create_with(BIGS, sent, &strict).await),
        r#"400 Big in version "v1" cannot be handled as a Big: strict decoding error: unknown field "foo", unknown field "spec.zz""#
    );
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn malformed_metadata_is_refused_with_gos_messages() {
    let server = server().await;
    let mut sent = big(json!({"i": 1}));
    sent["metadata"]["labels"] = json!({"a": 1});
    assert_eq!(
        refused(server.create(BIGS, sent).await),
        r#"400 Big in version "v1" cannot be handled as a Big: json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string"#
    );
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn values_are_validated() {
    let server = server().await;
    assert_eq!(
        refused(server.create(BIGS, big(json!({"i": 0, "s": "c"}))).await),
        r#"422 Big.ex.io "a" is invalid: [spec.i: Invalid value: 0: spec.i in body should be greater than or equal to 1, spec.s: Unsupported value: "c": supported values: "a", "b"]"#
    );
    assert_eq!(
        refused(server.create(BIGS, big(json!({}))).await),
        r#"422 Big.ex.io "a" is invalid: spec.i: Required value"#
    );
    server.create(BIGS, big(json!({"i": 1}))).await.unwrap();
    assert_eq!(
        refused(server.patch(BIG, json!({"spec": {"i": "x"}})).await),
        r#"422 Big.ex.io "a" is invalid: spec.i: Invalid value: "string": spec.i in body must be of type integer: "string""#
    );
    assert_eq!(
        refused(server.patch(BIG, json!({"spec": {"m": [{"k": "x"}, {"k": "x"}]}})).await),
        r#"422 Big.ex.io "a" is invalid: spec.m[1]: Duplicate value: {"k":"x"}"#
    );
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn status_and_generation() {
    let server = server().await;
    let mut sent = big(json!({"i": 1}));
    sent["status"] = json!({"phase": "X"});
    let stored = server.create(BIGS, sent).await.unwrap();
    assert_eq!((stored.get("status"), &stored["metadata"]["generation"]), (None, &json!(1)));
    let status = server
        .patch(&format!("{BIG}/status"), json!({"spec": {"i": 9}, "status": {"phase": "Y"}}))
        .await
        .unwrap();
    assert_eq!(
        (&status["spec"]["i"], &status["status"]["phase"], &status["metadata"]["generation"]),
        (&json!(1), &json!("Y"), &json!(1))
    );
    let spec =
        server.patch(BIG, json!({"spec": {"i": 2}, "status": {"phase": "Z"}})).await.unwrap();
    assert_eq!(
        (&spec["spec"]["i"], &spec["status"]["phase"], &spec["metadata"]["generation"]),
        (&json!(2), &json!("Y"), &json!(2))
    );
    assert_eq!(
        refused(server.patch(&format!("{BIG}/status"), json!({"status": {"phase": 1}})).await),
        r#"422 Big.ex.io "a" is invalid: status.phase: Invalid value: "integer": phase in body must be of type string: "integer""#
    );
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn scale() {
    let server = server().await;
    server.create(BIGS, big(json!({"i": 1, "replicas": 2}))).await.unwrap();
    let scale = server.get(&format!("{BIG}/scale")).await.unwrap();
    assert_eq!(
        (&scale["kind"], &scale["spec"], &scale["status"]),
        (&json!("Scale"), &json!({"replicas": 2}), &json!({"replicas": 0}))
    );
    server.patch(&format!("{BIG}/scale"), json!({"spec": {"replicas": 4}})).await.unwrap();
    let scaled = server.get(BIG).await.unwrap();
    assert_eq!(scaled["spec"]["replicas"], 4);
    let entries = scaled["metadata"]["managedFields"].as_array().unwrap();
    let entry = entries.iter().find(|entry| entry["subresource"] == "scale").unwrap();
    assert_eq!(entry["fieldsV1"], json!({"f:spec": {"f:replicas": {}}}));
    assert_eq!(entry["apiVersion"], "ex.io/v1");
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_scale_makes_has_its_defaults() {
    let server = Server::start().await;
    let properties =
        json!({"replicas": {"type": "integer"}, "d": {"type": "integer", "default": 5}});
    let spec = json!({"spec": {"type": "object", "properties": properties}});
    let mut foos = definition("foos", "Foo", spec);
    foos["spec"]["versions"][0]["subresources"] = json!({
        "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
    });
    define(&server, foos).await;
    let foo = json!({"apiVersion": "ex.io/v1", "kind": "Foo", "metadata": {"name": "a"}});
    let path = "/apis/ex.io/v1/namespaces/default/foos";
    server.create(path, foo).await.unwrap();
    server.patch(&format!("{path}/a/scale"), json!({"spec": {"replicas": 2}})).await.unwrap();
    let scaled = server.get(&format!("{path}/a")).await.unwrap();
    assert_eq!(scaled["spec"], json!({"replicas": 2, "d": 5}));
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn defaults_that_a_scale_would_make_are_not_there_for_the_rules() {
    let server = Server::start().await;
    let properties =
        json!({"replicas": {"type": "integer"}, "d": {"type": "integer", "default": 5}});
    let spec = json!({"spec": {"type": "object", "required": ["d"], "properties": properties}});
    let mut foos = definition("foos", "Foo", spec);
    foos["spec"]["versions"][0]["subresources"] = json!({
        "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
    });
    define(&server, foos).await;
    let foo = json!({"apiVersion": "ex.io/v1", "kind": "Foo", "metadata": {"name": "a"}});
    let path = "/apis/ex.io/v1/namespaces/default/foos";
    server.create(path, foo).await.unwrap();
    let scale = json!({"spec": {"replicas": 2}});
    let error = refused(server.patch(&format!("{path}/a/scale"), scale).await);
    assert!(error.contains("spec.d: Required value"), "{error}");
    server.stop().await;
}

/// A patch that leaves them out does not set them to zero.
#[tokio::test(start_paused = true)]
async fn scale_patch_must_set_missing_replicas() {
    let server = server().await;
    let created = server.create(BIGS, big(json!({"i": 1}))).await.unwrap();
    let scale = format!("{BIG}/scale");
    let empty = r#"400 the spec replicas field ".spec.replicas" cannot be empty"#;
    for patch in [
        json!({}),
        json!({"metadata": {"labels": {"a": "b"}}}),
        json!({"status": {"replicas": 4}}),
        json!({"spec": {"replicas": -2_147_483_648_i64}}),
    ] {
        assert_eq!(refused(server.patch(&scale, patch).await), empty);
    }
    let configuration =
        json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"}});
    let unowned = refused(server.apply(&scale, "one", configuration).await);
    assert!(unowned.starts_with("500 failed to create manager for existing fields"), "{unowned}");
    assert_eq!(server.get(BIG).await.unwrap(), created);
    server.patch(&scale, json!({"spec": {"replicas": null}})).await.unwrap();
    assert_eq!(server.get(BIG).await.unwrap()["spec"]["replicas"], 0);
    server.patch(&scale, json!({})).await.unwrap();
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_update_needs_a_resource_version() {
    let server = server().await;
    server.create(BIGS, big(json!({"i": 1}))).await.unwrap();
    assert_eq!(
        refused(server.update(BIG, big(json!({"i": 2}))).await),
        r#"422 bigs.ex.io "a" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update"#
    );
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn apply_owns_the_fields_that_the_schema_declares() {
    let server = server().await;
    let applied =
        server.apply(BIG, "one", big(json!({"i": 1, "m": [{"k": "x", "v": 1}]}))).await.unwrap();
    let owned = &applied["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"];
    assert_eq!(owned["f:m"]["k:{\"k\":\"x\"}"], json!({".": {}, "f:k": {}, "f:v": {}}));
    assert_eq!(owned.get("f:d"), None, "defaults belong to nobody");
    let merged = server.apply(BIG, "two", big(json!({"m": [{"k": "y"}]}))).await.unwrap();
    assert_eq!(merged["spec"]["m"], json!([{"k": "x", "v": 1}, {"k": "y"}]));
    server.stop().await;
}

/// Other writes drop it: they decode a body, and an apply merges one.
#[tokio::test(start_paused = true)]
async fn applied_null_must_be_allowed_by_the_schema() {
    let server = server().await;
    let created = server.create(BIGS, big(json!({"i": 1, "nul": null}))).await.unwrap();
    assert_eq!(created["spec"], json!({"i": 1, "d": {"n": 5}}));
    let refusal = r#"422 Big.ex.io "a" is invalid: spec.nul: Invalid value: "null": spec.nul in body must be of type string: "null""#;
    let null = big(json!({"i": 1, "nul": null}));
    assert_eq!(refused(server.apply(BIG, "one", null.clone()).await), refusal);
    server.delete(BIG).await.unwrap();
    assert_eq!(refused(server.apply(BIG, "one", null).await), refusal);
    // A default takes the place of a null.
    let applied = server.apply(BIG, "one", big(json!({"i": 1, "d": {"n": null}}))).await.unwrap();
    assert_eq!(applied["spec"]["d"], json!({"n": 5}));
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn forbidden_additional_properties_are_refused() {
    let server = Server::start().await;
    let none = json!({"type": "object", "additionalProperties": false});
    define(&server, definition("bigs", "Big", json!({"af": none}))).await;
    let mut sent = big(json!({}));
    sent["af"] = json!({"x": 1});
    assert_eq!(
        refused(server.create(BIGS, sent.clone()).await),
        r#"422 Big.ex.io "a" is invalid: af: Invalid value: "x": af.x in body is a forbidden property"#
    );
    sent["af"] = json!({});
    server.create(BIGS, sent).await.unwrap();
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_patch_must_not_change_the_identity_of_the_object() {
    let server = server().await;
    server.create(BIGS, big(json!({"i": 1}))).await.unwrap();
    for (patch, refusal) in [
        (
            json!({"kind": "Z"}),
            r#"422 Z.ex.io "a" is invalid: kind: Invalid value: "Z": must be Big"#,
        ),
        (
            json!({"apiVersion": "ex.io/v9"}),
            r#"422 Big.ex.io "a" is invalid: apiVersion: Invalid value: "ex.io/v9": must be ex.io/v1"#,
        ),
        (
            json!({"apiVersion": "y.io/v1", "kind": "Z"}),
            r#"422 Z.y.io "a" is invalid: [kind: Invalid value: "Z": must be Big, apiVersion: Invalid value: "y.io/v1": must be ex.io/v1]"#,
        ),
        // Validation finds another kind: no field is unknown, and only metadata are wrong, too.
        (
            json!({"kind": "Z", "no": 1, "metadata": {"uid": "z"}}),
            r#"422 Z.ex.io "a" is invalid: [metadata.uid: Invalid value: "z": field is immutable, kind: Invalid value: "Z": must be Big]"#,
        ),
        (
            json!({"kind": "Z", "metadata": {"name": "z"}}),
            "400 the name of the object (z) does not match the name on the URL (a)",
        ),
        (
            json!({"apiVersion": ""}),
            "500 Internal error occurred: Object 'apiVersion' is missing in 'object has no apiVersion field'",
        ),
        (
            json!({"metadata": {"uid": "z"}}),
            r#"422 Big.ex.io "a" is invalid: metadata.uid: Invalid value: "z": field is immutable"#,
        ),
        (
            json!({"metadata": {"name": "z"}}),
            "400 the name of the object (z) does not match the name on the URL (a)",
        ),
    ] {
        assert_eq!(refused(server.patch(BIG, patch).await), refusal);
    }
    for (patch, refusal) in [
        (
            json!({"kind": 1}),
            "couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind of type string",
        ),
        (json!({"apiVersion": "a/b/c"}), "unexpected GroupVersion string: a/b/c"),
    ] {
        let told = refused(server.patch(BIG, patch).await);
        assert!(told.starts_with(r#"422  "" is invalid: patch: Invalid value: "{"#), "{told}");
        assert!(told.ends_with(refusal), "{told}");
    }
    let mut other = big(json!({"i": "no number"}));
    other["kind"] = "Z".into();
    assert_eq!(
        refused(server.create(BIGS, other).await),
        r#"422 Z.ex.io "a" is invalid: kind: Invalid value: "Z": must be Big"#
    );
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_that_another_program_stored_is_served_with_valid_metadata_and_can_be_written() {
    let store = Arc::new(MemoryStore::default());
    let shared = |builder: RegistryBuilder| builder.seed(7).shared(true);
    let server = Server::configured(store.clone(), store.clone(), shared).await;
    let inner = json!({"inner": {"type": "object", "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true}});
    define(&server, definition("foos", "Foo", inner)).await;
    let (foos, foo) = ("/apis/ex.io/v1/namespaces/default/foos", "foos/default/a");
    let path = format!("{foos}/a");
    let wrong =
        json!({"strange": 1, "annotations": {"a": 1, "b": "c"}, "labels": {"l": "not valid"}});
    let mut stored = json!({"apiVersion": "ex.io/v1", "kind": "Foo", "metadata": wrong,
        "inner": {"apiVersion": "v1", "kind": "K", "metadata": wrong}});
    let metadata = stored["metadata"].as_object_mut().unwrap();
    let names = [("name", "a"), ("namespace", "default"), ("uid", "u")];
    metadata.extend(names.map(|(name, value)| (name.to_owned(), value.into())));
    metadata.insert("generation".into(), Value::Null);
    let put = async || {
        let op = Op::Put(format!("/registry/ex.io/{foo}").into(), stored.to_string().into());
        store.commit(Txn { ops: vec![op], ..Txn::default() }).await.unwrap();
    };
    put().await;
    server.delete(&path).await.unwrap();
    assert!(refused(server.get(&path).await).starts_with("404"));
    put().await;
    let mut object = server.get(&path).await.unwrap();
    let labels = json!({"l": "not valid"});
    assert_eq!(object["inner"]["metadata"], json!({"labels": labels}));
    let mut metadata = object["metadata"].as_object().unwrap().clone();
    metadata.remove("resourceVersion");
    let expected =
        json!({"name": "a", "namespace": "default", "uid": "u", "generation": 1, "labels": labels});
    assert_eq!(Value::from(metadata), expected);
    let (request, options) = (server.request(Verb::List, foos), ListOptions::default());
    let list = server.registry.list(&request, &options).await.unwrap();
    let item: Value = serde_json::from_slice(&list.items[0].bytes()).unwrap();
    assert_eq!(item["inner"], object["inner"]);
    // What a client writes has to be valid.
    for place in ["/metadata/labels/l", "/inner/metadata/labels/l"] {
        let refusal = refused(server.update(&path, object.clone()).await);
        assert!(refusal.contains("metadata.labels: Invalid value"), "{refusal}");
        *object.pointer_mut(place).unwrap() = "valid".into();
    }
    let written = server.update(&path, object).await.unwrap();
    assert_eq!(written["metadata"]["labels"], json!({"l": "valid"}));
}
