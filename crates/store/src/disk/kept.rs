//! What was read from the file and has not changed since.
//!
//! Every create asks for its namespace, and every controller for its few objects, over and over:
//! such a read is to cost no trip to a thread that may wait for the disk. What is kept is what was
//! published; the next commit of a key takes it out.

use bytes::Bytes;
use std::collections::HashMap;

use crate::contract::*;

/// How many values a generation keeps, and how many bytes of them. There are two.
const KEYS_MAX: usize = 1000;
const BYTES_MAX: usize = 1 << 20;

/// Two generations: what is asked for stays in the young one, and when that is full, what is in the
/// old one goes.
#[derive(Default)]
pub(super) struct Kept {
    young: Generation,
    old: Generation,
}

#[derive(Default)]
struct Generation {
    entries: HashMap<Bytes, KeyValue>,
    n_bytes: usize,
}

impl Kept {
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

    /// The key has changed.
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
    fn what_is_asked_for_stays_and_the_rest_is_bounded() {
        for n_bytes in [10, 10_000] {
            let mut kept = Kept::default();
            let asked = entry(0, n_bytes);
            kept.insert(asked.clone());
            for n in 1..5000 {
                kept.insert(entry(n, n_bytes));
                assert_eq!(kept.get(&asked.key), Some(asked.clone()), "after {n}");
            }
            for generation in [&kept.young, &kept.old] {
                let sum: usize = generation.entries.values().map(size).sum();
                assert_eq!(generation.n_bytes, sum);
                assert!(generation.entries.len() <= KEYS_MAX && sum <= BYTES_MAX);
            }
            assert_eq!(kept.get(&entry(1, n_bytes).key), None);
            kept.forget(&asked.key);
            assert_eq!(kept.get(&asked.key), None);
        }
        let mut kept = Kept::default();
        kept.insert(entry(0, BYTES_MAX / 8));
        assert_eq!(kept.young.n_bytes, 0);
    }
}
