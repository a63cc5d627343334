//! Retries of events whose handler panicked.

use std::{
    collections::BTreeMap,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use setpoint_informer::{Event, Key};
use setpoint_object::panic;
use setpoint_workqueue::{Exponential, WorkQueue};

/// How many objects of a watch may have events that wait for a retry.
///
/// 4096: a function that panics more often fails for all objects and must be fixed. The event of
/// one more object is dropped, logged and counted.
pub const RETRIED_OBJECTS_MAX: usize = 4096;

/// The first and the longest back-off of an event whose handler panicked. 1 s, as client-go waits
/// after a panic; 1000 s, as a key whose passes fail.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(1000));

/// A queue of events to retry: the number of a watch, and the key of an object.
pub(crate) type Retries = WorkQueue<(usize, Key)>;

pub(super) fn retries() -> Retries {
    let queue = WorkQueue::builder();
    match Exponential::new(BACKOFF.0, BACKOFF.1) {
        Ok(limiter) => queue.rate_limiter(limiter).build(),
        Err(_) => queue.build(),
    }
}

/// How many events of one object may wait for a retry. 4: an update, a deletion, and two of objects
/// that have taken its place. If there are more, the oldest is dropped, logged and counted.
const EVENTS_MAX: usize = 4;

/// The panics of one source's functions, and the events or values that they lost.
#[derive(Debug, Default)]
pub(super) struct PanicCounts {
    n: AtomicU64,
    n_lost: AtomicU64,
    last: Mutex<Option<String>>,
}

impl PanicCounts {
    /// Runs a user function. A panic is counted and logged, and returns `None`.
    pub(super) fn catch<T>(
        &self,
        what: &str,
        of: &dyn fmt::Display,
        f: impl FnOnce() -> T,
    ) -> Option<T> {
        let panic = match catch_unwind(AssertUnwindSafe(f)) {
            Ok(returned) => return Some(returned),
            Err(panic) => panic,
        };
        let message = panic::message(&*panic);
        self.n.fetch_add(1, Ordering::Relaxed);
        tracing::error!(%of, "{what} panicked: {message}");
        *self.last.lock() = Some(format!("{what} panicked for {of}: {message}"));
        None
    }

    /// Counts an event or a value as lost.
    pub(super) fn lose(&self) {
        self.n_lost.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn status(&self) -> PanicStatus {
        PanicStatus {
            n: self.n.load(Ordering::Relaxed),
            n_lost: self.n_lost.load(Ordering::Relaxed),
            last: self.last.lock().clone(),
            n_waiting: 0,
        }
    }
}

/// The panics of one watch's functions, and the events to retry.
#[derive(Debug)]
pub(super) struct Panics<K> {
    counts: PanicCounts,
    /// Events by object, in order; see [`merge`].
    waiting: Mutex<BTreeMap<Key, Vec<Event<K>>>>,
}

/// A snapshot of [`Panics`].
#[derive(Debug, Clone, Default)]
pub(crate) struct PanicStatus {
    pub(crate) n: u64,
    pub(crate) n_lost: u64,
    pub(crate) last: Option<String>,
    pub(crate) n_waiting: usize,
}

impl<K> Default for Panics<K> {
    fn default() -> Self {
        Self { counts: PanicCounts::default(), waiting: Mutex::default() }
    }
}

impl<K> Panics<K> {
    /// Runs a user function. A panic is counted and logged, and returns `None`.
    pub(super) fn catch<T>(&self, what: &str, key: &Key, f: impl FnOnce() -> T) -> Option<T> {
        self.counts.catch(what, key, f)
    }

    /// Stores an event for a retry. Returns false if there is no room.
    pub(super) fn keep(&self, event: Event<K>) -> bool {
        let key = event.key().clone();
        let mut waiting = self.waiting.lock();
        if waiting.len() >= RETRIED_OBJECTS_MAX && !waiting.contains_key(&key) {
            drop(waiting);
            self.counts.lose();
            tracing::error!(%key, "too many events wait for a retry: this event is dropped");
            return false;
        }
        let oldest = merge(waiting.entry(key.clone()).or_default(), event);
        drop(waiting);
        if oldest.is_some() {
            self.counts.lose();
            tracing::error!(%key, "too many events of this object wait for a retry: the oldest is dropped");
        }
        true
    }

    /// Takes the stored events of an object.
    pub(super) fn take(&self, key: &Key) -> Vec<Event<K>> {
        self.waiting.lock().remove(key).unwrap_or_default()
    }

    pub(super) fn status(&self) -> PanicStatus {
        PanicStatus { n_waiting: self.waiting.lock().len(), ..self.counts.status() }
    }
}

/// Merges an event into the stored ones of its object. No state is lost that the handler has seen,
/// so that a map is called with each:
///
/// | newest waiting | arriving  | becomes                                           |
/// |----------------|-----------|---------------------------------------------------|
/// | `Added a`      | `a→b`     | `Added b`                                         |
/// | `Added a`      | `Deleted` | `Deleted`                                         |
/// | `Updated a→b`  | `b→c`     | `Updated a→c`                                     |
/// | `Deleted`      | `Deleted` | the later, unless only the earlier has an object  |
/// | any other      | any other | both                                              |
///
/// Returns the oldest if there are too many.
fn merge<K>(waiting: &mut Vec<Event<K>>, event: Event<K>) -> Option<Event<K>> {
    let event = match (waiting.pop(), event) {
        (None, event) => event,
        (Some(Event::Updated { old, .. }), Event::Updated { new, .. }) => {
            Event::Updated { old, new }
        }
        (Some(Event::Added { in_initial_list, .. }), Event::Updated { new, .. }) => {
            Event::Added { object: new, in_initial_list }
        }
        (Some(Event::Added { .. }), event) => event,
        (Some(deleted @ Event::Deleted { .. }), event @ Event::Deleted { .. }) => {
            // The later one has no object if the deletion was missed.
            if event.object().is_some() { event } else { deleted }
        }
        (Some(last), event) => {
            waiting.push(last);
            event
        }
    };
    waiting.push(event);
    (waiting.len() > EVENTS_MAX).then(|| waiting.remove(0))
}
