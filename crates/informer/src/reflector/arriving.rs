//! The objects of a streamed list, while it goes on.
use super::ReflectorOptions;
use crate::delta::Keyed;
use crate::key::Key;
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// From so many objects on, the places of their keys are known, so that a server which sends the
/// same ones for ever fills no memory.
const UNINDEXED_MAX: usize = 1 << 20;

/// How long the objects of a streamed list may go on arriving (REF-13).
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

/// The objects that have arrived, one per key.
///
/// A list says nothing twice and takes nothing back, so the objects are only kept in a row; where
/// each key stands is found out when something else than an addition comes, or when the row is
/// long.
pub(super) struct Collected<T> {
    items: Vec<T>,
    places: Option<HashMap<Key, usize>>,
}

impl<T> Default for Collected<T> {
    fn default() -> Self {
        Self { items: Vec::new(), places: None }
    }
}

impl<T: Keyed> Collected<T> {
    /// Takes in what exists.
    pub(super) fn add(&mut self, item: T) {
        if self.places.is_some() || self.items.len() >= UNINDEXED_MAX {
            self.change(item);
        } else {
            self.items.push(item);
        }
    }

    /// Takes in what is new of an object.
    pub(super) fn change(&mut self, item: T) {
        let (items, places) = self.indexed();
        put(items, places, item);
    }

    /// An object is gone.
    pub(super) fn remove(&mut self, key: &Key) {
        let (items, places) = self.indexed();
        if let Some(place) = places.remove(key) {
            items.swap_remove(place);
            if let Some(moved) = items.get(place) {
                places.insert(moved.key().clone(), place);
            }
        }
    }

    /// What there is, in no order.
    pub(super) fn objects(&mut self) -> &mut [T] {
        &mut self.items
    }

    /// By key; of what a list said twice the later.
    pub(super) fn finish(self) -> Vec<T> {
        let mut items = self.items;
        items.sort_by(|a, b| a.key().cmp(b.key()));
        items.dedup_by(|later, earlier| {
            let is_same = later.key() == earlier.key();
            if is_same {
                std::mem::swap(later, earlier);
            }
            is_same
        });
        items
    }

    fn indexed(&mut self) -> (&mut Vec<T>, &mut HashMap<Key, usize>) {
        let Self { items, places } = self;
        let places = places.get_or_insert_with(|| {
            let mut places = HashMap::with_capacity(items.len());
            for item in std::mem::take(items) {
                put(items, &mut places, item);
            }
            places
        });
        (items, places)
    }
}

fn put<T: Keyed>(items: &mut Vec<T>, places: &mut HashMap<Key, usize>, item: T) {
    match places.get(item.key()) {
        Some(place) => items[*place] = item,
        None => {
            places.insert(item.key().clone(), items.len());
            items.push(item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;
    use crate::testing::record;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// REF-11 b: whatever comes in whatever order, what is collected is what a map by key would
        /// hold.
        #[test]
        fn ref_11b_what_is_collected_is_a_map_by_key(
            steps in prop::collection::vec((0_u8..6, 0_u8..3), 0..40),
        ) {
            let mut collected = Collected::<Record>::default();
            let mut map = BTreeMap::new();
            for (version, (name, kind)) in steps.into_iter().enumerate() {
                let one = record(&format!("o{name}"), version as u64 + 1);
                match kind {
                    0 => collected.add(one.clone()),
                    1 => collected.change(one.clone()),
                    _ => {
                        collected.remove(&one.key);
                        map.remove(&one.key);
                        continue;
                    }
                }
                map.insert(one.key.clone(), one);
            }
            prop_assert_eq!(collected.finish(), map.into_values().collect::<Vec<_>>());
        }
    }
}
