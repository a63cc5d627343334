//! CustomResourceDefinitions: naming, serving, change and removal (spec: crd §2).
use crate::server::{Server, refused};
use crate::slow::SlowStore;
use futures::StreamExt;
use serde_json::{Value, json};
use setpoint_registry::{EventKind, ListOptions, Routes, Verb, WatchStream};
use setpoint_store::MemoryStore;
use std::sync::Arc;

pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const FOOS: &str = "/apis/ex.io/v1/namespaces/default/foos";
/// Maximum number of polls for a state.
const LOOKS_MAX: usize = 10_000;

/// A definition of a namespaced kind with one version.
pub(crate) fn definition(plural: &str, kind: &str, properties: Value) -> Value {
    json!({
        "metadata": {"name": format!("{plural}.ex.io")},
        "spec": {
            "group": "ex.io", "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
            }],
        },
    })
}

fn spec() -> Value {
    json!({"spec": {"type": "object", "properties": {"color": {"type": "string"}, "n": {"type": "integer", "default": 3}}}})
}

/// Polls an object until `wanted` holds.
async fn eventually(server: &Server, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let mut seen = Value::Null;
    for _ in 0..LOOKS_MAX {
        seen = server.get(path).await.unwrap_or_default();
        if wanted(&seen) {
            return seen;
        }
        tokio::task::yield_now().await;
    }
    panic!("{path} stays {seen}");
}

fn condition<'a>(object: &'a Value, ty: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().find(|c| c["type"] == ty).unwrap_or(&Value::Null)
}

/// Creates a definition and waits until it is established.
pub(crate) async fn define(server: &Server, definition: Value) -> Value {
    let created = server.create(DEFINITIONS, definition).await.unwrap();
    let path = format!("{DEFINITIONS}/{}", created["metadata"]["name"].as_str().unwrap());
    eventually(server, &path, |d| condition(d, "Established")["status"] == "True").await
}

async fn watch(server: &Server, path: &str) -> WatchStream {
    let request = server.request(Verb::Watch, path);
    server.registry.watch(&request, &ListOptions::default()).await.unwrap()
}

/// The remaining events of a stream, as `ADDED name`.
async fn drain(mut stream: WatchStream) -> Vec<String> {
    let mut seen = Vec::new();
    while let Some(event) = stream.next().await {
        let event = event.unwrap();
        let object: Value = serde_json::from_slice(&event.object()).unwrap();
        seen.push(format!("{:?} {}", event.kind, object["metadata"]["name"].as_str().unwrap()));
    }
    seen
}

