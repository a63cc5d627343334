//! The memory engine: persistent ordered maps, and history as a persistent vector.
//!
//! # Theory
//!
//! `current` is the newest state. `history` holds the commits after `oldest`, one per revision: the
//! commit of revision `r` is `history[r - oldest - 1]`. A fork clones both, which shares every
//! node. A read at a past revision starts from the nearest *keyframe* at or after it and undoes the
//! commits in between. A keyframe is a clone of `current`, taken every [`KEYFRAME_REVISIONS`], so
//! such a read costs at most that many steps more.
//!
//! A feed has no buffer. It stores its position and takes the next commits from `history`, so a
//! slow reader costs no memory. If the history it needs was dropped, it returns
//! [`StoreError::Compacted`].
//!
//! History is bounded by [`MemoryOptions`] in count, bytes and age. There is no background task.
//! The next call that touches the store deletes expired values with an ordinary commit, and a
//! waiting feed wakes up for that. Each commit drops excess history, a bounded number of revisions
//! at a time.

mod feed;
mod state;
#[cfg(test)]
mod tests;

use crate::{contract::*, shape::HISTORY_AGE_MAX};
use bytes::Bytes;
use feed::MemoryFeed;
use futures::future::{self, BoxFuture, FutureExt};
use parking_lot::Mutex;
use state::State;
use std::{sync::Arc, time::Duration};
use tokio::sync::Notify;

/// Revisions between two keyframes, which is the maximum number of commits that a read at a past
/// revision undoes.
pub const KEYFRAME_REVISIONS: u64 = 1024;
/// Maximum number of revisions that one commit drops because of their age, so that no commit takes
/// long after a quiet period.
const FORGOTTEN_MAX: usize = 256;

/// Maximum number of revisions that a compaction drops, and of entries that a range reads, before
/// other tasks run.
const SLICE: usize = 4096;

/// Limits of a memory store.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct MemoryOptions {
    /// Maximum number of revisions in history. 100,000 by default, the largest window of a
    /// Kubernetes watch cache. Each commit compacts the oldest ones beyond it.
    pub history_revisions_max: usize,
    /// Maximum size of history: bytes of keys and of replaced or deleted values. 256 MiB by
    /// default.
    pub history_bytes_max: usize,
    /// Maximum age of a revision in history, in tokio time. Ten minutes by default. Kubernetes
    /// compacts every five minutes to the revision of five minutes before, so its watches reach
    /// back ten minutes at most.
    pub history_age_max: Duration,
    /// The revision of the empty store; everything before it counts as compacted. 1 by default,
    /// like a new etcd. A server whose clients outlive it takes one that is above all that an
    /// earlier store has given: a client that continues from there would miss what was written.
    pub first_revision: Revision,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        Self {
            history_revisions_max: 100_000,
            history_bytes_max: 256 << 20,
            history_age_max: HISTORY_AGE_MAX,
            first_revision: Revision(1),
        }
    }
}

/// The memory engine. A handle is cheap to clone and shares the store. [`MemoryStore::fork`] makes
/// an independent store.
#[derive(Clone)]
pub struct MemoryStore {
    state: Arc<Mutex<State>>,
    /// Wakes feeds after a commit, in the order in which they started to wait. A `watch` wakes in
    /// random order, so that two runs with one seed would differ.
    committed: Arc<Notify>,
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state.lock();
        f.debug_struct("MemoryStore")
            .field("revision", &state.revision)
            .field("oldest", &state.oldest)
            .field("keys", &state.current.len())
            .finish()
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new(MemoryOptions::default())
    }
}

impl MemoryStore {
    /// An empty store at its first revision.
    pub fn new(options: MemoryOptions) -> Self {
        Self::over(State::new(options))
    }

    /// An independent store with the same content, history and expiry times, in constant time.
    pub fn fork(&self) -> Self {
        Self::over(self.state.lock().clone())
    }

    fn over(state: State) -> Self {
        Self { state: Arc::new(Mutex::new(state)), committed: Arc::default() }
    }

    /// Deletes expired values, runs one step on the state, and wakes the feeds if the revision
    /// changed.
    fn step<T>(&self, step: impl FnOnce(&mut State) -> T) -> T {
        let (answer, is_changed) = {
            let mut state = self.state.lock();
            let before = state.revision;
            state.expire();
            let answer = step(&mut state);
            (answer, state.revision != before)
        };
        if is_changed {
            self.committed.notify_waiters();
        }
        answer
    }
}

impl Store for MemoryStore {
    fn revision(&self) -> BoxFuture<'_, Result<Revision, StoreError>> {
        future::ready(Ok(self.step(|state| state.revision))).boxed()
    }

    fn get<'a>(
        &'a self,
        key: &'a [u8],
        at: At,
    ) -> BoxFuture<'a, Result<Snapshot<Option<KeyValue>>, StoreError>> {
        future::ready(self.step(|state| state.get(key, at))).boxed()
    }

    fn range<'a>(
        &'a self,
        request: RangeRequest,
    ) -> BoxFuture<'a, Result<Snapshot<Range>, StoreError>> {
        // The map is cloned under the lock and read outside it, so a long read does not block
        // others.
        let view = self.step(|state| state.view(request.at).map(|map| (state.revision, map)));
        async move {
            let (revision, map) = view?;
            Ok(Snapshot { revision, value: state::walk(&map, &request).await })
        }
        .boxed()
    }

    fn divide<'a>(
        &'a self,
        start: &'a [u8],
        end: &'a [u8],
        part_keys: usize,
    ) -> BoxFuture<'a, Result<Vec<Bytes>, StoreError>> {
        let view = self.step(|state| state.view(At::Latest));
        future::ready(view.map(|map| state::divide(&map, start, end, part_keys))).boxed()
    }

    fn commit(&self, txn: Txn) -> BoxFuture<'_, Result<Committed, StoreError>> {
        // Lazy: a future that is never polled writes nothing.
        future::lazy(move |_| self.step(|state| state.commit(txn))).boxed()
    }

    fn commit_each(&self, txns: Vec<Txn>) -> BoxFuture<'_, Vec<Result<Committed, StoreError>>> {
        // Feeds are notified once.
        let commit = |state: &mut State| txns.into_iter().map(|txn| state.commit(txn)).collect();
        future::lazy(move |_| self.step(commit)).boxed()
    }

    fn changes(
        &self,
        prefix: Bytes,
        after: Revision,
    ) -> BoxFuture<'_, Result<Box<dyn ChangeFeed>, StoreError>> {
        let feed = self.step(|state| state.check_retained(after)).map(|()| {
            let feed = MemoryFeed::new(self.clone(), prefix, after);
            Box::new(feed) as Box<dyn ChangeFeed>
        });
        future::ready(feed).boxed()
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), StoreError>> {
        async move {
            self.step(|state| state.check_compaction(revision))?;
            while self.step(|state| state.compact(revision)) {
                tokio::task::yield_now().await;
            }
            Ok(())
        }
        .boxed()
    }
}
