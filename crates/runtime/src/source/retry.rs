//! Retries of events whose handler panicked.

use std::{
    any::Any,
    collections::BTreeMap,
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

/// The panics of one watch's functions, and the events to retry.
#[derive(Debug)]
pub(super) struct Panics<K> {
    n: AtomicU64,
    n_lost: AtomicU64,
    last: Mutex<Option<String>>,
    /// Events by object, at most two each: a deletion, and the latest event after it.
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
        let (n, n_lost) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { n, n_lost, last: Mutex::default(), waiting: Mutex::default() }
    }
}

impl<K> Panics<K> {
    /// Runs a user function. A panic is counted and logged, and returns `None`.
    pub(super) fn catch<T>(&self, what: &str, key: &Key, f: impl FnOnce() -> T) -> Option<T> {
        catch_unwind(AssertUnwindSafe(f)).map_err(|panic| self.note(what, key, &*panic)).ok()
    }

    fn note(&self, what: &str, key: &Key, panic: &(dyn Any + Send)) {
        let message = panic::message(panic);
        self.n.fetch_add(1, Ordering::Relaxed);
        tracing::error!(%key, "{what} panicked: {message}");
        *self.last.lock() = Some(format!("{what} panicked for {key}: {message}"));
    }

    /// Stores an event for a retry. Returns false if there is no room.
    pub(super) fn keep(&self, event: Event<K>) -> bool {
        let key = event.key().clone();
        let mut waiting = self.waiting.lock();
        if waiting.len() >= RETRIED_OBJECTS_MAX && !waiting.contains_key(&key) {
            drop(waiting);
            self.n_lost.fetch_add(1, Ordering::Relaxed);
            tracing::error!(%key, "too many events wait for a retry: this event is dropped");
            return false;
        }
        merge(waiting.entry(key).or_default(), event);
        true
    }

    /// Takes the stored events of an object.
    pub(super) fn take(&self, key: &Key) -> Vec<Event<K>> {
        self.waiting.lock().remove(key).unwrap_or_default()
    }

    pub(super) fn status(&self) -> PanicStatus {
        PanicStatus {
            n: self.n.load(Ordering::Relaxed),
            n_lost: self.n_lost.load(Ordering::Relaxed),
            last: self.last.lock().clone(),
            n_waiting: self.waiting.lock().len(),
        }
    }
}

/// Merges an event into the stored ones of its object, as a handler's queue does, but keeps a
/// deletion that is followed by a new object.
fn merge<K>(waiting: &mut Vec<Event<K>>, event: Event<K>) {
    let event = match (waiting.pop(), event) {
        (None, event) => event,
        (Some(Event::Updated { old, .. }), Event::Updated { new, .. }) => {
            Event::Updated { old, new }
        }
        (Some(Event::Added { in_initial_list, .. }), Event::Updated { new, .. }) => {
            Event::Added { object: new, in_initial_list }
        }
        (Some(deleted @ Event::Deleted { .. }), event @ Event::Deleted { .. }) => {
            // The later one has no object if the deletion was missed.
            if event.object().is_some() { event } else { deleted }
        }
        (Some(deleted @ Event::Deleted { .. }), event) => {
            waiting.clear();
            waiting.push(deleted);
            event
        }
        (Some(_), event) => event,
    };
    waiting.push(event);
}
