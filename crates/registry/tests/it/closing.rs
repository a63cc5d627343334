//! A terminating namespace and a terminating definition accept no new objects, whatever is in
//! progress when the delete comes; on every engine.
use crate::definitions::definition;
use crate::slow::SlowStore;
use bytes::Bytes;
use serde_json::{Value, json};
use setpoint_object::time::{Clock, Timestamp};
use setpoint_registry::{
    Attributes, Body, Catalog, DeleteOptions, Format, ListOptions, Registry, Target, Verb,
    WriteOptions,
};
use setpoint_store::{
    Change, DiskOptions, DiskStore, MemoryStore, Op, RangeRequest, Revision, Store, Txn,
};
use setpoint_store_etcd::testing::{Cluster, available};
use setpoint_store_etcd::{EtcdOptions, EtcdStore};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

const CREATES: usize = 12;
/// The key of the definition.
const DEFINITION: &str = "/registry/apiextensions.k8s.io/customresourcedefinitions/foos.ex.io";

/// The definition, whole.
fn foos() -> Value {
    let mut foos = definition("foos", "Foo", json!({}));
    foos["apiVersion"] = "apiextensions.k8s.io/v1".into();
    foos["kind"] = "CustomResourceDefinition".into();
    foos
}

/// Waits until the definition was removed from a store.
async fn wait_until_gone(store: &dyn Store) {
    let mut feed = store.changes(DEFINITION.into(), Revision(1)).await.unwrap();
    let is_gone = |change: &Change| change.value.is_none();
    while !feed.next().await.unwrap().changes.iter().any(is_gone) {}
}

/// Creates ConfigMaps in a namespace while it is deleted. Returns how many were created, and how
/// many were refused because the namespace is terminating.
async fn race(store: impl Store + 'static, seed: u64) -> (usize, usize) {
    let store = Arc::new(SlowStore::new(store, seed));
    let clock = Clock::starting_at(Timestamp::from_secs(1_795_158_000));
    let (registry, worker) = Registry::builder(store, clock).seed(seed).build();
    let stop = CancellationToken::new();
    let acting = async {
        registry.wait_ready().await;
        let (namespaces, config_maps) =
            (row(&registry, "namespaces"), row(&registry, "configmaps"));
        let options = WriteOptions::default();
        let request = |verb, target| Attributes::loopback(verb, target);
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
        let create = request(Verb::Create, Target::new(namespaces.clone(), "", ""));
        registry.create(&create, body(&namespace), &options).await.unwrap();
        let creating = async {
            let (mut n_created, mut n_refused) = (0, 0);
            for i in 0..CREATES {
                let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("c{i}")}});
                let create = request(Verb::Create, Target::new(config_maps.clone(), "n", ""));
                match registry.create(&create, body(&object), &options).await {
                    Ok(_) => n_created += 1,
                    Err(error) => {
                        assert!(
                            error.0.message.contains("because it is being terminated"),
                            "{error}"
                        );
                        n_refused += 1;
                    }
                }
            }
            (n_created, n_refused)
        };
        let deleting = async {
            for _ in 0..seed * 3 {
                tokio::task::yield_now().await;
            }
            let delete = request(Verb::Delete, Target::new(namespaces.clone(), "", "n"));
            registry.delete(&delete, &DeleteOptions::default()).await.unwrap();
        };
        let (counts, ()) = tokio::join!(creating, deleting);
        let get = request(Verb::Get, Target::new(namespaces.clone(), "", "n"));
        let deleted_at = version(&registry.get(&get, "").await.unwrap().bytes);
        let list = request(Verb::List, Target::new(config_maps, "n", ""));
        let list = registry.list(&list, &ListOptions::default()).await.unwrap();
        assert_eq!(list.items.len(), counts.0);
        for item in &list.items {
            let created_at = version(&item.bytes());
            assert!(created_at < deleted_at, "seed {seed}: created at {created_at}, {deleted_at}");
        }
        stop.cancel();
        counts
    };
    let (ended, counts) = tokio::join!(worker.run(stop.clone()), acting);
    ended.unwrap();
    counts
}

/// Creates objects of a definition while it is deleted, and asserts that none is left when it is
/// gone. Returns how many were created, and how many were refused.
async fn race_of_definition(store: impl Store + 'static, seed: u64) -> (usize, usize) {
    let store = Arc::new(SlowStore::new(store, seed));
    let clock = Clock::starting_at(Timestamp::from_secs(1_795_158_000));
    let (registry, worker) = Registry::builder(store.clone(), clock).seed(seed).build();
    let stop = CancellationToken::new();
    let acting = async {
        registry.wait_ready().await;
        let catalog = registry.catalog();
        let definitions =
            catalog.get("apiextensions.k8s.io", "v1", "customresourcedefinitions").unwrap();
        let request = |verb, target| Attributes::loopback(verb, target);
        let create = request(Verb::Create, Target::new(definitions.clone(), "", ""));
        let options = WriteOptions::default();
        registry.create(&create, body(&foos()), &options).await.unwrap();
        let mut catalogs = registry.catalog_changes();
        let is_served = |catalog: &Arc<Catalog>| catalog.get("ex.io", "v1", "foos").is_some();
        catalogs.wait_for(is_served).await.unwrap();
        let foos = registry.catalog().get("ex.io", "v1", "foos").unwrap().clone();
        let creating = async {
            let (mut n_created, mut n_refused) = (0, 0);
            for i in 0..CREATES {
                let name = format!("f{i}");
                let object =
                    json!({"apiVersion": "ex.io/v1", "kind": "Foo", "metadata": {"name": name}});
                let create = request(Verb::Create, Target::new(foos.clone(), "default", ""));
                match registry.create(&create, body(&object), &options).await {
                    Ok(_) => n_created += 1,
                    Err(error) => {
                        assert!(matches!(error.0.code, Some(403 | 404)), "{error}");
                        n_refused += 1;
                    }
                }
            }
            (n_created, n_refused)
        };
        let deleting = async {
            for _ in 0..seed * 2 {
                tokio::task::yield_now().await;
            }
            let target = Target::new(definitions.clone(), "", "foos.ex.io");
            let delete = request(Verb::Delete, target);
            registry.delete(&delete, &DeleteOptions::default()).await.unwrap();
            wait_until_gone(&*store).await;
        };
        let (counts, ()) = tokio::join!(creating, deleting);
        let left = store.range(RangeRequest::prefix("/registry/ex.io/")).await.unwrap();
        assert!(left.value.entries.is_empty(), "seed {seed}: {:?}", left.value.entries);
        stop.cancel();
        counts
    };
    let (ended, counts) = tokio::join!(worker.run(stop.clone()), acting);
    ended.unwrap();
    counts
}

