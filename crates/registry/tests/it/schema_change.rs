//! A change of a schema is a barrier: an object written under an older schema is never served as if
//! it were written under the present one.
use crate::definitions::{DEFINITIONS, define, definition};
use crate::server::{Server, refused};
use serde_json::{Map, Value, json};
use setpoint_object::Reason;
use setpoint_registry::{
    Body, Catalog, DeleteOptions, Deleted, Format, ListOptions, PatchType, Verb, WriteOptions,
    Written,
};
use setpoint_store::{DiskOptions, DiskStore, MemoryStore, Op, Store, Txn};
use std::sync::Arc;

const FOOS: &str = "/apis/ex.io/v1/namespaces/default/foos";
/// Changes of the schema.
const GENERATIONS: usize = 12;
/// Objects that are created, and as many that are changed, during each change.
const OBJECTS: usize = 24;

/// The schema of a generation: one field of its own, with a default.
fn properties(generation: usize) -> Value {
    let mut fields = Map::new();
    fields.insert(format!("f{generation}"), json!({"type": "integer", "default": generation}));
    json!({"spec": {"type": "object", "properties": fields}})
}
/// An object with the fields of every generation.
fn foo(name: &str) -> Value {
    let fields: Map<String, Value> =
        (0..GENERATIONS).map(|generation| (format!("f{generation}"), json!(100))).collect();
    json!({"apiVersion": "ex.io/v1", "kind": "Foo", "metadata": {"name": name}, "spec": fields})
}

/// Checks that every object matches the schema of a generation, in lists and gets. Returns their
/// number.
async fn check(server: &Server, generation: usize) -> usize {
    let name = format!("f{generation}");
    let options = ListOptions::default();
    let list = server.registry.list(&server.request(Verb::List, FOOS), &options).await.unwrap();
    for item in &list.items {
        let object: Value = serde_json::from_slice(&item.bytes()).unwrap();
        let path = format!("{FOOS}/{}", object["metadata"]["name"].as_str().unwrap());
        assert_eq!(server.get(&path).await.unwrap(), object);
        let spec = object["spec"].as_object().unwrap();
        assert_eq!(spec.keys().collect::<Vec<_>>(), [&name], "{object}");
        let value = &spec[&name];
        assert!(*value == 100 || *value == generation, "{object}");
    }
    list.items.len()
}

