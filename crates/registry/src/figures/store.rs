//! Requests to the store, named like kube-apiserver's requests to etcd.

use super::{Family, Histogram, Labels, NAMES_MAX, Series};
use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::RwLock;
use setpoint_object::keys;
use setpoint_store::{
    At, Committed, Compare, KeyValue, Op, Range, RangeRequest, Snapshot, Store, StoreError, Txn,
    delegate,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use tokio::time::Instant;

/// Buckets, in seconds.
const SECONDS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
    10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
];

/// What a request does, in the order of [`OPERATIONS`].
#[derive(Debug, Clone, Copy)]
enum Operation {
    Get,
    List,
    Create,
    Update,
    Delete,
}

/// The operations, as metrics name them.
const OPERATIONS: [&str; 5] = ["get", "list", "create", "update", "delete"];

/// Counts of requests, by key prefix of the resource. At most [`NAMES_MAX`] prefixes; requests for
/// further ones are not counted until a reader has forgotten those without a resource.
#[derive(Debug, Default)]
pub(crate) struct StoreRequests(RwLock<BTreeMap<Box<str>, Arc<Operations>>>);

/// The requests of one resource, by operation.
type Operations = [OnceLock<Counts>; 5];

/// The requests of one operation.
#[derive(Debug)]
struct Counts {
    took: Histogram,
    n_failed: AtomicU64,
}

impl Counts {
    fn new() -> Self {
        Self { took: Histogram::new(&SECONDS), n_failed: AtomicU64::new(0) }
    }
}

impl StoreRequests {
    fn of(&self, prefix: &str) -> Option<Arc<Operations>> {
        if let Some(counts) = self.0.read().get(prefix) {
            return Some(counts.clone());
        }
        let mut all = self.0.write();
        let has_room = all.len() < NAMES_MAX || all.contains_key(prefix);
        has_room.then(|| all.entry(prefix.into()).or_default().clone())
    }

    /// Counts a request that has begun at `begun`. `key` is a key of its resource.
    fn count<T>(
        &self,
        (operation, key): (Operation, &[u8]),
        begun: Instant,
        outcome: &Result<T, StoreError>,
    ) {
        let Some(counts) = keys::prefix_of(key).and_then(|prefix| self.of(prefix)) else { return };
        let counts = counts[operation as usize].get_or_init(Counts::new);
        counts.took.time(begun.elapsed());
        if outcome.is_err() {
            counts.n_failed.fetch_add(1, Relaxed);
        }
    }

    /// The families. `resource` returns the group and resource of a prefix. Prefixes that have none
    /// are forgotten: those of deleted definitions, and of what has no REST API.
    pub(crate) fn families(
        &self,
        resource: impl Fn(&str) -> Option<(String, String)>,
    ) -> [Family; 3] {
        let (mut took, mut totals, mut failures) = (Vec::new(), Vec::new(), Vec::new());
        self.0.write().retain(|prefix, counts| {
            let Some((group, resource)) = resource(prefix) else { return false };
            for (operation, counts) in OPERATIONS.into_iter().zip(&**counts) {
                let Some(counts) = counts.get() else { continue };
                let labels: Labels = vec![
                    ("operation", operation.to_owned()),
                    ("group", group.clone()),
                    ("resource", resource.clone()),
                ];
                let times = counts.took.times();
                totals.push((labels.clone(), times.count()));
                let n_failed = counts.n_failed.load(Relaxed);
                if n_failed > 0 {
                    failures.push((labels.clone(), n_failed));
                }
                took.push((labels, times));
            }
            true
        });
        [
            Family {
                name: "etcd_request_duration_seconds",
                help: "How long requests to the store took, whatever the store is",
                series: Series::Histograms(took),
            },
            Family {
                name: "etcd_requests_total",
                help: "Requests to the store, whatever the store is",
                series: Series::Counters(totals),
            },
            Family {
                name: "etcd_request_errors_total",
                help: "Failed requests to the store, whatever the store is",
                series: Series::Counters(failures),
            },
        ]
    }
}

/// A store whose reads and commits are counted. Of a commit, the first write counts: it is that of
/// the object. Not counted: `commit_each`, with which a new store gets its first objects, and
/// feeds, which never end.
#[derive(Debug)]
pub(crate) struct MeasuredStore {
    inner: Arc<dyn Store>,
    requests: Arc<StoreRequests>,
}

impl MeasuredStore {
    /// Counts the requests to `inner` in `requests`.
    pub(crate) fn new(inner: Arc<dyn Store>, requests: Arc<StoreRequests>) -> Self {
        Self { inner, requests }
    }
}

/// What a transaction does, and the key of its object. `None`: it writes nothing.
fn written(txn: &Txn) -> Option<(Operation, Bytes)> {
    let op = txn.ops.first()?;
    let is_new =
        || txn.compares.iter().any(|c| matches!(c, Compare::Absent(key) if key == op.key()));
    let operation = match op {
        Op::Delete(_) => Operation::Delete,
        Op::Put(..) if is_new() => Operation::Create,
        Op::Put(..) => Operation::Update,
    };
    Some((operation, op.key().clone()))
}

