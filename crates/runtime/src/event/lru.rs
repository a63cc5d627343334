//! A map that forgets what was not used for longest.

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

    /// The entry of `key`, made by `make` when there is none; then the one that was not used for longest may have to go.
    pub(super) fn entry(&mut self, key: &K, make: impl FnOnce() -> V) -> &mut V {
        self.n_uses += 1;
        let now = self.n_uses;
        match self.entries.get(key) {
            Some((used, _)) => _ = self.by_use.remove(used),
            None => {
                if self.entries.len() >= self.len_max
                    && let Some((_, oldest)) = self.by_use.pop_first()
                {
                    self.entries.remove(&oldest);
                }
            }
        }
        self.by_use.insert(now, key.clone());
        let (used, value) = self.entries.entry_ref(key).or_insert_with(|| (now, make()));
        *used = now;
        value
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
        *lru.entry(&"c", || 0) += 1;
        assert_eq!((*lru.entry(&"a", || 0), *lru.entry(&"b", || 0)), (2, 0));
        assert_eq!(lru.entries.len(), 2);
        assert_eq!(lru.by_use.len(), 2);
    }
}
