//! A change of a schema is a barrier: what was written under an older one is never served as if the
//! present one had seen it.
use crate::definitions::{DEFINITIONS, define, definition};
use crate::server::Server;
use serde_json::{Map, Value, json};
use setpoint_object::ApiError;
use setpoint_registry::{ListOptions, Verb};
use setpoint_store::{DiskOptions, DiskStore, MemoryStore, Store};
use std::sync::Arc;

const FOOS: &str = "/apis/ex.io/v1/namespaces/default/foos";
/// Changes of the schema.
const GENERATIONS: usize = 12;
/// Objects that are created, and as many that are changed, during each.
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

/// Writes until the definition does not change meanwhile.
async fn written(mut write: impl AsyncFnMut() -> Result<Value, ApiError>) {
    loop {
        match write().await {
            Err(error) if error.code() == 429 => tokio::task::yield_now().await,
            written => {
                written.unwrap();
                return;
            }
        }
    }
}

/// Every object is as the schema of a generation says, listed and read.
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

/// Writers against changes of the schema, and what is served afterwards, live and after a restart.
async fn hammer(store: Arc<dyn Store>) {
    let server = Server::on(store.clone(), Arc::new(MemoryStore::default()), 7).await;
    define(&server, definition("foos", "Foo", properties(0))).await;
    let path = format!("{DEFINITIONS}/foos.ex.io");
    for generation in 1..GENERATIONS {
        let server = &server;
        let writes = (0..OBJECTS).map(|n| async move {
            let name = format!("g{generation}-{n}");
            written(async || server.create(FOOS, foo(&name)).await).await;
            if generation > 1 {
                let name = format!("g{}-{n}", generation - 1);
                let patch = json!({"spec": foo(&name)["spec"], "metadata": {"labels": {"n": n.to_string()}}});
                written(async || server.patch(&format!("{FOOS}/{name}"), patch.clone()).await)
                    .await;
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
async fn an_object_of_an_older_schema_is_marked_and_shown_deleted_as_the_present_one_says() {
    use futures::StreamExt as _;
    let server = Server::start().await;
    define(&server, definition("foos", "Foo", properties(0))).await;
    for (name, finalizers) in [("held", json!(["ex.io/hold"])), ("plain", json!([]))] {
        let mut foo = foo(name);
        foo["metadata"]["finalizers"] = finalizers;
        server.create(FOOS, foo).await.unwrap();
    }
    let mut changed = definition("foos", "Foo", properties(1));
    let versions = changed["spec"]["versions"].take();
    let mut catalogs = server.registry.catalog_changes();
    catalogs.mark_unchanged();
    let path = format!("{DEFINITIONS}/foos.ex.io");
    server.patch(&path, json!({"spec": {"versions": versions}})).await.unwrap();
    catalogs.changed().await.unwrap();
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
