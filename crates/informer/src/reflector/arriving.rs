//! The objects of a list, while it arrives.
use super::ReflectorOptions;
use crate::delta::Keyed;
use crate::key::Key;
use crate::slices::Slices;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// The minimum number of objects at which duplicates are removed: a million. They are removed each
/// time the number has doubled, so a server that sends the same objects for ever cannot exhaust the
/// memory.
const UNCHECKED_MAX: usize = 1 << 20;

/// How long a streamed list may take to arrive (REF-13).
pub(super) struct Arriving {
    pub(super) quiet_since: Instant,
    // Inputs.
    quiet: Duration,
    deadline: Instant,
}

impl Arriving {
    pub(super) fn new(opened: Instant, options: &ReflectorOptions) -> Self {
        Self {
            quiet_since: opened,
            quiet: options.initial_events_timeout,
            deadline: opened + options.initial_events_total,
        }
    }

    pub(super) fn limit(&self) -> Instant {
        self.deadline.min(self.quiet_since + self.quiet)
    }

    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.limit() <= now
    }
}

/// The objects that have arrived, in order.
///
/// Most lists are sorted by key, and have no duplicates and no deletions. So objects are only
/// appended, and later versions and deletions are sorted out at the end, in slices. Nothing here
/// takes time in proportion to the list in one poll.
pub(super) struct Arrived<T> {
    items: Vec<T>,
    /// Deleted keys, each with the number of items before its last deletion.
    deleted: BTreeMap<Key, usize>,
    /// Each key is greater than the one before, so there are no duplicates.
    is_sorted: bool,
    /// Remove duplicates at this number of items.
    check_at: usize,
}

impl<T> Default for Arrived<T> {
    fn default() -> Self {
        Self {
            items: Vec::new(),
            deleted: BTreeMap::new(),
            is_sorted: true,
            check_at: UNCHECKED_MAX,
        }
    }
}

impl<T: Keyed> Arrived<T> {
    /// Adds a version of an object. The last version of a key counts.
    pub(super) fn add(&mut self, item: T) {
        self.is_sorted &= self.items.last().is_none_or(|last| last.key() < item.key());
        self.items.push(item);
    }

    /// Removes an object.
    pub(super) fn remove(&mut self, key: Key) {
        self.deleted.insert(key, self.items.len());
    }

    /// The number of objects, with duplicates.
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// Limits the memory that duplicates and deletions take. To be called after each addition or
    /// removal, or after a bounded number of them.
    pub(super) async fn check(&mut self) {
        if self.items.len().max(self.deleted.len()) >= self.check_at {
            self.compact().await;
            self.check_at = UNCHECKED_MAX.max(2 * self.items.len());
        }
    }

    /// The objects, one per key, in the order in which their last versions arrived.
    pub(super) async fn finish(mut self) -> Vec<T> {
        self.compact().await;
        self.items
    }

    /// Removes duplicates and deleted objects.
    async fn compact(&mut self) {
        if self.is_sorted && self.deleted.is_empty() {
            return;
        }
        let mut is_kept = vec![false; self.items.len()];
        let (mut seen, mut slices) = (BTreeSet::new(), Slices::default());
        for (n, item) in self.items.iter().enumerate().rev() {
            let is_deleted = self.deleted.get(item.key()).is_some_and(|before| n < *before);
            is_kept[n] = !is_deleted && seen.insert(item.key().clone());
            slices.next().await;
        }
        let mut kept = Vec::new();
        for (n, item) in std::mem::take(&mut self.items).into_iter().enumerate() {
            if is_kept[n] {
                kept.push(item);
            }
            slices.next().await;
        }
        self.items = kept;
        // Freed in slices, too.
        let deleted = std::mem::take(&mut self.deleted).into_keys();
        for key in seen.into_iter().chain(deleted) {
            drop(key);
            slices.next().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;
    use crate::slices::OBJECTS_PER_POLL_MAX;
    use crate::testing::record;
    use futures::FutureExt;
    use proptest::prelude::*;

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    proptest! {
        /// REF-11 b: the result is what a map by key would hold, whatever arrives in any order.
        #[test]
        fn ref_11b_arrived_objects_are_a_map_by_key(
            steps in prop::collection::vec((0_u8..6, 0_u8..3), 0..40),
            check_at in 1_usize..50,
        ) {
            let mut arrived = Arrived::<Record> { check_at, ..Arrived::default() };
            let mut map = BTreeMap::new();
            for (version, (name, kind)) in steps.into_iter().enumerate() {
                let one = record(&format!("o{name}"), version as u64 + 1);
                if kind > 0 {
                    arrived.add(one.clone());
                    map.insert(one.key.clone(), one);
                } else {
                    arrived.remove(one.key.clone());
                    map.remove(&one.key);
                }
                if arrived.len().max(arrived.deleted.len()) >= check_at {
                    run(arrived.compact());
                }
            }
            let mut finished = run(arrived.finish());
            finished.sort_by(|a, b| a.key.cmp(&b.key));
            prop_assert_eq!(finished, map.into_values().collect::<Vec<_>>());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn duplicates_are_removed_a_slice_at_a_time() {
        let mut arrived = Arrived::<Record> { check_at: 10_000, ..Arrived::default() };
        let one = record("a", 1);
        for n in 0..50_000 {
            let name = ["a", "b"][n % 2];
            arrived.add(record(name, 1));
            let mut check = Box::pin(arrived.check());
            let mut n_polls = 0;
            while check.as_mut().now_or_never().is_none() {
                n_polls += 1;
            }
            assert!(n_polls == 0 || n_polls >= 10_000 / OBJECTS_PER_POLL_MAX, "{n_polls}");
        }
        let finished = arrived.finish().await;
        assert_eq!(finished.iter().filter(|record| record.key == one.key).count(), 1);
    }
}
