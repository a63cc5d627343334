//! Waits until the cache has reached a resourceVersion, to read own writes.
use super::{Indexer, Lister};
use crate::failure::Stopped;
use crate::key::Key;
use parking_lot::Mutex;
use setpoint_object::resource_version::{compare, has_order};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering as Atomic};
use tokio::sync::oneshot;

/// Why waiting for a resourceVersion failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AtLeastError {
    /// The version has no order: it is empty, `"0"`, or not a plain integer (KEP-5504).
    #[error("the resourceVersion {0:?} has no order")]
    Unordered(String),
    /// The server's versions have no order.
    #[error("the resourceVersion {0:?} of the cache does not compare with others")]
    Incomparable(String),
    /// The informer stopped first.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

impl<K> Lister<K> {
    /// Waits until every change up to this resourceVersion is in the cache, for a read after a
    /// write. A controller takes the version from the answer to its write.
    ///
    /// Any number of tasks may wait; each is woken once, when its version is reached. Objects that
    /// a watch replays in any order do not count (REF-21): the cache is complete up to the version
    /// of a list, a bookmark or a change. Versions of different resource types do not compare.
    /// Handlers may not have been called yet. The future may be dropped.
    ///
    /// # Errors
    /// If the version has no order, the server's have none, or the informer stops first.
    pub async fn at_least(&self, resource_version: &str) -> Result<(), AtLeastError> {
        self.reach(None, resource_version).await
    }

    /// Waits until the cache holds this object at this resourceVersion or a later one, or has
    /// reached the version as a whole, as it does if the object was deleted meanwhile. Otherwise as
    /// [`at_least`](Self::at_least).
    ///
    /// # Errors
    /// As [`at_least`](Self::at_least).
    pub async fn at_least_for(
        &self,
        key: &Key,
        resource_version: &str,
    ) -> Result<(), AtLeastError> {
        self.reach(Some(key), resource_version).await
    }

    async fn reach(&self, key: Option<&Key>, resource_version: &str) -> Result<(), AtLeastError> {
        if !has_order(resource_version) {
            return Err(AtLeastError::Unordered(resource_version.to_owned()));
        }
        // Register first and then check, so that a change in between finds the registration.
        let mut place = Freshness::enter(&self.1, key, resource_version);
        let held = key.and_then(|key| self.object(key));
        if held.is_some_and(|held| is_at_least(held.resource_version(), resource_version)) {
            return Ok(());
        }
        let store = self.resource_version();
        if is_at_least(&store, resource_version) {
            return Ok(());
        }
        if is_foreign(&store) {
            return Err(AtLeastError::Incomparable(store.to_string()));
        }
        match (&mut place.outcome).await {
            Ok(reached) => reached,
            Err(_) => Err(Stopped.into()),
        }
    }
}

impl<K> Indexer<K> {
    /// Wakes the waiters whose version has been reached. To be called after the writes of a batch.
    pub(crate) fn announce(&self) {
        let freshness = &self.announcer.0;
        if freshness.n_waiting.load(Atomic::SeqCst) == 0 {
            return;
        }
        let snapshot = self.raw_snapshot();
        freshness.announce(snapshot.resource_version(), |key, wanted| {
            snapshot.raw(key).is_some_and(|held| is_at_least(held.resource_version(), wanted))
        });
    }

    /// Ends all waits with an error: there are no more writes.
    pub(crate) fn retire(&self) {
        self.announcer.0.stop();
    }

    /// Whether added objects arrive in any order, so that their versions are not the cache's
    /// (REF-21).
    pub(crate) fn set_replaying(&mut self, is_replaying: bool) {
        self.is_replaying = is_replaying;
    }
}

fn is_at_least(held: &str, wanted: &str) -> bool {
    matches!(compare(held, wanted), Some(Ordering::Greater | Ordering::Equal))
}

/// Whether a version is not a number.
fn is_foreign(resource_version: &str) -> bool {
    !matches!(resource_version, "" | "0") && !has_order(resource_version)
}

