//! A store whose objects expire.
use crate::backoff::SPAN_MAX;
use crate::controller::DeltaStore;
use crate::delta::{Keyed, KnownObjects};
use crate::key::Key;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use tokio::time::Instant;

/// The default of the largest number of objects in an [`ExpiringStore`]: 10,000.
pub const EXPIRING_OBJECTS_MAX: usize = 10_000;

/// Objects by key, each for a limited time after its last insertion; client-go's `ExpirationCache`
/// with a `TTLPolicy` (FAC-10).
///
/// # Theory
///
/// There is no task: each read removes expired objects. Reads and insertions exclude each other, so
/// a new object is never removed for the age of the one that it replaced. The store is bounded: an
/// insertion into a full store removes the object that would expire first. All time is tokio's.
///
/// It can be the store of a hand-wired controller ([`DeltaStore`]) and of its queue
/// ([`KnownObjects`]). An expired object is then unknown, and its deletion may go unnoticed.
pub struct ExpiringStore<T> {
    ttl: Duration,
    objects_max: usize,
    state: Mutex<State<T>>,
}

struct State<T> {
    objects: BTreeMap<Key, Held<T>>,
    /// The key of each object by the time of its expiry.
    by_end: BTreeMap<End, Key>,
    n_puts: u64,
}

/// When an object expires, with a number to order equal times.
type End = (Instant, u64);

struct Held<T> {
    object: T,
    end: End,
}

impl<T> fmt::Debug for ExpiringStore<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExpiringStore")
            .field("ttl", &self.ttl)
            .field("objects_max", &self.objects_max)
            .finish_non_exhaustive()
    }
}

impl<T> ExpiringStore<T> {
    /// An empty store that holds an object for `ttl` after its insertion.
    pub fn new(ttl: Duration) -> Self {
        let state = State { objects: BTreeMap::new(), by_end: BTreeMap::new(), n_puts: 0 };
        Self { ttl, objects_max: EXPIRING_OBJECTS_MAX, state: Mutex::new(state) }
    }

    /// Sets the largest number of objects, at least one.
    pub fn objects_max(mut self, objects_max: usize) -> Self {
        self.objects_max = objects_max.max(1);
        self
    }
}

impl<T: Keyed + Clone> ExpiringStore<T> {
    /// Inserts an object for the whole time. Returns the one that it replaces, unless that has
    /// expired.
    pub fn put(&self, object: T) -> Option<T> {
        self.state.lock().put(object, self.ttl, self.objects_max)
    }

    /// One object, unless it has expired.
    pub fn get(&self, key: &Key) -> Option<T> {
        let mut state = self.state.lock();
        state.expire();
        state.objects.get(key).map(|held| held.object.clone())
    }

    /// All objects that have not expired, by key.
    pub fn list(&self) -> Vec<T> {
        let mut state = self.state.lock();
        state.expire();
        state.objects.values().map(|held| held.object.clone()).collect()
    }

    /// The keys of all objects that have not expired, sorted.
    pub fn keys(&self) -> Vec<Key> {
        let mut state = self.state.lock();
        state.expire();
        state.objects.keys().cloned().collect()
    }

    /// Removes and returns an object, unless it has expired.
    pub fn remove(&self, key: &Key) -> Option<T> {
        let mut state = self.state.lock();
        state.expire();
        state.remove(key)
    }

    /// Replaces the content by these objects, for the whole time. Returns the old content.
    pub fn replace(&self, objects: Vec<T>) -> Vec<T> {
        let mut state = self.state.lock();
        state.expire();
        state.by_end.clear();
        let old = std::mem::take(&mut state.objects);
        for object in objects {
            state.put(object, self.ttl, self.objects_max);
        }
        old.into_values().map(|held| held.object).collect()
    }

    /// The number of objects that have not expired.
    pub fn len(&self) -> usize {
        let mut state = self.state.lock();
        state.expire();
        state.objects.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T: Keyed> State<T> {
    /// Removes expired objects.
    fn expire(&mut self) {
        let now = Instant::now();
        while let Some(first) = self.by_end.first_entry()
            && first.key().0 <= now
        {
            let key = first.remove();
            self.objects.remove(&key);
        }
    }

    fn put(&mut self, object: T, ttl: Duration, objects_max: usize) -> Option<T> {
        self.expire();
        let key = object.key().clone();
        let old = self.remove(&key);
        if self.objects.len() >= objects_max
            && let Some((_, key)) = self.by_end.pop_first()
        {
            self.objects.remove(&key);
        }
        self.n_puts += 1;
        let end = (Instant::now() + ttl.min(SPAN_MAX), self.n_puts);
        self.by_end.insert(end, key.clone());
        self.objects.insert(key, Held { object, end });
        old
    }

    fn remove(&mut self, key: &Key) -> Option<T> {
        let held = self.objects.remove(key)?;
        self.by_end.remove(&held.end);
        Some(held.object)
    }
}

impl<T: Keyed + Clone> KnownObjects<T> for ExpiringStore<T> {
    fn keys(&self) -> Vec<Key> {
        ExpiringStore::keys(self)
    }

    fn get(&self, key: &Key) -> Option<T> {
        ExpiringStore::get(self, key)
    }
}

impl<T: Keyed + Clone> DeltaStore<T> for &ExpiringStore<T> {
    fn put(&mut self, object: T) -> Option<T> {
        ExpiringStore::put(self, object)
    }

    fn remove(&mut self, key: &Key) -> Option<T> {
        ExpiringStore::remove(self, key)
    }

    fn replace(&mut self, objects: Vec<T>, _resource_version: &str) -> Vec<T> {
        ExpiringStore::replace(self, objects)
    }

    fn objects(&self) -> Vec<T> {
        self.list()
    }
}

#[cfg(test)]
mod tests;
