//! An engine without the effects of threads: every call completes immediately, and feeds continue
//! in the order of their calls.

use crate::inline::at_once;
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use setpoint::store::*;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;

/// The engine.
#[derive(Debug, Clone)]
pub(crate) struct AtOnce {
    inner: Arc<dyn Store>,
    moves: Arc<Moves>,
}

#[derive(Debug, Default)]
struct Moves {
    reached: AtomicU64,
    moved: Notify,
}

impl AtOnce {
    pub(crate) fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, moves: Arc::default() }
    }

    /// Records the engine's revision, so that feeds continue.
    fn note(&self, revision: Revision) {
        if self.moves.reached.fetch_max(revision.0, Ordering::Relaxed) < revision.0 {
            self.moves.moved.notify_waiters();
        }
    }
}

impl Store for AtOnce {
    fn revision(&self) -> BoxFuture<'_, Result<Revision, StoreError>> {
        async { at_once(self.inner.revision()).inspect(|revision| self.note(*revision)) }.boxed()
    }

    fn get<'a>(
        &'a self,
        key: &'a [u8],
        at: At,
    ) -> BoxFuture<'a, Result<Snapshot<Option<KeyValue>>, StoreError>> {
        async move { at_once(self.inner.get(key, at)) }.boxed()
    }

    fn range<'a>(
        &'a self,
        request: RangeRequest,
    ) -> BoxFuture<'a, Result<Snapshot<Range>, StoreError>> {
        async move { at_once(self.inner.range(request)) }.boxed()
    }

    fn commit(&self, txn: Txn) -> BoxFuture<'_, Result<Committed, StoreError>> {
        async move {
            let committed = at_once(self.inner.commit(txn));
            if let Ok(Committed::Done(revision)) = &committed {
                self.note(*revision);
            }
            committed
        }
        .boxed()
    }

    fn changes(
        &self,
        prefix: Bytes,
        after: Revision,
    ) -> BoxFuture<'_, Result<Box<dyn ChangeFeed>, StoreError>> {
        async move {
            let feed = at_once(self.inner.changes(prefix, after))?;
            let moves = self.moves.clone();
            Ok(Box::new(AtOnceFeed { feed, moves, reached: after.0 }) as Box<dyn ChangeFeed>)
        }
        .boxed()
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), StoreError>> {
        async move { at_once(self.inner.compact(revision)) }.boxed()
    }
}

struct AtOnceFeed {
    feed: Box<dyn ChangeFeed>,
    moves: Arc<Moves>,
    reached: u64,
}

impl ChangeFeed for AtOnceFeed {
    fn next(&mut self) -> BoxFuture<'_, Result<Batch, StoreError>> {
        async move {
            while self.moves.reached.load(Ordering::Relaxed) <= self.reached {
                let mut moved = pin!(self.moves.moved.notified());
                // From here on a change wakes this call. Nothing changes between the check and this
                // line, because there is one thread.
                moved.as_mut().enable();
                moved.await;
            }
            let batch = at_once(self.feed.next())?;
            self.reached = batch.revision.0;
            Ok(batch)
        }
        .boxed()
    }
}
