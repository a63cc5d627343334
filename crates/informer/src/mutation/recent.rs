//! A bounded map whose entries expire.
use crate::key::Key;
use hashbrown::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// Recent entries: at most `entries_max`, each for `ttl`. The least recently used goes first.
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

    /// Counts as a use. Removes an expired entry.
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
            // There are few enough to check all.
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

    /// The keys of entries that may have expired, least recently used first, so that using all of
    /// them in turn keeps their order.
    pub(super) fn keys(&self) -> Vec<Key> {
        let mut keys: Vec<(u64, &Key)> =
            self.entries.iter().map(|(key, entry)| (entry.used, key)).collect();
        keys.sort_unstable_by_key(|(used, _)| *used);
        keys.into_iter().map(|(_, key)| key.clone()).collect()
    }
}
