//! A store whose answers take a few turns of the runtime, so that other tasks run in the middle of
//! a request.
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use setpoint_store::{
    At, ChangeFeed, Committed, KeyValue, Range, RangeRequest, Revision, Snapshot, Store,
    StoreError, Txn,
};

/// Maximum number of yields before a call, and after it.
const TURNS_MAX: usize = 4;

#[derive(Debug)]
pub(crate) struct SlowStore<S> {
    pub(crate) inner: S,
    rng: Mutex<SmallRng>,
    /// The start keys of the ranges that were read.
    pub(crate) ranges: Mutex<Vec<Bytes>>,
}
impl<S> SlowStore<S> {
    pub(crate) fn new(inner: S, seed: u64) -> Self {
        Self { inner, rng: Mutex::new(SmallRng::seed_from_u64(seed)), ranges: Mutex::default() }
    }
    async fn turns(&self) {
        let n = self.rng.lock().random_range(0..=TURNS_MAX);
        for _ in 0..n {
            tokio::task::yield_now().await;
        }
    }
    async fn slowly<T>(&self, call: impl Future<Output = T>) -> T {
        self.turns().await;
        let answer = call.await;
        self.turns().await;
        answer
    }
}
impl<S: Store> Store for SlowStore<S> {
    fn revision(&self) -> BoxFuture<'_, Result<Revision, StoreError>> {
        self.slowly(self.inner.revision()).boxed()
    }
    fn get<'a>(
        &'a self,
        key: &'a [u8],
        at: At,
    ) -> BoxFuture<'a, Result<Snapshot<Option<KeyValue>>, StoreError>> {
        self.slowly(async move { self.inner.get(key, at).await }).boxed()
    }
    fn range<'a>(
        &'a self,
        request: RangeRequest,
    ) -> BoxFuture<'a, Result<Snapshot<Range>, StoreError>> {
        self.ranges.lock().push(request.start.clone());
        self.slowly(async move { self.inner.range(request).await }).boxed()
    }
    fn commit(&self, txn: Txn) -> BoxFuture<'_, Result<Committed, StoreError>> {
        self.slowly(self.inner.commit(txn)).boxed()
    }
    fn changes(
        &self,
        prefix: Bytes,
        after: Revision,
    ) -> BoxFuture<'_, Result<Box<dyn ChangeFeed>, StoreError>> {
        self.slowly(self.inner.changes(prefix, after)).boxed()
    }
    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), StoreError>> {
        self.slowly(self.inner.compact(revision)).boxed()
    }
}