fn row(registry: &Registry, resource: &str) -> Arc<setpoint_registry::Resource> {
    registry.catalog().get("", "v1", resource).unwrap().clone()
}
fn body(object: &Value) -> Body {
    Body { bytes: Bytes::from(object.to_string()), format: Format::Json }
}
fn version(object: &[u8]) -> u64 {
    let object: Value = serde_json::from_slice(object).unwrap();
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn nothing_is_created_after_the_delete_of_its_namespace() {
    for_seeds_in_memory(race).await;
}

#[tokio::test]
async fn nothing_is_created_after_the_delete_of_its_namespace_on_disk() {
    for_seeds_on_disk(race).await;
}

#[tokio::test]
async fn nothing_is_created_after_the_delete_of_its_namespace_on_etcd() {
    for_seeds_on_etcd(race).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_left_of_a_deleted_definition() {
    for_seeds_in_memory(race_of_definition).await;
}

#[tokio::test]
async fn nothing_is_left_of_a_deleted_definition_on_disk() {
    for_seeds_on_disk(race_of_definition).await;
}

#[tokio::test]
async fn nothing_is_left_of_a_deleted_definition_on_etcd() {
    for_seeds_on_etcd(race_of_definition).await;
}

/// Runs a race in memory with many seeds: creates are accepted in some, and refused in others.
async fn for_seeds_in_memory(race: impl AsyncFn(MemoryStore, u64) -> (usize, usize)) {
    let (mut n_created, mut n_refused) = (0, 0);
    for seed in 0..60 {
        let counts = race(MemoryStore::default(), seed).await;
        n_created += counts.0;
        n_refused += counts.1;
    }
    assert!(n_created > 50 && n_refused > 50, "both happen: {n_created}, {n_refused}");
}

/// Runs a race on disk with a few seeds.
async fn for_seeds_on_disk(race: impl AsyncFn(DiskStore, u64) -> (usize, usize)) {
    for seed in 0..6 {
        let folder = tempfile::tempdir().unwrap();
        let store = DiskStore::open(folder.path().join("data"), DiskOptions::default()).unwrap();
        race(store, seed * 4).await;
    }
}

/// Runs a race on etcd with a few seeds, each with a cluster's keys to itself.
async fn for_seeds_on_etcd(race: impl AsyncFn(EtcdStore, u64) -> (usize, usize)) {
    if !available() {
        return;
    }
    let cluster = Cluster::start(1).await;
    for seed in 0..6 {
        let mut options = EtcdOptions::new(cluster.endpoints());
        options.namespace = format!("/{seed}").into();
        race(EtcdStore::connect(options).await.unwrap(), seed * 4).await;
    }
}

#[tokio::test(start_paused = true)]
async fn objects_that_came_before_the_first_status_go_with_their_definition() {
    let store = Arc::new(MemoryStore::default());
    let mut foos = foos();
    foos["metadata"]["uid"] = "u".into();
    foos["metadata"]["creationTimestamp"] = "2026-11-20T07:00:00Z".into();
    foos["metadata"]["deletionTimestamp"] = "2026-11-20T07:00:00Z".into();
    foos["metadata"]["finalizers"] = json!(["customresourcecleanup.apiextensions.k8s.io"]);
    let foo = json!({
        "apiVersion": "ex.io/v1", "kind": "Foo",
        "metadata": {"name": "a", "namespace": "default", "uid": "a"},
    });
    let ops = [(DEFINITION, foos), ("/registry/ex.io/foos/default/a", foo)];
    let ops = ops.map(|(key, object)| Op::Put(key.into(), object.to_string().into()));
    store.commit(Txn { ops: ops.into(), ..Txn::default() }).await.unwrap();
    let clock = Clock::starting_at(Timestamp::from_secs(1_795_158_000));
    let (registry, worker) = Registry::builder(store.clone(), clock).seed(1).build();
    let stop = CancellationToken::new();
    let acting = async {
        registry.wait_ready().await;
        wait_until_gone(&*store).await;
        let left = store.range(RangeRequest::prefix("/registry/ex.io/")).await.unwrap();
        assert!(left.value.entries.is_empty(), "{:?}", left.value.entries);
        stop.cancel();
    };
    let (ended, ()) = tokio::join!(worker.run(stop.clone()), acting);
    ended.unwrap();
}
