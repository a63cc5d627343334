//! A cache of single values read from the file.
//!
//! Every create reads its namespace, and every controller reads its few objects over and over. Such
//! reads should not need a blocking thread. The cache holds published values; the next commit of a
//! key removes its entry.

use bytes::Bytes;
use std::collections::HashMap;

use crate::contract::*;

/// Maximum number of values, and of bytes, in one generation. There are two generations.
const KEYS_MAX: usize = 1000;
const BYTES_MAX: usize = 1 << 20;

/// Two generations. A value that is read moves to the young one. When the young one is full, it
/// replaces the old one.
#[derive(Default)]
pub(super) struct ReadCache {
    young: Generation,
    old: Generation,
}

#[derive(Default)]
struct Generation {
    entries: HashMap<Bytes, KeyValue>,
    n_bytes: usize,
}

impl ReadCache {
    pub(super) fn get(&mut self, key: &[u8]) -> Option<KeyValue> {
        if let Some(entry) = self.young.entries.get(key) {
            return Some(entry.clone());
        }
        let entry = self.old.remove(key)?;
        self.insert(entry.clone());
        Some(entry)
    }

    pub(super) fn insert(&mut self, entry: KeyValue) {
        let n_bytes = size(&entry);
        if n_bytes > BYTES_MAX / 16 {
            return;
        }
        self.forget(&entry.key);
        let young = &self.young;
        if young.entries.len() >= KEYS_MAX || young.n_bytes + n_bytes > BYTES_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.n_bytes += n_bytes;
        self.young.entries.insert(entry.key.clone(), entry);
    }

    /// Removes a key that has changed.
    pub(super) fn forget(&mut self, key: &[u8]) {
        self.young.remove(key);
        self.old.remove(key);
    }
}

impl Generation {
    fn remove(&mut self, key: &[u8]) -> Option<KeyValue> {
        let entry = self.entries.remove(key)?;
        self.n_bytes -= size(&entry);
        Some(entry)
    }
}

fn size(entry: &KeyValue) -> usize {
    entry.key.len() + entry.value.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(n: usize, n_bytes: usize) -> KeyValue {
        let key = Bytes::from(format!("/{n:06}"));
        KeyValue {
            key,
            value: vec![0; n_bytes].into(),
            modified: Revision(2),
            created: Revision(2),
        }
    }

    #[test]
    fn recently_read_values_stay_and_the_cache_is_bounded() {
        for n_bytes in [10, 10_000] {
            let mut cache = ReadCache::default();
            let asked = entry(0, n_bytes);
            cache.insert(asked.clone());
            for n in 1..5000 {
                cache.insert(entry(n, n_bytes));
                assert_eq!(cache.get(&asked.key), Some(asked.clone()), "after {n}");
            }
            for generation in [&cache.young, &cache.old] {
                let sum: usize = generation.entries.values().map(size).sum();
                assert_eq!(generation.n_bytes, sum);
                assert!(generation.entries.len() <= KEYS_MAX && sum <= BYTES_MAX);
            }
            assert_eq!(cache.get(&entry(1, n_bytes).key), None);
            cache.forget(&asked.key);
            assert_eq!(cache.get(&asked.key), None);
        }
        let mut cache = ReadCache::default();
        cache.insert(entry(0, BYTES_MAX / 8));
        assert_eq!(cache.young.n_bytes, 0);
    }
}