/// The writer's end of a [`Freshness`].
#[derive(Default)]
pub(super) struct Announcer(pub(super) Arc<Freshness>);

impl Drop for Announcer {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// The waits for versions.
///
/// # Theory
///
/// A writer changes the state and then checks for waits; a waiter registers and then checks the
/// state. The state's lock orders both checks, so at least one of them sees the other. Without
/// waits a write costs one load.
#[derive(Default)]
pub(crate) struct Freshness {
    n_waiting: AtomicUsize,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    next: u64,
    is_stopped: bool,
    by_version: BTreeMap<Turn, Waiter>,
    n_keyed: usize,
}

/// Sorted by version and then by arrival. Versions are integers of any length; a longer one is
/// larger.
type Turn = (usize, Box<str>, u64);

struct Waiter {
    key: Option<Key>,
    sender: oneshot::Sender<Result<(), AtLeastError>>,
}

/// A registered wait; removed when dropped.
struct Place {
    freshness: Arc<Freshness>,
    turn: Turn,
    outcome: oneshot::Receiver<Result<(), AtLeastError>>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.freshness.change(|waiting| drop(waiting.remove(&self.turn)));
    }
}

impl Waiting {
    fn remove(&mut self, turn: &Turn) -> Option<Waiter> {
        let waiter = self.by_version.remove(turn)?;
        self.n_keyed -= usize::from(waiter.key.is_some());
        Some(waiter)
    }
}

impl Freshness {
    fn enter(this: &Arc<Self>, key: Option<&Key>, resource_version: &str) -> Place {
        let (sender, outcome) = oneshot::channel();
        let turn = this.change(|waiting| {
            waiting.next += 1;
            let turn: Turn = (resource_version.len(), resource_version.into(), waiting.next);
            if !waiting.is_stopped {
                waiting.n_keyed += usize::from(key.is_some());
                waiting.by_version.insert(turn.clone(), Waiter { key: key.cloned(), sender });
            }
            turn
        });
        Place { freshness: this.clone(), turn, outcome }
    }

    fn change<T>(&self, change: impl FnOnce(&mut Waiting) -> T) -> T {
        let mut waiting = self.waiting.lock();
        let result = change(&mut waiting);
        self.n_waiting.store(waiting.by_version.len(), Atomic::SeqCst);
        result
    }

    fn announce(&self, store: &str, holds: impl Fn(&Key, &str) -> bool) {
        let reached = self.change(|waiting| {
            if is_foreign(store) {
                waiting.n_keyed = 0;
                return std::mem::take(&mut waiting.by_version);
            }
            let mut reached = BTreeMap::new();
            if has_order(store) {
                let beyond = (store.len(), Box::from(store), u64::MAX);
                let later = waiting.by_version.split_off(&beyond);
                reached = std::mem::replace(&mut waiting.by_version, later);
            }
            waiting.n_keyed -= reached.values().filter(|waiter| waiter.key.is_some()).count();
            if waiting.n_keyed > 0 {
                let held: Vec<Turn> = waiting
                    .by_version
                    .iter()
                    .filter(|(turn, waiter)| {
                        waiter.key.as_ref().is_some_and(|key| holds(key, &turn.1))
                    })
                    .map(|(turn, _)| turn.clone())
                    .collect();
                for turn in held {
                    reached.extend(waiting.remove(&turn).map(|waiter| (turn, waiter)));
                }
            }
            reached
        });
        for waiter in reached.into_values() {
            let outcome = match is_foreign(store) {
                true => Err(AtLeastError::Incomparable(store.to_owned())),
                false => Ok(()),
            };
            // The waiter may be gone.
            let _ = waiter.sender.send(outcome);
        }
    }

    fn stop(&self) {
        let waiting = self.change(|waiting| {
            waiting.is_stopped = true;
            waiting.n_keyed = 0;
            std::mem::take(&mut waiting.by_version)
        });
        drop(waiting);
    }
}