#[tokio::test(start_paused = true)]
async fn a_new_definition_is_established_and_its_first_object_accepted() {
    let server = Server::start().await;
    let created = server.create(DEFINITIONS, definition("foos", "Foo", spec())).await.unwrap();
    assert_eq!(
        created["status"],
        json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": ["v1"]})
    );
    assert_eq!(created["metadata"]["generation"], 1);
    let path = format!("{DEFINITIONS}/foos.ex.io");
    let established =
        eventually(&server, &path, |d| condition(d, "Established")["status"] == "True").await;
    assert_eq!(
        established["status"]["acceptedNames"],
        json!({"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"})
    );
    assert_eq!(condition(&established, "NamesAccepted")["reason"], "NoConflicts");
    assert_eq!(condition(&established, "Established")["reason"], "InitialNamesAccepted");
    assert_eq!(established["metadata"]["generation"], 1);
    let foo =
        json!({"apiVersion": "ex.io/v1", "kind": "Foo", "metadata": {"name": "a"}, "spec": {}});
    let stored = server.create(FOOS, foo).await.unwrap();
    assert_eq!(stored["spec"], json!({"n": 3}));
    let catalog = server.registry.catalog();
    let row = catalog.get("ex.io", "v1", "foos").unwrap();
    let verbs: Vec<&str> = row.verbs.iter().map(|v| v.as_str()).collect();
    assert_eq!(
        verbs,
        ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]
    );
    assert_eq!(catalog.group("ex.io").unwrap().routes, Routes::Dynamic);
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_catalog_serves_a_definition_before_its_status_is_established() {
    let server = Server::start().await;
    let mut stream = watch(&server, DEFINITIONS).await;
    server.create(DEFINITIONS, definition("foos", "Foo", spec())).await.unwrap();
    loop {
        let event = stream.next().await.unwrap().unwrap();
        let object: Value = serde_json::from_slice(&event.object()).unwrap();
        if condition(&object, "Established")["status"] == "True" {
            break;
        }
    }
    assert!(server.registry.catalog().get("ex.io", "v1", "foos").is_some());
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_taken_kind_waits_until_it_is_free() {
    let server = Server::start().await;
    define(&server, definition("foos", "Foo", spec())).await;
    server.create(DEFINITIONS, definition("bars", "Foo", spec())).await.unwrap();
    let path = format!("{DEFINITIONS}/bars.ex.io");
    let refused =
        eventually(&server, &path, |d| condition(d, "NamesAccepted")["status"] == "False").await;
    assert_eq!(condition(&refused, "NamesAccepted")["reason"], "ListKindConflict");
    assert_eq!(condition(&refused, "Established")["reason"], "NotAccepted");
    assert_eq!(refused["status"]["acceptedNames"]["plural"], "bars");
    assert!(server.registry.catalog().get("ex.io", "v1", "bars").is_none());
    server.delete(&format!("{DEFINITIONS}/foos.ex.io")).await.unwrap();
    eventually(&server, &path, |d| condition(d, "Established")["status"] == "True").await;
    assert!(server.registry.catalog().get("ex.io", "v1", "bars").is_some());
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn deletion_removes_the_objects_and_then_the_definition() {
    let server = Server::start().await;
    define(&server, definition("foos", "Foo", spec())).await;
    let foo = |name: &str| json!({"apiVersion": "ex.io/v1", "kind": "Foo", "metadata": {"name": name}, "spec": {}});
    server.create(FOOS, foo("a")).await.unwrap();
    server.create("/apis/ex.io/v1/namespaces/kube-system/foos", foo("b")).await.unwrap();
    let mut stream = watch(&server, "/apis/ex.io/v1/foos").await;
    for _ in ["a", "b"] {
        assert_eq!(stream.next().await.unwrap().unwrap().kind, EventKind::Added);
    }
    let path = format!("{DEFINITIONS}/foos.ex.io");
    let marked = server.delete(&path).await.unwrap().unwrap();
    assert_eq!(condition(&marked, "Terminating")["reason"], "InstanceDeletionPending");
    assert_eq!(
        marked["metadata"]["finalizers"],
        json!(["customresourcecleanup.apiextensions.k8s.io"])
    );
    assert_eq!(drain(stream).await, ["Deleted a", "Deleted b"]);
    eventually(&server, &path, Value::is_null).await;
    // A definition of the same name does not see the old one's objects.
    define(&server, definition("foos", "Foo", spec())).await;
    assert_eq!(refused(server.get(&format!("{FOOS}/a")).await), r#"404 foos.ex.io "a" not found"#);
    server.stop().await;
}

#[tokio::test]
async fn who_finds_no_definition_finds_no_resource() {
    let server = Server::start().await;
    for n in 0..8 {
        define(&server, definition("foos", "Foo", spec())).await;
        let foo = json!({"apiVersion": "ex.io/v1", "kind": "Foo", "metadata": {"name": format!("foo-{n}")}, "spec": {}});
        // A definition that is made again at once is served by its own rows.
        server.create(FOOS, foo).await.unwrap();
        let path = format!("{DEFINITIONS}/foos.ex.io");
        server.delete(&path).await.unwrap();
        while server.get(&path).await.is_ok() {
            tokio::task::yield_now().await;
        }
        assert!(server.registry.catalog().group("ex.io").is_none(), "{n}");
    }
    server.stop().await;
}

#[tokio::test]
async fn documents_wait_for_the_status_of_a_resource_that_they_list() {
    for seed in 0..8 {
        let store = MemoryStore::default();
        let slow = Arc::new(SlowStore::new(MemoryStore::clone(&store), seed));
        let server = Server::on(slow, Arc::new(store), seed).await;
        let mut catalogs = server.registry.catalog_changes();
        server.create(DEFINITIONS, definition("foos", "Foo", spec())).await.unwrap();
        catalogs.wait_for(|catalog| catalog.group("ex.io").is_some()).await.unwrap();
        server.registry.wait_announced().await;
        let found = server.get(&format!("{DEFINITIONS}/foos.ex.io")).await.unwrap();
        assert_eq!(condition(&found, "Established")["status"], "True", "{seed}");
        server.stop().await;
    }
}

#[tokio::test]
async fn a_finalizer_of_another_keeps_a_definition_and_its_empty_resource() {
    let server = Server::start().await;
    define(&server, definition("foos", "Foo", spec())).await;
    let path = format!("{DEFINITIONS}/foos.ex.io");
    let hold = json!({"metadata": {"finalizers": ["ex.io/hold"]}});
    server.patch(&path, hold).await.unwrap();
    server.delete(&path).await.unwrap();
    let is_released = |d: &Value| d["metadata"]["finalizers"] == json!(["ex.io/hold"]);
    eventually(&server, &path, is_released).await;
    assert!(server.registry.catalog().get("ex.io", "v1", "foos").is_some_and(|r| r.terminating));
    server.patch(&path, json!({"metadata": {"finalizers": null}})).await.unwrap();
    eventually(&server, &path, Value::is_null).await;
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_of_an_object_delays_the_removal_of_its_definition() {
    let server = Server::start().await;
    define(&server, definition("foos", "Foo", spec())).await;
    let mut foo = json!({"apiVersion": "ex.io/v1", "kind": "Foo", "metadata": {"name": "a", "finalizers": ["ex.io/hold"]}, "spec": {}});
    server.create(FOOS, foo.clone()).await.unwrap();
    let path = format!("{DEFINITIONS}/foos.ex.io");
    server.delete(&path).await.unwrap();
    eventually(&server, &format!("{FOOS}/a"), |foo| {
        foo["metadata"]["deletionTimestamp"].is_string()
    })
    .await;
    let held = server.get(&path).await.unwrap();
    assert_eq!(condition(&held, "Terminating")["reason"], "InstanceDeletionInProgress");
    foo["metadata"] = json!({"name": "new"});
    assert_eq!(
        refused(server.create(FOOS, foo).await),
        r#"403 foos.ex.io "new" is forbidden: create not allowed while custom resource definition is terminating"#
    );
    server.patch(&format!("{FOOS}/a"), json!({"metadata": {"finalizers": null}})).await.unwrap();
    eventually(&server, &path, Value::is_null).await;
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_was_never_served_is_removed_at_once() {
    let server = Server::start().await;
    define(&server, definition("foos", "Foo", spec())).await;
    server.create(DEFINITIONS, definition("bars", "Foo", spec())).await.unwrap();
    let path = format!("{DEFINITIONS}/bars.ex.io");
    eventually(&server, &path, |d| condition(d, "NamesAccepted")["status"] == "False").await;
    server.delete(&path).await.unwrap();
    eventually(&server, &path, Value::is_null).await;
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_spec_ends_watches_and_a_change_of_metadata_does_not() {
    let server = Server::start().await;
    define(&server, definition("foos", "Foo", spec())).await;
    let path = format!("{DEFINITIONS}/foos.ex.io");
    let mut stream = watch(&server, FOOS).await;
    server.patch(&path, json!({"metadata": {"labels": {"a": "b"}}})).await.unwrap();
    let generation = server.registry.catalog().generation;
    let foo =
        json!({"apiVersion": "ex.io/v1", "kind": "Foo", "metadata": {"name": "a"}, "spec": {}});
    server.create(FOOS, foo).await.unwrap();
    assert_eq!(stream.next().await.unwrap().unwrap().kind, EventKind::Added);
    assert_eq!(server.registry.catalog().generation, generation);
    let mut versions = server.get(&path).await.unwrap()["spec"]["versions"].clone();
    versions[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["size"] =
        json!({"type": "integer", "default": 7});
    let changed = server.patch(&path, json!({"spec": {"versions": versions}})).await.unwrap();
    assert_eq!(changed["metadata"]["generation"], 2);
    assert_eq!(drain(stream).await, Vec::<String>::new());
    let stored =
        server.patch(&format!("{FOOS}/a"), json!({"spec": {"color": "red"}})).await.unwrap();
    assert_eq!(stored["spec"], json!({"color": "red", "n": 3, "size": 7}));
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn stored_objects_are_read_by_the_present_schema_and_stay_as_they_are() {
    let server = Server::start().await;
    define(&server, definition("foos", "Foo", spec())).await;
    let foo = json!({"apiVersion": "ex.io/v1", "kind": "Foo", "metadata": {"name": "a"}, "spec": {"color": "red"}});
    let stored = server.create(FOOS, foo).await.unwrap();
    let path = format!("{DEFINITIONS}/foos.ex.io");
    let mut versions = server.get(&path).await.unwrap()["spec"]["versions"].clone();
    versions[0]["schema"]["openAPIV3Schema"]["properties"] = json!({"spec": {"type": "object", "properties": {"size": {"type": "integer", "default": 7}}}});
    let before = server.registry.catalog().generation;
    server.patch(&path, json!({"spec": {"versions": versions}})).await.unwrap();
    server
        .registry
        .catalog_changes()
        .wait_for(|catalog| catalog.generation > before)
        .await
        .unwrap();
    let path = format!("{FOOS}/a");
    let read = server.get(&path).await.unwrap();
    assert_eq!(read["spec"], json!({"size": 7}));
    assert_eq!(read["metadata"]["resourceVersion"], stored["metadata"]["resourceVersion"]);
    let listed = server
        .registry
        .list(&server.request(Verb::List, FOOS), &ListOptions::default())
        .await
        .unwrap();
    let listed: Value = serde_json::from_slice(&listed.items[0].bytes()).unwrap();
    assert_eq!(listed, read);
    // A PUT of the result of a GET is a write: it updates the stored object.
    let written = server.update(&path, read.clone()).await.unwrap();
    assert_ne!(written["metadata"]["resourceVersion"], read["metadata"]["resourceVersion"]);
    assert_eq!(written["spec"], read["spec"]);
    let again = server.update(&path, written.clone()).await.unwrap();
    assert_eq!(again, written);
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn without_a_converter_only_the_stored_version_is_served() {
    let server = Server::start().await;
    let mut many = definition("foos", "Foo", spec());
    let schema = many["spec"]["versions"][0]["schema"].clone();
    many["spec"]["versions"] = json!([
        {"name": "v1", "served": true, "storage": true, "schema": schema},
        {"name": "v2", "served": true, "storage": false, "schema": schema},
    ]);
    many["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
        "clientConfig": {"url": "https://localhost/convert"}, "conversionReviewVersions": ["v1"]}});
    define(&server, many).await;
    let foo =
        json!({"apiVersion": "ex.io/v1", "kind": "Foo", "metadata": {"name": "a"}, "spec": {}});
    server.create(FOOS, foo).await.unwrap();
    assert_eq!(
        refused(server.get("/apis/ex.io/v2/namespaces/default/foos/a").await),
        "500 conversion webhook for ex.io/v1, Kind=Foo failed: this server calls no conversion webhooks"
    );
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn established_definitions_are_served_from_the_start() {
    let server = Server::start().await;
    define(&server, definition("foos", "Foo", spec())).await;
    let store = server.store.clone();
    server.stop().await;
    let server = Server::over(store).await;
    assert!(server.registry.catalog().get("ex.io", "v1", "foos").is_some());
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn invalid_definitions_are_refused() {
    let server = Server::start().await;
    let mut bad = definition("foos", "Foo", spec());
    bad["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["type"] = json!("string");
    assert_eq!(
        refused(server.create(DEFINITIONS, bad).await),
        r#"422 CustomResourceDefinition.apiextensions.k8s.io "foos.ex.io" is invalid: spec.validation.openAPIV3Schema.type: Invalid value: "string": must be object at the root"#
    );
    let mut odd = definition("foos", "Foo", spec());
    let color = &mut odd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        ["properties"]["color"];
    *color = json!({"type": "string", "format": "paint", "readOnly": true});
    server.warnings();
    define(&server, odd).await;
    assert_eq!(
        server.warnings(),
        [
            r#"unknown field "spec.versions[0].schema.openAPIV3Schema.properties.spec.properties.color.readOnly""#,
            r#"unrecognized format "paint""#,
        ]
    );
    assert_eq!(
        refused(
            server
                .patch(&format!("{DEFINITIONS}/foos.ex.io"), json!({"spec": {"scope": "Cluster"}}))
                .await
        ),
        r#"422 CustomResourceDefinition.apiextensions.k8s.io "foos.ex.io" is invalid: spec.scope: Invalid value: "Cluster": field is immutable"#
    );
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn versions_are_served_in_kubernetes_order_and_deprecated_ones_warn() {
    let server = Server::start().await;
    let mut many = definition("foos", "Foo", spec());
    let schema = many["spec"]["versions"][0]["schema"].clone();
    many["spec"]["versions"] = json!([
        {"name": "v1beta1", "served": true, "storage": false, "deprecated": true, "schema": schema},
        {"name": "v1", "served": true, "storage": true, "schema": schema},
        {"name": "v2", "served": true, "storage": false, "schema": schema},
        {"name": "v3", "served": false, "storage": false, "schema": schema},
    ]);
    define(&server, many).await;
    let catalog = server.registry.catalog();
    let versions: Vec<&str> =
        catalog.group("ex.io").unwrap().versions.iter().map(|v| &**v).collect();
    assert_eq!(versions, ["v2", "v1", "v1beta1"]);
    let row = catalog.get("ex.io", "v1beta1", "foos").unwrap();
    assert_eq!(
        row.deprecation.as_deref(),
        Some("ex.io/v1beta1 Foo is deprecated; use ex.io/v2 Foo")
    );
    assert_eq!(&*row.storage_version, "v1");
    let foo = json!({"apiVersion": "ex.io/v2", "kind": "Foo", "metadata": {"name": "a"}, "spec": {"color": "red"}});
    let created = server.create("/apis/ex.io/v2/namespaces/default/foos", foo).await.unwrap();
    assert_eq!(created["apiVersion"], "ex.io/v2");
    assert_eq!(server.get(&format!("{FOOS}/a")).await.unwrap()["apiVersion"], "ex.io/v1");
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn lost_races_and_crowds_end_established_and_end_removed() {
    let server = Server::start().await;
    let names: Vec<String> = (0..20).map(|i| format!("foo{i}s")).collect();
    for name in &names {
        let kind = name.to_uppercase();
        server.create(DEFINITIONS, definition(name, &kind, spec())).await.unwrap();
        // Another client writes before the status is written.
        for turn in 0..3 {
            let path = format!("{DEFINITIONS}/{name}.ex.io");
            let labels = json!({"metadata": {"labels": {"turn": turn.to_string()}}});
            server.patch(&path, labels).await.unwrap();
            tokio::task::yield_now().await;
        }
    }
    for name in &names {
        let path = format!("{DEFINITIONS}/{name}.ex.io");
        let seen = |d: &Value| condition(d, "Established")["status"] == "True";
        let established = eventually(&server, &path, seen).await;
        assert_eq!(established["metadata"]["labels"]["turn"], "2");
        let foo = json!({"apiVersion": "ex.io/v1", "kind": name.to_uppercase(), "metadata": {"name": "a"}, "spec": {}});
        server.create(&format!("/apis/ex.io/v1/namespaces/default/{name}"), foo).await.unwrap();
    }
    for name in &names {
        server.delete(&format!("{DEFINITIONS}/{name}.ex.io")).await.unwrap();
    }
    for name in &names {
        eventually(&server, &format!("{DEFINITIONS}/{name}.ex.io"), Value::is_null).await;
    }
    let mut catalogs = server.registry.catalog_changes();
    catalogs.wait_for(|catalog| catalog.group("ex.io").is_none()).await.unwrap();
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn objects_of_cluster_scope_are_served_and_removed() {
    let server = Server::start().await;
    let mut wide = definition("foos", "Foo", spec());
    wide["spec"]["scope"] = json!("Cluster");
    define(&server, wide).await;
    let foo =
        json!({"apiVersion": "ex.io/v1", "kind": "Foo", "metadata": {"name": "a"}, "spec": {}});
    let stored = server.create("/apis/ex.io/v1/foos", foo).await.unwrap();
    assert_eq!(stored["metadata"].get("namespace"), None);
    let path = format!("{DEFINITIONS}/foos.ex.io");
    server.delete(&path).await.unwrap();
    eventually(&server, &path, Value::is_null).await;
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_removal_of_a_definition_continues_after_a_restart() {
    let server = Server::start().await;
    define(&server, definition("foos", "Foo", spec())).await;
    let foo = json!({"apiVersion": "ex.io/v1", "kind": "Foo", "metadata": {"name": "a", "finalizers": ["ex.io/hold"]}, "spec": {}});
    server.create(FOOS, foo).await.unwrap();
    server.delete(&format!("{DEFINITIONS}/foos.ex.io")).await.unwrap();
    let store = server.store.clone();
    server.stop().await;
    let server = Server::over(store).await;
    server.patch(&format!("{FOOS}/a"), json!({"metadata": {"finalizers": null}})).await.unwrap();
    eventually(&server, &format!("{DEFINITIONS}/foos.ex.io"), Value::is_null).await;
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_version_that_was_stored_stays_until_the_status_forgets_it() {
    let server = Server::start().await;
    let mut established = define(&server, definition("foos", "Foo", spec())).await;
    let path = format!("{DEFINITIONS}/foos.ex.io");
    assert_eq!(established["status"]["storedVersions"], json!(["v1"]));
    let mut newer = established["spec"]["versions"][0].clone();
    newer["name"] = "v2".into();
    established["spec"]["versions"][0]["storage"] = false.into();
    established["spec"]["versions"].as_array_mut().unwrap().push(newer);
    let both = server.update(&path, established).await.unwrap();
    assert_eq!(both["status"]["storedVersions"], json!(["v1", "v2"]));
    let mut without = both.clone();
    without["spec"]["versions"].as_array_mut().unwrap().remove(0);
    let why = refused(server.update(&path, without).await);
    assert!(why.contains("status.storedVersions[0]: Invalid value: \"v1\""), "{why}");
    let mut forgets = both;
    forgets["status"]["storedVersions"] = json!(["v2"]);
    let mut left = server.update(&format!("{path}/status"), forgets).await.unwrap();
    left["spec"]["versions"].as_array_mut().unwrap().remove(0);
    let one = server.update(&path, left).await.unwrap();
    assert_eq!(one["status"]["storedVersions"], json!(["v2"]));
}