impl Store for MeasuredStore {
    delegate!(inner: revision, commit_each, changes, compact);
    delegate!(inner: divide, size_bytes, keeps_history, rewrite_due, stored_key);

    fn get<'a>(
        &'a self,
        key: &'a [u8],
        at: At,
    ) -> BoxFuture<'a, Result<Snapshot<Option<KeyValue>>, StoreError>> {
        async move {
            let begun = Instant::now();
            let found = self.inner.get(key, at).await;
            self.requests.count((Operation::Get, key), begun, &found);
            found
        }
        .boxed()
    }

    fn range<'a>(
        &'a self,
        request: RangeRequest,
    ) -> BoxFuture<'a, Result<Snapshot<Range>, StoreError>> {
        async move {
            let (begun, start) = (Instant::now(), request.start.clone());
            let found = self.inner.range(request).await;
            self.requests.count((Operation::List, &start), begun, &found);
            found
        }
        .boxed()
    }

    fn commit(&self, txn: Txn) -> BoxFuture<'_, Result<Committed, StoreError>> {
        async move {
            let (begun, written) = (Instant::now(), written(&txn));
            let committed = self.inner.commit(txn).await;
            if let Some((operation, key)) = written {
                self.requests.count((operation, &key), begun, &committed);
            }
            committed
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use setpoint_store::{MemoryOptions, MemoryStore, Revision};

    fn put(key: &str) -> Op {
        Op::Put(Bytes::from(key.to_owned()), Bytes::from_static(b"{}"))
    }

    fn totals(requests: &StoreRequests) -> Vec<(String, u64)> {
        let resource = |prefix: &str| {
            let words = prefix.strip_prefix("/registry/")?.strip_suffix('/')?;
            (words != "ranges").then(|| (String::new(), words.to_owned()))
        };
        let [_, totals, failures] = requests.families(resource);
        let mut rows = Vec::new();
        for family in [totals, failures] {
            let Series::Counters(series) = family.series else { panic!("no counters") };
            let name = family.name;
            rows.extend(
                series
                    .into_iter()
                    .map(|(labels, n)| (format!("{name} {} {}", labels[0].1, labels[2].1), n)),
            );
        }
        rows
    }

    #[tokio::test(start_paused = true)]
    async fn requests_count_by_operation_and_resource() {
        let requests = Arc::new(StoreRequests::default());
        let store = MeasuredStore::new(
            Arc::new(MemoryStore::new(MemoryOptions::default())),
            requests.clone(),
        );
        let key = Bytes::from_static(b"/registry/configmaps/ns/a");
        let absent = vec![Compare::Absent(key.clone())];
        let ops = vec![put("/registry/configmaps/ns/a"), put("/registry/ranges/serviceips")];
        for _ in 0..2 {
            // The second one is refused, which is an answer.
            let txn = Txn { compares: absent.clone(), ops: ops.clone(), ttl: None };
            store.commit(txn).await.unwrap();
        }
        let txn = Txn { ops: vec![put("/registry/configmaps/ns/a")], ..Txn::default() };
        store.commit(txn).await.unwrap();
        store.get(&key, At::Latest).await.unwrap();
        store.range(RangeRequest::prefix("/registry/configmaps/")).await.unwrap();
        store.get(b"/registry/ranges/serviceips", At::Latest).await.unwrap();
        store.commit(Txn { ops: vec![Op::Delete(key)], ..Txn::default() }).await.unwrap();
        let rows = totals(&requests);
        let rows: Vec<_> = rows.iter().map(|(name, n)| (&**name, *n)).collect();
        assert_eq!(
            rows,
            [
                ("etcd_requests_total get configmaps", 1),
                ("etcd_requests_total list configmaps", 1),
                ("etcd_requests_total create configmaps", 2),
                ("etcd_requests_total update configmaps", 1),
                ("etcd_requests_total delete configmaps", 1),
            ]
        );
        assert_eq!(requests.0.read().len(), 1, "a prefix without a resource is forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_counted_and_names_are_bounded() {
        let requests = Arc::new(StoreRequests::default());
        let store = MeasuredStore::new(
            Arc::new(MemoryStore::new(MemoryOptions::default())),
            requests.clone(),
        );
        for idx in 0..=NAMES_MAX {
            store.get(format!("/registry/r{idx}/a").as_bytes(), At::Latest).await.unwrap();
        }
        assert_eq!(requests.0.read().len(), NAMES_MAX);
        requests.0.write().clear();
        let future = At::Exactly(Revision(1 << 40));
        store.get(b"/registry/pods/ns/a", future).await.unwrap_err();
        let rows = totals(&requests);
        assert!(rows.contains(&("etcd_request_errors_total get pods".to_owned(), 1)), "{rows:?}");
    }
}
