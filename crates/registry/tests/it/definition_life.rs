//! Definitions at their end, and beside what they must leave alone (spec: crd §2, §4, §7).
use crate::definitions::{DEFINITIONS, define, definition};
use crate::server::{Server, refused};
use serde_json::{Value, json};
use setpoint_registry::{DeleteOptions, PatchType, PropagationPolicy, WriteOptions};
use setpoint_store::{At, Op, Store as _, Txn};
use std::time::Duration;

const THINGS: &str = "/apis/ex.io/v1/namespaces/default/things";
/// How long a state may take, in time that a test advances.
const STATE_PATIENCE: Duration = Duration::from_secs(180);

fn thing(name: &str, members: Value) -> Value {
    let mut thing = json!({"apiVersion": "ex.io/v1", "kind": "Thing", "metadata": {"name": name}});
    for (name, value) in members.as_object().unwrap() {
        thing[name] = value.clone();
    }
    thing
}

async fn server(properties: Value, subresources: Value) -> Server {
    let server = Server::start().await;
    let mut definition = definition("things", "Thing", properties);
    definition["spec"]["versions"][0]["subresources"] = subresources;
    define(&server, definition).await;
    server
}

/// Waits for a reason of the condition `Terminating`; `None`: for the removal.
async fn terminating(server: &Server, path: &str, reason: Option<&str>) {
    let reached = async {
        loop {
            let definition = server.get(path).await.unwrap_or_default();
            let conditions = definition["status"]["conditions"].as_array();
            let mut found = conditions.into_iter().flatten().filter(|c| c["type"] == "Terminating");
            match reason {
                None if definition.is_null() => return,
                Some(reason) if found.any(|c| c["reason"] == reason) => return,
                _ => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    };
    tokio::time::timeout(STATE_PATIENCE, reached).await.unwrap_or_else(|_| panic!("{reason:?}"));
}

#[tokio::test(start_paused = true)]
async fn a_removal_that_waits_for_a_minute_reports_it() {
    let server = server(json!({}), Value::Null).await;
    let held = json!({"metadata": {"name": "a", "finalizers": ["ex.io/hold"]}});
    server.create(THINGS, thing("a", held)).await.unwrap();
    let path = format!("{DEFINITIONS}/things.ex.io");
    server.delete(&path).await.unwrap();
    for reason in ["InstanceDeletionInProgress", "InstanceDeletionCheck"] {
        terminating(&server, &path, Some(reason)).await;
    }
    // It goes on.
    terminating(&server, &path, Some("InstanceDeletionInProgress")).await;
    server.patch(&format!("{THINGS}/a"), json!({"metadata": {"finalizers": null}})).await.unwrap();
    terminating(&server, &path, None).await;
    server.stop().await;
}

/// The finalizer was removed by a write that such a definition fails.
#[tokio::test(start_paused = true)]
async fn a_definition_with_a_stored_version_that_it_lacks_is_removed() {
    let server = server(json!({}), Value::Null).await;
    server.create(THINGS, thing("a", json!({}))).await.unwrap();
    let path = format!("{DEFINITIONS}/things.ex.io");
    let status = json!({"status": {"storedVersions": ["v0", "v1"]}});
    let options = WriteOptions::default();
    let patch = PatchType::Merge;
    server.patch_with(&format!("{path}/status"), patch, status, &options).await.unwrap();
    server.delete(&path).await.unwrap();
    terminating(&server, &path, None).await;
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn first_delete_adds_only_the_finalizer_of_the_cleanup() {
    const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";
    let server = server(json!({}), Value::Null).await;
    let held = json!({"metadata": {"name": "a", "finalizers": ["ex.io/hold"]}});
    server.create(THINGS, thing("a", held)).await.unwrap();
    let path = format!("{DEFINITIONS}/things.ex.io");
    let finalizers = json!({"metadata": {"finalizers": ["orphan", "ex.io/x"]}});
    server.patch(&path, finalizers).await.unwrap();
    let options = DeleteOptions {
        propagation: Some(PropagationPolicy::Foreground),
        ..DeleteOptions::default()
    };
    let first = server.delete_with(&path, &options).await.unwrap().unwrap();
    assert_eq!(first["metadata"]["finalizers"], json!(["orphan", "ex.io/x", CLEANUP]));
    let second = server.delete_with(&path, &options).await.unwrap().unwrap();
    assert_eq!(second["metadata"]["finalizers"], json!(["ex.io/x", CLEANUP, "foregroundDeletion"]));
    server.stop().await;
}

/// The prefix of its objects in the store is that of all definitions.
#[tokio::test(start_paused = true)]
async fn a_definition_of_a_built_in_kind_takes_none_of_its_objects_along() {
    let server = server(json!({}), Value::Null).await;
    let mut overlapping =
        definition("customresourcedefinitions", "CustomResourceDefinition", json!({}));
    overlapping["metadata"] = json!({
        "name": "customresourcedefinitions.apiextensions.k8s.io",
        "annotations": {"api-approved.kubernetes.io": "unapproved"},
    });
    overlapping["spec"]["group"] = "apiextensions.k8s.io".into();
    overlapping["spec"]["scope"] = "Cluster".into();
    server.create(DEFINITIONS, overlapping).await.unwrap();
    let path = format!("{DEFINITIONS}/customresourcedefinitions.apiextensions.k8s.io");
    server.delete(&path).await.unwrap();
    terminating(&server, &path, None).await;
    let kept = server.get(&format!("{DEFINITIONS}/things.ex.io")).await.unwrap();
    assert_eq!(kept["metadata"].get("deletionTimestamp"), None);
    server.create(THINGS, thing("a", json!({}))).await.unwrap();
    server.stop().await;
}

/// A create drops `status`, so the default is not stored.
#[tokio::test(start_paused = true)]
async fn a_default_status_is_served_though_it_is_not_stored() {
    let properties = json!({"status": {"type": "object", "default": {"phase": "New"}, "properties": {"phase": {"type": "string"}}}});
    let server = server(properties, json!({"status": {}})).await;
    let created = server.create(THINGS, thing("a", json!({"status": {"phase": "Sent"}}))).await;
    assert_eq!(created.unwrap().get("status"), None);
    let path = format!("{THINGS}/a");
    assert_eq!(server.get(&path).await.unwrap()["status"], json!({"phase": "New"}));
    let status = format!("{path}/status");
    server.patch(&status, json!({"status": {"phase": "Ready"}})).await.unwrap();
    assert_eq!(server.get(&path).await.unwrap()["status"], json!({"phase": "Ready"}));
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_write_of_the_status_is_held_to_the_schema_of_the_status() {
    let numbers = |names: &[&str]| -> Value {
        let members = names.iter().map(|name| ((*name).to_owned(), json!({"type": "integer"})));
        json!({"type": "object", "properties": members.collect::<serde_json::Map<_, _>>()})
    };
    let properties = json!({"spec": numbers(&["n"]), "status": numbers(&["n", "m"])});
    let server = server(properties, json!({"status": {}})).await;
    server.create(THINGS, thing("a", json!({}))).await.unwrap();
    let status = json!({"status": {"n": "x", "m": 1.5}});
    assert_eq!(
        refused(server.patch(&format!("{THINGS}/a/status"), status).await),
        "422 Thing.ex.io \"a\" is invalid: [\
         status.m: Invalid value: \"number\": m in body must be of type integer: \"number\", \
         status: Invalid value: \"\": Checked value must be of type integer (default format) in m, \
         status.n: Invalid value: \"string\": n in body must be of type integer: \"string\"]"
    );
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn members_that_scale_reads_have_its_types() {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let paths = json!({
        "specReplicasPath": ".spec.a.n",
        "statusReplicasPath": ".status.n",
        "labelSelectorPath": ".status.s",
    });
    let subresources = json!({"status": {}, "scale": paths});
    let server = server(json!({"spec": any, "status": any}), subresources).await;
    let create = |spec: Value| server.create(THINGS, thing("a", json!({ "spec": spec })));
    let spec = |spec: Value| async { refused(create(spec).await) };
    let error =
        |why: &str| format!("422 Thing.ex.io \"a\" is invalid: .spec.a.n: Invalid value: {why}");
    for (sent, why) in [
        (
            json!({"a": {"n": "x"}}),
            "0: .spec.a.n accessor error: x is of the type string, expected int64",
        ),
        (
            json!({"a": {"n": 1.5}}),
            "0: .spec.a.n accessor error: 1.5 is of the type float64, expected int64",
        ),
        (
            json!({"a": {"n": {"b": [1]}}}),
            "0: .spec.a.n accessor error: map[b:[1]] is of the type map[string]interface {}, expected int64",
        ),
        (
            json!({"a": true}),
            "0: .spec.a.n accessor error: true is of the type bool, expected map[string]interface{}",
        ),
        (json!({"a": {"n": -1}}), "-1: should be a non-negative integer"),
        (
            json!({"a": {"n": 2_147_483_648_i64}}),
            "2147483648: should be less than or equal to 2147483647",
        ),
    ] {
        assert_eq!(spec(sent).await, error(why));
    }
    create(json!({"a": {"n": 3}})).await.unwrap();
    let status = format!("{THINGS}/a/status");
    assert_eq!(
        refused(server.patch(&status, json!({"status": {"n": -2, "s": {"a": "b"}}})).await),
        "422 Thing.ex.io \"a\" is invalid: [.status.n: Invalid value: -2: should be a non-negative integer, \
         .status.s: Invalid value: \"\": .status.s accessor error: map[a:b] is of the type map[string]interface {}, expected string]"
    );
    server.patch(&status, json!({"status": {"n": 2, "s": "a=b"}})).await.unwrap();
    server.stop().await;
}

/// The objects are older than the definition's subresource. The definition's own checks of a write
/// would refuse them.
#[tokio::test(start_paused = true)]
async fn members_of_another_type_have_no_scale() {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let server = server(json!({"spec": any, "status": any}), Value::Null).await;
    let objects = [
        (
            "text",
            json!({"n": "x"}),
            json!({}),
            ".spec.n accessor error: x is of the type string, expected int64",
        ),
        (
            "float",
            json!({"n": 1.5}),
            json!({}),
            ".spec.n accessor error: 1.5 is of the type float64, expected int64",
        ),
        (
            "null",
            json!({"n": null}),
            json!({}),
            ".spec.n accessor error: <nil> is of the type <nil>, expected int64",
        ),
        (
            "status",
            json!({"n": 1}),
            json!({"n": "y"}),
            ".status.n accessor error: y is of the type string, expected int64",
        ),
        (
            "selector",
            json!({"n": 1}),
            json!({"s": 5}),
            ".status.s accessor error: 5 is of the type int64, expected string",
        ),
    ];
    for (name, spec, status, _) in &objects {
        let sent = thing(name, json!({"spec": spec, "status": status}));
        server.create(THINGS, sent).await.unwrap();
    }
    let definition = format!("{DEFINITIONS}/things.ex.io");
    let scale = json!({
        "specReplicasPath": ".spec.n",
        "statusReplicasPath": ".status.n",
        "labelSelectorPath": ".status.s",
    });
    let mut changed = server.get(&definition).await.unwrap();
    changed["spec"]["versions"][0]["subresources"] = json!({"status": {}, "scale": scale});
    server.update(&definition, changed).await.unwrap();
    for (name, _, _, why) in &objects {
        let path = format!("{THINGS}/{name}/scale");
        while matches!(server.get(&path).await, Err(error) if error.code() == 404) {
            tokio::task::yield_now().await;
        }
        let expected = format!("500 {why}");
        assert_eq!(refused(server.get(&path).await), expected);
        assert_eq!(refused(server.patch(&path, json!({"spec": {"replicas": 2}})).await), expected);
    }
    server.stop().await;
}

/// A float beyond `int64` is stored without a fraction.
#[tokio::test(start_paused = true)]
async fn an_equal_large_number_is_no_change() {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let server = server(json!({ "spec": any }), Value::Null).await;
    let sent = json!({"spec": {"n": 12_345_678_901_234_567_890_u64, "m": null}});
    server.create(THINGS, thing("a", sent.clone())).await.unwrap();
    let path = format!("{THINGS}/a");
    let applied = server.apply(&path, "one", thing("a", sent.clone())).await.unwrap();
    let again = server.apply(&path, "one", thing("a", sent)).await.unwrap();
    let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
    assert_eq!((&again["metadata"]["generation"], version(&again)), (&json!(1), version(&applied)));
    // A null is a value.
    let patched = server.patch(&path, json!({"spec": {"m": null}})).await.unwrap();
    assert_eq!(patched["metadata"]["generation"], 2);
    assert_eq!(patched["spec"].get("m"), None);
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_group_version_of_kubernetes_has_no_resources_of_definitions() {
    let server = Server::start().await;
    let mut bars = definition("bars", "Bar", json!({}));
    let approval = json!({"api-approved.kubernetes.io": "unapproved, for a test"});
    bars["metadata"] = json!({"name": "bars.storage.k8s.io", "annotations": approval});
    bars["spec"]["group"] = "storage.k8s.io".into();
    let mut another = bars["spec"]["versions"][0].clone();
    another["name"] = "v3".into();
    another["storage"] = false.into();
    bars["spec"]["versions"].as_array_mut().unwrap().push(another);
    define(&server, bars).await;
    let mut catalogs = server.registry.catalog_changes();
    let catalog = catalogs
        .wait_for(|catalog| catalog.get("storage.k8s.io", "v3", "bars").is_some())
        .await
        .unwrap();
    assert!(catalog.get("storage.k8s.io", "v1", "bars").is_none());
    assert!(catalog.get("storage.k8s.io", "v1", "storageclasses").is_some());
    drop(catalog);
    let bar = json!({"apiVersion": "storage.k8s.io/v3", "kind": "Bar", "metadata": {"name": "a"}});
    server.create("/apis/storage.k8s.io/v3/namespaces/default/bars", bar).await.unwrap();
    assert_eq!(stored_version(&server).await, "storage.k8s.io/v1");
}

/// The version of the only Bar in the store.
async fn stored_version(server: &Server) -> Value {
    let stored =
        server.store.get(b"/registry/storage.k8s.io/bars/default/a", At::Latest).await.unwrap();
    let stored: Value = serde_json::from_slice(&stored.value.unwrap().value).unwrap();
    stored["apiVersion"].clone()
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_cannot_be_decoded_does_not_keep_the_server_from_starting() {
    let server = Server::start().await;
    define(&server, definition("foos", "Foo", json!({}))).await;
    let (store, key) =
        (server.store.clone(), format!("{}bogus", setpoint_object::keys::DEFINITIONS));
    server.stop().await;
    let ops = vec![Op::Put(key.clone().into(), "bogus data".into())];
    store.commit(Txn { ops, ..Txn::default() }).await.unwrap();
    let server = Server::over(store.clone()).await;
    let foo = json!({"apiVersion": "ex.io/v1", "kind": "Foo", "metadata": {"name": "a"}});
    server.create("/apis/ex.io/v1/namespaces/default/foos", foo).await.unwrap();
    // Further definitions are served as well.
    define(&server, definition("bars", "Bar", json!({}))).await;
    store.commit(Txn { ops: vec![Op::Delete(key.into())], ..Txn::default() }).await.unwrap();
    define(&server, definition("bazs", "Baz", json!({}))).await;
}
