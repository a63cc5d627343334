//! The passes that began last.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use parking_lot::Mutex;

use crate::client::KeyedPass;

/// A pass, and which one of the controller it is.
struct Entry<R> {
    nth: usize,
    pass: Arc<KeyedPass<R>>,
}

/// A ring of slots, each with its own lock: workers meet only at the counter.
pub(super) struct Ring<R> {
    slots: Box<[Mutex<Option<Entry<R>>>]>,
    n_begun: AtomicUsize,
}

impl<R> Ring<R> {
    /// A ring that remembers so many passes. Zero remembers none.
    pub(super) fn new(len: usize) -> Self {
        Self { slots: (0..len).map(|_| Mutex::new(None)).collect(), n_begun: AtomicUsize::new(0) }
    }

    pub(super) fn is_off(&self) -> bool {
        self.slots.is_empty()
    }

    /// Puts a pass in the place of the oldest.
    pub(super) fn push(&self, pass: &Arc<KeyedPass<R>>) {
        let n_slots = self.slots.len();
        if n_slots == 0 {
            return;
        }
        let nth = self.n_begun.fetch_add(1, Ordering::Relaxed);
        let entry = Entry { nth, pass: pass.clone() };
        // What was there is dropped after the lock.
        let _oldest = self.slots[nth % n_slots].lock().replace(entry);
    }

    /// The passes whose key is asked for, newest first.
    pub(super) fn select(&self, mut is_asked: impl FnMut(&R) -> bool) -> Vec<Arc<KeyedPass<R>>> {
        let mut found = Vec::new();
        for slot in &self.slots {
            let slot = slot.lock();
            if let Some(entry) = slot.as_ref().filter(|entry| is_asked(&entry.pass.key)) {
                found.push((entry.nth, entry.pass.clone()));
            }
        }
        found.sort_unstable_by_key(|(nth, _)| std::cmp::Reverse(*nth));
        found.into_iter().map(|(_, pass)| pass).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        client::Pass,
        explain::{Began, Cause},
    };

    fn pass(key: i32) -> Arc<KeyedPass<i32>> {
        let pass = Pass::new(Began::now(Cause::External), false);
        Arc::new(KeyedPass { controller: "c".into(), key, pass })
    }

    #[test]
    fn newest_passes_stay_and_come_first() {
        let ring = Ring::new(3);
        for key in 0..5 {
            ring.push(&pass(key));
        }
        let keys = |ring: &Ring<i32>| -> Vec<i32> {
            ring.select(|_| true).iter().map(|pass| pass.key).collect()
        };
        assert_eq!(keys(&ring), [4, 3, 2]);
        assert_eq!(ring.select(|key| *key == 3).len(), 1);
    }

    #[test]
    fn ring_of_nothing_remembers_nothing() {
        let ring = Ring::new(0);
        let pass = pass(1);
        ring.push(&pass);
        assert!(ring.is_off() && ring.select(|_| true).is_empty());
        assert_eq!(Arc::strong_count(&pass), 1);
    }
}
