//! A store whose objects are forgotten after a time.
use crate::controller::DeltaStore;
use crate::delta::{Keyed, KnownObjects};
use crate::key::Key;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use tokio::time::Instant;

/// How many objects an [`ExpiringStore`] holds unless told otherwise: 10,000.
pub const EXPIRING_OBJECTS_MAX: usize = 10_000;

/// Objects by key, each for a limited time after it was put in last; client-go's `ExpirationCache`
/// with a `TTLPolicy` (FAC-10).
///
/// # Theory
///
/// Nothing runs: an object's age is looked at when it is read, and what is too old is taken out
/// then. Reading and putting in exclude each other, so that what was put in a moment ago is never
/// taken out for the age of what it replaced. A store is bounded: what does not fit pushes out the
/// object whose time ends first, which may not have ended yet. All time is tokio's.
///
/// It may be what a hand-wired controller keeps its objects in ([`DeltaStore`]) and what a queue
/// asks ([`KnownObjects`]); an object that has expired is then not known any more, and its deletion
/// may pass unnoticed.
pub struct ExpiringStore<T> {
    ttl: Duration,
    objects_max: usize,
    state: Mutex<State<T>>,
}

struct State<T> {
    objects: BTreeMap<Key, Held<T>>,
    /// The key of each object by the end of its time.
    by_end: BTreeMap<End, Key>,
    n_puts: u64,
}

/// When an object's time ends; numbered, for those that end together.
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
    /// An empty store that holds an object for `ttl` after it was put in.
    pub fn new(ttl: Duration) -> Self {
        let state = State { objects: BTreeMap::new(), by_end: BTreeMap::new(), n_puts: 0 };
        Self { ttl, objects_max: EXPIRING_OBJECTS_MAX, state: Mutex::new(state) }
    }

    /// Holds at most so many objects, one at least.
    pub fn objects_max(mut self, objects_max: usize) -> Self {
        self.objects_max = objects_max.max(1);
        self
    }
}

impl<T: Keyed + Clone> ExpiringStore<T> {
    /// Puts an object in; its time begins anew. Gives what it replaces, unless that has expired.
    pub fn put(&self, object: T) -> Option<T> {
        self.state.lock().put(object, self.ttl, self.objects_max)
    }

    /// One object, unless it has expired.
    pub fn get(&self, key: &Key) -> Option<T> {
        let mut state = self.state.lock();
        state.expire();
        state.objects.get(key).map(|held| held.object.clone())
    }

    /// Everything that has not expired, by key.
    pub fn list(&self) -> Vec<T> {
        let mut state = self.state.lock();
        state.expire();
        state.objects.values().map(|held| held.object.clone()).collect()
    }

    /// The keys of everything that has not expired, sorted.
    pub fn keys(&self) -> Vec<Key> {
        let mut state = self.state.lock();
        state.expire();
        state.objects.keys().cloned().collect()
    }

    /// Takes one object out, and gives it unless it has expired.
    pub fn remove(&self, key: &Key) -> Option<T> {
        let mut state = self.state.lock();
        state.expire();
        state.remove(key)
    }

    /// Makes the store hold exactly these objects; the time of all of them begins anew. Gives what
    /// it held.
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

    /// How many objects have not expired.
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
    /// Takes out whose time has ended.
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
        let end = (Instant::now() + ttl, self.n_puts);
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