/// Writers race with changes of the schema. Then checks the served objects, live and after a
/// restart.
async fn hammer(store: Arc<dyn Store>) {
    let server = Server::on(store.clone(), Arc::new(MemoryStore::default()), 7).await;
    define(&server, definition("foos", "Foo", properties(0))).await;
    let path = format!("{DEFINITIONS}/foos.ex.io");
    for generation in 1..GENERATIONS {
        let server = &server;
        let writes = (0..OBJECTS).map(|n| async move {
            let name = format!("g{generation}-{n}");
            server.create(FOOS, foo(&name)).await.unwrap();
            if generation > 1 {
                let name = format!("g{}-{n}", generation - 1);
                let patch = json!({"spec": foo(&name)["spec"], "metadata": {"labels": {"n": n.to_string()}}});
                server.patch(&format!("{FOOS}/{name}"), patch).await.unwrap();
            }
        });
        let change = async {
            for _ in 0..generation {
                tokio::task::yield_now().await;
            }
            let mut changed = definition("foos", "Foo", properties(generation));
            let versions = changed["spec"]["versions"].take();
            server.patch(&path, json!({"spec": {"versions": versions}})).await.unwrap();
            let mut catalogs = server.registry.catalog_changes();
            let name = format!("f{generation}");
            let is_served = |catalog: &Arc<setpoint_registry::Catalog>| {
                catalog.get("ex.io", "v1", "foos").is_some_and(|row| {
                    let spec = row.schema.view().property("spec");
                    spec.is_some_and(|spec| spec.property(&name).is_some())
                })
            };
            catalogs.wait_for(is_served).await.unwrap();
        };
        futures::future::join(futures::future::join_all(writes), change).await;
        assert_eq!(check(server, generation).await, generation * OBJECTS);
    }
    server.stop().await;
    let server = Server::on(store, Arc::new(MemoryStore::default()), 8).await;
    assert_eq!(check(&server, GENERATIONS - 1).await, (GENERATIONS - 1) * OBJECTS);
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_written_under_an_older_schema_is_served_as_new_from_memory() {
    for seed in 0..4 {
        let store = crate::slow::SlowStore::new(MemoryStore::default(), seed);
        hammer(Arc::new(store)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_written_under_an_older_schema_is_served_as_new_from_disk() {
    let folder = tempfile::tempdir().unwrap();
    let store = DiskStore::open(folder.path(), DiskOptions::default()).unwrap();
    hammer(Arc::new(store)).await;
}

#[tokio::test(start_paused = true)]
async fn an_object_of_an_older_schema_is_marked_and_deleted_under_the_present_one() {
    use futures::StreamExt as _;
    let server = Server::start().await;
    define(&server, definition("foos", "Foo", properties(0))).await;
    for (name, finalizers) in [("held", json!(["ex.io/hold"])), ("plain", json!([]))] {
        let mut foo = foo(name);
        foo["metadata"]["finalizers"] = finalizers;
        server.create(FOOS, foo).await.unwrap();
    }
    change_schema(&server, 1).await;
    let request = server.request(Verb::Watch, FOOS);
    let options = ListOptions::default();
    let mut stream = server.registry.watch(&request, &options).await.unwrap();
    let mut next = async || {
        let event = stream.next().await.unwrap().unwrap();
        let object: Value = serde_json::from_slice(&event.object()).unwrap();
        (event.kind.as_str(), object["spec"].clone())
    };
    let now = json!({"f1": 1});
    assert_eq!([next().await, next().await], [("ADDED", now.clone()), ("ADDED", now.clone())]);
    server.delete(&format!("{FOOS}/plain")).await.unwrap();
    assert_eq!(next().await, ("DELETED", now.clone()));
    let marked = server.delete(&format!("{FOOS}/held")).await.unwrap().unwrap();
    assert_eq!(marked["spec"], now);
    assert_eq!(next().await, ("MODIFIED", now.clone()));
    assert_eq!(server.get(&format!("{FOOS}/held")).await.unwrap()["spec"], now);
    server.stop().await;
}

/// Sets the schema of a generation, and waits until it is served.
async fn change_schema(server: &Server, generation: usize) {
    let mut changed = definition("foos", "Foo", properties(generation));
    let versions = changed["spec"]["versions"].take();
    let mut catalogs = server.registry.catalog_changes();
    catalogs.mark_unchanged();
    let path = format!("{DEFINITIONS}/foos.ex.io");
    server.patch(&path, json!({"spec": {"versions": versions}})).await.unwrap();
    catalogs.changed().await.unwrap();
}
fn body(object: &Value) -> Body {
    Body { bytes: object.to_string().into(), format: Format::Json }
}
fn spec_of(written: &Written) -> Value {
    serde_json::from_slice::<Value>(&written.object.bytes).unwrap()["spec"].clone()
}

#[tokio::test(start_paused = true)]
async fn a_write_with_an_outdated_row_is_retried_with_the_present_one() {
    let server = Server::start().await;
    define(&server, definition("foos", "Foo", properties(0))).await;
    for name in ["put", "patched", "applied"] {
        server.create(FOOS, foo(name)).await.unwrap();
    }
    let mut held = foo("held");
    held["metadata"]["finalizers"] = json!(["ex.io/hold"]);
    server.create(FOOS, held).await.unwrap();
    let path = |name: &str| format!("{FOOS}/{name}");
    let create = server.request(Verb::Create, FOOS);
    let update = server.request(Verb::Update, &path("put"));
    let patch = server.request(Verb::Patch, &path("patched"));
    let apply = server.request(Verb::Patch, &path("applied"));
    let delete = server.request(Verb::Delete, &path("held"));
    let collection = server.request(Verb::DeleteCollection, FOOS);
    change_schema(&server, 1).await;

    let options = WriteOptions { field_manager: "alice".to_owned(), ..WriteOptions::default() };
    let force = WriteOptions { force: Some(true), ..options.clone() };
    let registry = &server.registry;
    let now = json!({"f1": 100});
    let created = registry.create(&create, body(&foo("new")), &options).await.unwrap();
    assert_eq!(spec_of(&created), now);
    // Warnings follow the present schema, not the older one.
    let unknown = (0..GENERATIONS).filter(|n| *n != 1);
    let mut unknown: Vec<String> =
        unknown.map(|n| format!("unknown field \"spec.f{n}\"")).collect();
    unknown.sort_unstable();
    let mut warnings = create.warnings();
    warnings.sort_unstable();
    assert_eq!(warnings, unknown);
    let mut whole = foo("put");
    let version = server.get(&path("put")).await.unwrap()["metadata"]["resourceVersion"].take();
    whole["metadata"]["resourceVersion"] = version;
    whole["metadata"]["labels"] = json!({"n": "1"});
    let put = registry.update(&update, body(&whole), &options).await.unwrap();
    assert_eq!(spec_of(&put), now);
    let merge = body(&json!({"spec": {"f0": 7, "f1": 100}}));
    let patched = registry.patch(&patch, PatchType::Merge, merge, &options).await.unwrap();
    assert_eq!(spec_of(&patched), now);
    let config = json!({"apiVersion": "ex.io/v1", "kind": "Foo", "metadata": {"name": "applied", "labels": {"n": "1"}}});
    let applied = registry.patch(&apply, PatchType::Apply, body(&config), &force).await.unwrap();
    assert_eq!(spec_of(&applied), json!({"f1": 1}));
    let deleted = registry.delete(&delete, &DeleteOptions::default()).await.unwrap();
    assert!(matches!(deleted, Deleted::Object { remains: true, .. }));
    let all = (ListOptions::default(), DeleteOptions::default());
    let deleted = registry.delete_collection(&collection, &all.0, &all.1).await.unwrap();
    assert_eq!(deleted.items.len(), 5);
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_resource_is_no_longer_served_is_a_404() {
    let server = Server::start().await;
    define(&server, definition("foos", "Foo", properties(0))).await;
    let create = server.request(Verb::Create, FOOS);
    server.delete(&format!("{DEFINITIONS}/foos.ex.io")).await.unwrap();
    let mut catalogs = server.registry.catalog_changes();
    let is_gone = |catalog: &Arc<Catalog>| catalog.get("ex.io", "v1", "foos").is_none();
    catalogs.wait_for(is_gone).await.unwrap();
    let options = WriteOptions::default();
    let refused = server.registry.create(&create, body(&foo("late")), &options).await;
    assert_eq!(refused.unwrap_err().code(), 404);
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_write_is_refused_if_no_row_follows_a_moved_fence_in_time() {
    let server = Server::start().await;
    define(&server, definition("foos", "Foo", properties(0))).await;
    server.create(FOOS, foo("old")).await.unwrap();
    // Another server has served a definition that this one never sees.
    let revision = server.revision().await + 1;
    let state =
        json!({"uid": "another", "generation": 9, "terminating": false, "definition": revision});
    let key = "/registry/apiextensions.k8s.io/schema.fences/foos.ex.io";
    let op = Op::Put(key.into(), state.to_string().into());
    server.store.commit(Txn { ops: vec![op], ..Txn::default() }).await.unwrap();
    let revision = server.revision().await;
    for refused in [
        server.create(FOOS, foo("new")).await,
        server.patch(&format!("{FOOS}/old"), json!({"spec": {"f0": 1}})).await,
    ] {
        let refused = refused.unwrap_err();
        assert_eq!((refused.code(), refused.reason()), (429, Reason::TooManyRequests));
    }
    assert_eq!(server.revision().await, revision);
    server.stop().await;
}

/// Gives `foos` a spec with these properties, and waits until it is served.
async fn respecify(server: &Server, spec: Value) {
    let mut changed = definition("foos", "Foo", json!({"spec": spec}));
    let versions = changed["spec"]["versions"].take();
    let mut catalogs = server.registry.catalog_changes();
    catalogs.mark_unchanged();
    let path = format!("{DEFINITIONS}/foos.ex.io");
    server.patch(&path, json!({"spec": {"versions": versions}})).await.unwrap();
    catalogs.changed().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_object_with_a_value_of_another_type_than_its_schema_has_no_owners_and_takes_no_apply() {
    let server = Server::start().await;
    let spec = |x: &str, y: &str| json!({"type": "object", "properties": {"x": {"type": x}, "y": {"type": y}}});
    let first = json!({"spec": spec("string", "string")});
    define(&server, definition("foos", "Foo", first)).await;
    let head = json!({"apiVersion": "ex.io/v1", "kind": "Foo", "metadata": {"name": "a"}});
    let with = |spec: Value| {
        let mut object = head.clone();
        object["spec"] = spec;
        object
    };
    let path = &format!("{FOOS}/a");
    server.create(FOOS, with(json!({"x": "a", "y": "b"}))).await.unwrap();
    respecify(&server, spec("integer", "string")).await;
    assert_eq!(
        refused(server.apply(path, "ann", with(json!({"y": "c"}))).await),
        "500 failed to create typed live object (default/a; ex.io/v1, Kind=Foo): .spec.x: expected numeric (int or float), got string"
    );
    // What stays is not held to the schema.
    let updated = server.patch(path, json!({"spec": {"y": "c"}})).await.unwrap();
    assert_eq!(updated["spec"], json!({"x": "a", "y": "c"}));
    assert_eq!(updated["metadata"].get("managedFields"), None);
    assert_eq!(
        refused(server.apply(path, "ann", with(json!({"y": "d"}))).await),
        "500 failed to create manager for existing fields: failed to convert new object (default/a; ex.io/v1, Kind=Foo) to smd typed: .spec.x: expected numeric (int or float), got string"
    );
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_apply_that_changes_nothing_fills_nothing_in_and_is_not_held_to_the_schema() {
    let server = Server::start().await;
    let x = json!({"type": "object", "properties": {"x": {"type": "string"}}});
    define(&server, definition("foos", "Foo", json!({"spec": x}))).await;
    let foo = json!({"apiVersion": "ex.io/v1", "kind": "Foo", "metadata": {"name": "a"},
        "spec": {"x": "a"}});
    let path = &format!("{FOOS}/a");
    server.create(FOOS, foo.clone()).await.unwrap();
    let mut needs = x.clone();
    needs["required"] = json!(["y"]);
    respecify(&server, needs).await;
    let applied = server.apply(path, "ann", foo.clone()).await.unwrap();
    assert_eq!(applied["metadata"]["generation"], 1);
    let mut changed = foo;
    changed["spec"]["x"] = "b".into();
    let options = WriteOptions {
        field_manager: "ann".to_owned(),
        force: Some(true),
        ..WriteOptions::default()
    };
    let forced = server.patch_with(path, PatchType::Apply, changed, &options).await;
    assert_eq!(refused(forced), "422 Foo.ex.io \"a\" is invalid: spec.y: Required value");
    server.stop().await;
}
