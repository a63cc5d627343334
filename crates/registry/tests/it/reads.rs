//! The number of store reads of a write.
use crate::server::Server;
use futures::future::{BoxFuture, FutureExt};
use serde_json::json;
use setpoint_store::{
    At, Committed, KeyValue, MemoryStore, Range, RangeRequest, Snapshot, Store, StoreError, Txn,
    delegate,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A store that counts reads of single keys and of ranges.
#[derive(Debug)]
struct CountedStore {
    inner: Arc<MemoryStore>,
    n_reads: Arc<AtomicUsize>,
}
impl CountedStore {
    fn count(&self) {
        self.n_reads.fetch_add(1, Ordering::Relaxed);
    }
}
impl Store for CountedStore {
    delegate!(inner: revision, changes, compact);

    fn get<'a>(
        &'a self,
        key: &'a [u8],
        at: At,
    ) -> BoxFuture<'a, Result<Snapshot<Option<KeyValue>>, StoreError>> {
        self.count();
        self.inner.get(key, at)
    }
    fn range<'a>(
        &'a self,
        request: RangeRequest,
    ) -> BoxFuture<'a, Result<Snapshot<Range>, StoreError>> {
        self.count();
        self.inner.range(request)
    }
    fn commit(&self, txn: Txn) -> BoxFuture<'_, Result<Committed, StoreError>> {
        async move {
            let committed = self.inner.commit(txn).await;
            // The cache has followed the store, as it has between the requests of most clients.
            tokio::time::sleep(Duration::from_millis(1)).await;
            committed
        }
        .boxed()
    }
}

/// A server, and the number of reads of its store since the last call.
async fn counted() -> (Server, impl Fn() -> usize) {
    let n_reads = Arc::new(AtomicUsize::new(0));
    let inner = Arc::new(MemoryStore::default());
    let store = Arc::new(CountedStore { inner: inner.clone(), n_reads: n_reads.clone() });
    (Server::on(store, inner, 1).await, move || n_reads.swap(0, Ordering::Relaxed))
}

#[tokio::test(start_paused = true)]
async fn a_write_reads_the_store_once_at_most() {
    const MAP: &str = "/api/v1/namespaces/default/configmaps/a";
    let (server, reads) = counted().await;
    let map = |n: u64| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"n": n.to_string()}});
    reads();
    server.create("/api/v1/namespaces/default/configmaps", map(0)).await.unwrap();
    assert_eq!(reads(), 0, "create: its namespace is compared in the commit");
    server.update(MAP, map(1)).await.unwrap();
    assert_eq!(reads(), 0, "update");
    server.patch(MAP, json!({"data": {"n": "2"}})).await.unwrap();
    assert_eq!(reads(), 0, "patch");
    let unchanged = server.patch(MAP, json!({"data": {"n": "2"}})).await.unwrap();
    assert_eq!((reads(), &unchanged["data"]["n"]), (1, &"2".into()), "patch that changes nothing");
    let pod =
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    server.create("/api/v1/namespaces/default/pods", pod).await.unwrap();
    reads();
    let status = json!({"status": {"phase": "Running"}});
    server.patch("/api/v1/namespaces/default/pods/p/status", status).await.unwrap();
    assert_eq!(reads(), 0, "status");
    server.delete(MAP).await.unwrap();
    assert_eq!(reads(), 1, "delete");
}

/// An hour of a control plane that nobody uses reads nothing, and objects that are removed come
/// back all the same.
#[tokio::test(start_paused = true)]
async fn an_idle_registry_does_not_read_its_store() {
    const SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
    let (server, reads) = counted().await;
    reads();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(reads(), 0);
    server.delete(&format!("{SCHEMAS}/probes")).await.unwrap();
    reads();
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(reads(), 13, "each of its resource, and none of others");
    assert!(server.get(&format!("{SCHEMAS}/probes")).await.is_ok());
}

/// The watch cache is one write behind: nothing is lost, and a write that the newest state allows
/// is not refused.
#[tokio::test(start_paused = true)]
async fn a_write_from_an_outdated_cache_equals_one_from_the_store() {
    const MAP: &str = "/api/v1/namespaces/default/configmaps/a";
    let first = Server::start().await;
    let slow = first.slow(3).await;
    let map = json!({"metadata": {"name": "a"}, "data": {"first": "0", "second": "0"}});
    first.create("/api/v1/namespaces/default/configmaps", map).await.unwrap();
    for n in 1..50 {
        let now = first.patch(MAP, json!({"data": {"first": n.to_string()}})).await.unwrap();
        let now = now["metadata"]["resourceVersion"].clone();
        let patch =
            json!({"metadata": {"resourceVersion": now}, "data": {"second": n.to_string()}});
        let patched = slow.patch(MAP, patch).await.unwrap();
        assert_eq!(patched["data"], json!({"first": n.to_string(), "second": n.to_string()}));
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletecollection_waits_for_many_commits_at_once() {
    const MAPS: &str = "/api/v1/namespaces/default/configmaps";
    let (server, _) = counted().await;
    for i in 0..64 {
        let map = json!({"metadata": {"name": format!("c{i}")}});
        server.create(MAPS, map).await.unwrap();
    }
    let started = tokio::time::Instant::now();
    assert_eq!(server.delete_collection(MAPS).await.unwrap(), 64);
    // A commit takes a millisecond of virtual time, and 32 are in progress.
    assert_eq!(started.elapsed(), Duration::from_millis(2));
    server.stop().await;
}
