//! A store that sometimes breaks one promise, which the histories must detect.

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use setpoint::store::*;
use std::sync::{Arc, Mutex};

/// The broken promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Break {
    /// A get of the newest state returns an older one.
    StaleGet,
    /// A commit is applied although its compare fails.
    BlindCommit,
    /// A commit is acknowledged but not applied.
    LostCommit,
    /// A range returns some keys in an older state.
    MixedRange,
    /// A feed reports progress before it delivers the changes up to there.
    EarlyProgress,
    /// A change is never delivered.
    SkippedChange,
    /// A commit that was reported as not applied was applied.
    FalseRefusal,
}

/// The store.
#[derive(Debug)]
pub(crate) struct Broken {
    inner: Arc<dyn Store>,
    how: Break,
    rng: Mutex<SmallRng>,
}

/// Probability of a break.
const CHANCE: f64 = 0.1;

impl Broken {
    pub(crate) fn new(inner: Arc<dyn Store>, how: Break, seed: u64) -> Self {
        Self { inner, how, rng: Mutex::new(SmallRng::seed_from_u64(seed)) }
    }

    fn breaks(&self, how: Break) -> bool {
        self.how == how && self.rng.lock().unwrap().random_bool(CHANCE)
    }
}

/// Only the clients' objects, because a server must be able to start.
fn is_of_clients(key: &[u8]) -> bool {
    key.starts_with(b"/registry/configmaps/")
}

impl Store for Broken {
    setpoint::store::delegate!(inner: revision, compact);

    fn get<'a>(
        &'a self,
        key: &'a [u8],
        at: At,
    ) -> BoxFuture<'a, Result<Snapshot<Option<KeyValue>>, StoreError>> {
        async move {
            let found = self.inner.get(key, at).await?;
            if is_of_clients(key) && self.breaks(Break::StaleGet) {
                let before = Revision(found.revision.0 - 4);
                return self.inner.get(key, At::Exactly(before)).await;
            }
            Ok(found)
        }
        .boxed()
    }

    fn range<'a>(
        &'a self,
        request: RangeRequest,
    ) -> BoxFuture<'a, Result<Snapshot<Range>, StoreError>> {
        async move {
            let mut found = self.inner.range(request.clone()).await?;
            // Pages of lists are read from the store.
            if is_of_clients(&request.start) && self.how == Break::MixedRange {
                for entry in &mut found.value.entries {
                    let before = At::Exactly(Revision(entry.modified.0 - 1));
                    let before = self.inner.get(&entry.key, before).await?;
                    if let Some(before) = before.value {
                        *entry = before;
                    }
                }
            }
            Ok(found)
        }
        .boxed()
    }

    fn commit(&self, mut txn: Txn) -> BoxFuture<'_, Result<Committed, StoreError>> {
        async move {
            let is_of_clients = txn.ops.iter().all(|op| is_of_clients(op.key()));
            if is_of_clients && self.breaks(Break::BlindCommit) {
                txn.compares.clear();
            }
            if is_of_clients && self.breaks(Break::LostCommit) {
                let elsewhere = Op::Put("/registry/elsewhere/here".into(), Bytes::new());
                return self.inner.commit(Txn { ops: vec![elsewhere], ..Txn::default() }).await;
            }
            let committed = self.inner.commit(txn).await?;
            if is_of_clients && self.breaks(Break::FalseRefusal) {
                return Err(StoreError::Unavailable("it is not".into()));
            }
            Ok(committed)
        }
        .boxed()
    }

    fn changes(
        &self,
        prefix: Bytes,
        after: Revision,
    ) -> BoxFuture<'_, Result<Box<dyn ChangeFeed>, StoreError>> {
        async move {
            let feed = self.inner.changes(prefix, after).await?;
            let rng = SmallRng::from_rng(&mut *self.rng.lock().unwrap());
            Ok(Box::new(BrokenFeed { feed, how: self.how, rng, late: None }) as Box<dyn ChangeFeed>)
        }
        .boxed()
    }
}

struct BrokenFeed {
    feed: Box<dyn ChangeFeed>,
    how: Break,
    rng: SmallRng,
    late: Option<Batch>,
}

impl ChangeFeed for BrokenFeed {
    fn next(&mut self) -> BoxFuture<'_, Result<Batch, StoreError>> {
        async move {
            if let Some(late) = self.late.take() {
                return Ok(late);
            }
            let mut batch = self.feed.next().await?;
            match self.how {
                Break::SkippedChange => batch
                    .changes
                    .retain(|change| !(is_of_clients(&change.key) && self.rng.random_bool(CHANCE))),
                Break::EarlyProgress if self.rng.random_bool(CHANCE) => {
                    let changes = Vec::new();
                    let early = Batch { changes, revision: batch.revision };
                    self.late = Some(batch);
                    return Ok(early);
                }
                _ => {}
            }
            Ok(batch)
        }
        .boxed()
    }
}
