//! A least-recently-used map.

use std::{collections::BTreeMap, hash::Hash};

use hashbrown::HashMap;

/// A map of at most `len_max` entries.
pub(super) struct Lru<K, V> {
    len_max: usize,
    entries: HashMap<K, (u64, V)>,
    by_use: BTreeMap<u64, K>,
    n_uses: u64,
}

impl<K: Clone + Eq + Hash, V> Lru<K, V> {
    pub(super) fn new(len_max: usize) -> Self {
        Self { len_max, entries: HashMap::new(), by_use: BTreeMap::new(), n_uses: 0 }
    }

    /// The entry of `key`; marks it as used.
    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let (used, value) = self.entries.get_mut(key)?;
        self.n_uses += 1;
        if let Some(key) = self.by_use.remove(used) {
            self.by_use.insert(self.n_uses, key);
        }
        *used = self.n_uses;
        Some(value)
    }

    /// Inserts an entry; returns the evicted one.
    pub(super) fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.remove(&key);
        let mut oldest = None;
        if self.entries.len() >= self.len_max
            && let Some((_, key)) = self.by_use.pop_first()
        {
            oldest = self.entries.remove(&key).map(|(_, value)| value);
        }
        self.n_uses += 1;
        self.by_use.insert(self.n_uses, key.clone());
        self.entries.insert(key, (self.n_uses, value));
        oldest
    }

    /// The entry of `key`, made by `make` if there is none. That may evict the least recently used
    /// entry.
    pub(super) fn entry(&mut self, key: &K, make: impl FnOnce() -> V) -> &mut V {
        if !self.entries.contains_key(key) {
            self.insert(key.clone(), make());
        }
        #[expect(clippy::expect_used, reason = "it was there, or has been put there")]
        self.get_mut(key).expect("an entry")
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        let (used, value) = self.entries.remove(key)?;
        self.by_use.remove(&used);
        Some(value)
    }

    /// All entries, the least recently used first. Does not mark them as used.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.by_use.values().filter_map(|key| Some((key, &self.entries.get(key)?.1)))
    }

    /// All values, the least recently used first.
    pub(super) fn into_values(mut self) -> impl Iterator<Item = V> {
        let keys = std::mem::take(&mut self.by_use).into_values();
        keys.filter_map(move |key| self.entries.remove(&key).map(|(_, value)| value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_recently_used_entry_is_forgotten() {
        let mut lru = Lru::new(2);
        *lru.entry(&"a", || 0) += 1;
        *lru.entry(&"b", || 0) += 1;
        *lru.entry(&"a", || 0) += 1;
        assert_eq!(lru.insert("c", 7), Some(1), "b has to go");
        assert_eq!(lru.iter().collect::<Vec<_>>(), [(&"a", &2), (&"c", &7)]);
        assert_eq!((lru.remove(&"a"), lru.remove(&"b")), (Some(2), None));
        assert_eq!((lru.entries.len(), lru.by_use.len()), (1, 1));
        assert_eq!(lru.into_values().collect::<Vec<_>>(), [7]);
    }
}
