//! Applies deltas to a store and reports the changes.
use crate::delta::{Batch, Delta, Keyed};
use crate::key::Key;
use hashbrown::HashSet;
use std::collections::BTreeMap;

/// The store of a hand-wired controller. `BTreeMap` by key implements it.
pub trait DeltaStore<T> {
    /// Inserts an object and returns the one that it replaces.
    fn put(&mut self, object: T) -> Option<T>;
    /// Removes and returns an object.
    fn remove(&mut self, key: &Key) -> Option<T>;
    /// Replaces the content by these objects, which have distinct keys, and returns the old
    /// content.
    fn replace(&mut self, objects: Vec<T>, resource_version: &str) -> Vec<T>;
    /// All objects.
    fn objects(&self) -> Vec<T>;
    /// Records that the store is complete up to a resourceVersion.
    fn bookmark(&mut self, resource_version: &str) {
        let _ = resource_version;
    }
}

impl<T: Keyed + Clone> DeltaStore<T> for BTreeMap<Key, T> {
    fn put(&mut self, object: T) -> Option<T> {
        self.insert(object.key().clone(), object)
    }

    fn remove(&mut self, key: &Key) -> Option<T> {
        BTreeMap::remove(self, key)
    }

    fn replace(&mut self, objects: Vec<T>, _resource_version: &str) -> Vec<T> {
        let new = objects.into_iter().map(|object| (object.key().clone(), object)).collect();
        std::mem::replace(self, new).into_values().collect()
    }

    fn objects(&self) -> Vec<T> {
        self.values().cloned().collect()
    }
}

/// One change of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change<T> {
    /// The object was not in the store.
    Added {
        /// The object.
        object: T,
        /// Whether it belongs to the first list (FIFO-23).
        in_initial_list: bool,
    },
    /// The object was in the store. A relist or a resync may report it unchanged.
    Updated {
        /// The old version.
        old: T,
        /// The new version.
        new: T,
    },
    /// The object was deleted; its final state.
    Deleted(T),
    /// The object is gone, but its deletion was missed. The last known state may be stale.
    DeletedFinalStateUnknown {
        /// The key.
        key: Key,
        /// The last known state, if any.
        last_known: Option<T>,
    },
}

impl<T: Keyed> Change<T> {
    /// The key of the object, deleted or not, for a work queue (HWC-2).
    pub fn key(&self) -> &Key {
        match self {
            Self::Added { object, .. } | Self::Deleted(object) => object.key(),
            Self::Updated { new, .. } => new.key(),
            Self::DeletedFinalStateUnknown { key, .. } => key,
        }
    }
}

/// Applies a batch of any queue to a store, and reports each change after it was made (EVT-1 to
/// EVT-7).
///
/// Whether a change is an addition depends on the store, not on the verb. Drops the batch at the
/// end, so that it is processed.
pub fn apply<T: Keyed + Clone>(
    batch: Batch<T>,
    store: &mut (impl DeltaStore<T> + ?Sized),
    mut report: impl FnMut(Change<T>),
) {
    let in_initial_list = batch.in_initial_list;
    for delta in batch {
        match delta {
            Delta::Added(object)
            | Delta::Updated(object)
            | Delta::Replaced(object)
            | Delta::Sync(object) => {
                let old = store.put(object.clone());
                report(present(old, object, in_initial_list));
            }
            Delta::Deleted(object) => {
                store.remove(object.key());
                report(Change::Deleted(object));
            }
            Delta::DeletedFinalStateUnknown { key, last_known } => {
                let stored = store.remove(&key);
                report(Change::DeletedFinalStateUnknown { key, last_known: last_known.or(stored) });
            }
            Delta::ReplacedAll { items, resource_version } => {
                replace_all(items, &resource_version, store, in_initial_list, &mut report);
            }
            Delta::SyncAll => {
                for object in store.objects() {
                    report(Change::Updated { old: object.clone(), new: object });
                }
            }
            Delta::Bookmark { resource_version } => store.bookmark(&resource_version),
        }
    }
}

/// EVT-4: changes the store at once, then reports deletions, and then the items in their order. Of
/// two objects with one key the later counts.
fn replace_all<T: Keyed + Clone>(
    mut items: Vec<T>,
    resource_version: &str,
    store: &mut (impl DeltaStore<T> + ?Sized),
    in_initial_list: bool,
    report: &mut impl FnMut(Change<T>),
) {
    let mut listed = HashSet::new();
    items.reverse();
    items.retain(|item| listed.insert(item.key().clone()));
    items.reverse();
    let old = store.replace(items.clone(), resource_version);
    let mut old: BTreeMap<Key, T> =
        old.into_iter().map(|object| (object.key().clone(), object)).collect();
    let gone = old.extract_if(.., |key, _| !listed.contains(key)).collect::<Vec<_>>();
    for (key, object) in gone {
        report(Change::DeletedFinalStateUnknown { key, last_known: Some(object) });
    }
    for object in items {
        let old = old.remove(object.key());
        report(present(old, object, in_initial_list));
    }
}

fn present<T>(old: Option<T>, object: T, in_initial_list: bool) -> Change<T> {
    match old {
        None => Change::Added { object, in_initial_list },
        Some(old) => Change::Updated { old, new: object },
    }
}
