//! The memory engine: persistent ordered maps, history as a persistent vector.
//!
//! # Theory
//!
//! `current` is the present; `history` holds the commits after `oldest`, one per revision, so the
//! commit of revision `r` is `history[r - oldest - 1]`. A fork clones both, which shares every
//! node. An exact read starts from the nearest *keyframe* (a clone of `current` kept every
//! [`KEYFRAME_REVISIONS`]) at or after the revision asked for and undoes the commits in between, so
//! it costs at most that many steps beyond the read itself.
//!
//! A feed holds no buffer: it remembers how far it has read and takes the next commits out of
//! `history`. A slow reader thus costs no memory; when the history it needs has been dropped it is
//! told [`StoreError::Compacted`].
//!
//! History is bounded by [`MemoryOptions`] in count, bytes and age. There is no background task:
//! values that outlive their time to live are removed, by a commit like any other, at the next call
//! that touches the store, and a waiting feed wakes for it; what history has too much of goes at
//! the next commit, a bounded number of revisions each time.

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
use tokio::sync::watch;

/// How many revisions lie between two keyframes: the most commits an exact read undoes.
pub const KEYFRAME_REVISIONS: u64 = 1024;
/// How many revisions one commit makes history forget at most because of their age, so that no
/// commit after a quiet time is long.
const FORGOTTEN_MAX: usize = 256;

/// Limits of a memory store.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct MemoryOptions {
    /// How many revisions of history are kept at most; older ones are compacted as new ones come.
    /// 100,000 by default, the largest window a Kubernetes watch cache keeps.
    pub history_revisions_max: usize,
    /// How many bytes of keys and superseded or deleted values history may hold on to. 256 MiB by
    /// default.
    pub history_bytes_max: usize,
    /// How old a revision of history may become, by tokio's time. Ten minutes by default:
    /// Kubernetes compacts every five minutes to where it stood five minutes before, so that is how
    /// far back its watches reach at most.
    pub history_age_max: Duration,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        Self {
            history_revisions_max: 100_000,
            history_bytes_max: 256 << 20,
            history_age_max: HISTORY_AGE_MAX,
        }
    }
}

/// The memory engine. A handle is cheap to clone and shares the store; [`MemoryStore::fork`] makes
/// an independent one.
#[derive(Clone)]
pub struct MemoryStore {
    state: Arc<Mutex<State>>,
    /// The newest revision: what feeds wait on.
    moved: watch::Sender<Revision>,
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
    /// An empty store at revision 1, where a fresh etcd stands too.
    pub fn new(options: MemoryOptions) -> Self {
        Self::over(State::new(options))
    }

    /// An independent store with the same content, history and times to live, in constant time.
    pub fn fork(&self) -> Self {
        Self::over(self.state.lock().clone())
    }

    fn over(state: State) -> Self {
        let moved = watch::Sender::new(state.revision);
        Self { state: Arc::new(Mutex::new(state)), moved }
    }

    /// Runs one step on the state, values past their time removed first, and wakes the feeds when
    /// the revision moved.
    fn step<T>(&self, step: impl FnOnce(&mut State) -> T) -> T {
        let (answer, revision) = {
            let mut state = self.state.lock();
            state.expire();
            let answer = step(&mut state);
            (answer, state.revision)
        };
        self.moved.send_if_modified(|seen| std::mem::replace(seen, revision) != revision);
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
        // The map is cloned under the lock and walked outside it: a long read holds nobody up.
        let view = self.step(|state| state.view(request.at).map(|map| (state.revision, map)));
        future::ready(
            view.map(|(revision, map)| Snapshot { revision, value: state::walk(&map, &request) }),
        )
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
        // Done when polled, not when called: a future nobody polls writes nothing.
        future::lazy(move |_| self.step(|state| state.commit(txn))).boxed()
    }

    fn changes(
        &self,
        prefix: Bytes,
        after: Revision,
    ) -> BoxFuture<'_, Result<Box<dyn ChangeFeed>, StoreError>> {
        let feed = self.step(|state| state.check_retained(after)).map(|()| {
            let feed = MemoryFeed::new(self.clone(), prefix, after, self.moved.subscribe());
            Box::new(feed) as Box<dyn ChangeFeed>
        });
        future::ready(feed).boxed()
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), StoreError>> {
        future::ready(self.step(|state| state.compact(revision))).boxed()
    }
}
