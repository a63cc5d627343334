//! A map that forgets.
use crate::key::Key;
use hashbrown::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// What was put in lately: at most so many, each for so long; what was not used for longest goes
/// first.
pub(super) struct Recent<V> {
    entries_max: usize,
    ttl: Duration,
    entries: HashMap<Key, Entry<V>>,
    n_uses: u64,
}

struct Entry<V> {
    value: V,
    end: Instant,
    used: u64,
}

impl<V> Recent<V> {
    pub(super) fn new(entries_max: usize, ttl: Duration) -> Self {
        Self { entries_max, ttl, entries: HashMap::new(), n_uses: 0 }
    }

    /// Counts as use. What has expired is forgotten.
    pub(super) fn get(&mut self, key: &Key) -> Option<&V> {
        if self.entries.get(key)?.end <= Instant::now() {
            self.entries.remove(key);
            return None;
        }
        self.n_uses += 1;
        let entry = self.entries.get_mut(key)?;
        entry.used = self.n_uses;
        Some(&entry.value)
    }

    pub(super) fn insert(&mut self, key: Key, value: V) {
        if self.entries.len() >= self.entries_max && !self.entries.contains_key(&key) {
            // Few enough to look at all.
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.entries.remove(&oldest);
            }
        }
        self.n_uses += 1;
        let end = Instant::now() + self.ttl;
        self.entries.insert(key, Entry { value, end, used: self.n_uses });
    }

    pub(super) fn remove(&mut self, key: &Key) {
        self.entries.remove(key);
    }

    /// The keys of what may be there, that which was not used for longest first: using all of them
    /// in turn keeps their order.
    pub(super) fn keys(&self) -> Vec<Key> {
        let mut keys: Vec<(u64, &Key)> =
            self.entries.iter().map(|(key, entry)| (entry.used, key)).collect();
        keys.sort_unstable_by_key(|(used, _)| *used);
        keys.into_iter().map(|(_, key)| key.clone()).collect()
    }
}
