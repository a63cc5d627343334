//! Replaces the whole cache: builds the new state beside the old one, then swaps them.
//!
//! # Theory
//!
//! A relist of a million objects takes seconds, and nothing may wait for it. So readers read the
//! old state until the new one is complete; the swap holds the lock for one assignment; and each
//! step here handles one object, so that the caller can pause between steps. [`free`] frees the old
//! state in steps, too.
//!
//! An object that the cache holds in the same version keeps its place in memory and its index
//! values.
use super::index::Held;
use super::index::{Index, IndexError, Posting, Values, values_of};
use super::snapshot::{ObjectCursor, Snapshot};
use super::tree::{Builder, Teardown};
use super::{Indexer, State, is_same_version};
use crate::object::{Object, Raw};
use crate::slices::turn;
use std::sync::Arc;

/// The largest number of nodes that one poll frees. A node has at most 32 objects.
const NODES_PER_POLL_MAX: usize = 2;

/// A new state under construction.
pub(crate) struct Relist {
    // Inputs.
    old: Arc<State>,
    // Outputs.
    indices: Vec<Index>,
    /// The objects that came in the order of their keys.
    objects: Builder<Held>,
    /// The other objects, in the order in which they came.
    unordered: Vec<(Raw, Values)>,
    rejected: Vec<IndexError>,
    is_packed: bool,
}

/// A new state. Complete once [`merge`](Self::merge) returns `false`.
pub(crate) struct Relisted {
    old: Arc<State>,
    new: State,
    unordered: std::vec::IntoIter<(Raw, Values)>,
    rejected: Vec<IndexError>,
    is_packed: bool,
}

/// The cache has been replaced.
pub(crate) struct Swapped<K> {
    /// The state before.
    pub(crate) old: Snapshot<K>,
    /// The objects that an index function rejected.
    pub(crate) rejected: Vec<IndexError>,
}

impl Relist {
    fn new(old: Arc<State>, rejected: Vec<IndexError>) -> Self {
        let indices = old.indices.iter().map(|index| Index::new(index.function.clone())).collect();
        let (objects, unordered) = (Builder::default(), Vec::new());
        Self { old, indices, objects, unordered, rejected, is_packed: false }
    }

    /// Adds the next object of the list. Calls the index functions unless the cache holds this
    /// version.
    ///
    /// A rejected object leaves its key as it was. Of two objects with one key the later counts.
    pub(crate) fn add(&mut self, object: Raw) {
        let before = self.old.objects.get(object.key().into());
        let unchanged = before.filter(|before| is_same_version(&before.object, &object));
        let functions = self.indices.iter().map(|index| &index.function);
        let (object, mut values) = match (unchanged, before) {
            (Some(held), _) => self.unchanged(held),
            (None, before) => match (values_of(functions, &object), before) {
                (Ok(values), before) => {
                    before.iter().for_each(|before| before.object.on_removed());
                    (object, values)
                }
                (Err(error), None) => {
                    self.rejected.push(error);
                    return;
                }
                (Err(error), Some(before)) => {
                    let before = self.unchanged(before);
                    self.rejected.push(error);
                    before
                }
            },
        };
        let object = object.repacked().unwrap_or(object);
        self.is_packed |= object.is_packed();
        if !self.objects.follows(object.key()) {
            self.unordered.push((object, values));
            return;
        }
        for (index, values) in self.indices.iter_mut().zip(&mut values) {
            values.iter_mut().for_each(|value| index.put(&object, value));
        }
        let pushed = self.objects.push(Held::new(object, values));
        debug_assert!(pushed.is_ok(), "the key follows the last one");
    }

    fn unchanged(&self, held: &Held) -> (Raw, Values) {
        let values = (0..self.indices.len()).map(|n| held.values(n).into()).collect();
        (held.object.clone(), values)
    }

    /// The new state, after the last object.
    pub(crate) fn finish(self, resource_version: &str) -> Relisted {
        let Self { old, indices, objects, unordered, rejected, is_packed } = self;
        let resource_version = Arc::from(resource_version);
        Relisted {
            old,
            new: State { objects: objects.finish(), indices, resource_version },
            unordered: unordered.into_iter(),
            rejected,
            is_packed,
        }
    }
}

impl Relisted {
    /// Inserts one of the objects that came out of order. `false` when there is none left.
    pub(crate) fn merge(&mut self) -> bool {
        let Some((object, values)) = self.unordered.next() else { return false };
        self.new.insert(object, values);
        true
    }

    /// The objects of the new state, to build it once more: an index has been added.
    pub(crate) fn objects(&self) -> ObjectCursor {
        ObjectCursor::first(&self.new)
    }

    /// The new state, to be freed.
    pub(crate) fn into_snapshot<K>(self) -> Snapshot<K> {
        Snapshot::of(Arc::new(self.new))
    }
}

impl<K> Indexer<K> {
    /// Starts to build a new state.
    pub(crate) fn relist(&self) -> Relist {
        Relist::new(self.state.read().clone(), Vec::new())
    }

    /// Starts again with the present indexes.
    pub(crate) fn relist_again(&self, relisted: &mut Relisted) -> Relist {
        Relist::new(self.state.read().clone(), std::mem::take(&mut relisted.rejected))
    }

    /// Makes the new state the cache's.
    ///
    /// # Errors
    /// If an index has been added since the construction started: returns the state.
    pub(crate) fn swap(&mut self, relisted: Relisted) -> Result<Swapped<K>, Box<Relisted>> {
        debug_assert!(relisted.unordered.len() == 0, "all objects have been merged");
        let Relisted { old, new, unordered, rejected, is_packed } = relisted;
        let new = Arc::new(new);
        let mut state = self.state.write();
        if !Arc::ptr_eq(&state, &old) {
            drop(state);
            let new = Arc::unwrap_or_clone(new);
            return Err(Box::new(Relisted { old, new, unordered, rejected, is_packed }));
        }
        *state = new;
        drop(state);
        self.is_packed |= is_packed;
        Ok(Swapped { old: Snapshot::of(old), rejected })
    }

    /// Makes the cache hold exactly these objects, in one step (IDX-8). Returns the errors of the
    /// rejected objects.
    ///
    /// A rejected object leaves its key as it was. Of two objects with one key the later counts. An
    /// object that the cache holds in the same version keeps its place in memory. Runs in one piece
    /// on the caller's thread; an informer does the same in slices.
    pub fn replace(&mut self, objects: Vec<Object<K>>, resource_version: &str) -> Vec<IndexError> {
        let mut relist = self.relist();
        objects.into_iter().for_each(|object| relist.add(object.into_type()));
        let mut relisted = relist.finish(resource_version);
        while relisted.merge() {}
        // This is the only writer, so the swap succeeds.
        self.swap(relisted).map(|swapped| swapped.rejected).unwrap_or_default()
    }
}

/// Frees states without other owners, a few objects in each poll.
pub(crate) async fn free<K>(snapshots: impl IntoIterator<Item = Snapshot<K>>) {
    let mut objects = Teardown::default();
    let mut postings = Teardown::<Posting>::default();
    for state in snapshots.into_iter().filter_map(|snapshot| Arc::into_inner(snapshot.0)) {
        objects.add(state.objects);
        state.indices.into_iter().for_each(|index| postings.add(index.postings));
    }
    let mut by_value = Teardown::default();
    for n in 1_usize.. {
        if let Some(objects) = objects.step() {
            drop(objects);
        } else if let Some(objects) = by_value.step() {
            drop(objects);
        } else if let Some(postings) = postings.step() {
            postings.into_iter().for_each(|posting| by_value.add(posting.objects));
        } else {
            return;
        }
        if n.is_multiple_of(NODES_PER_POLL_MAX) {
            turn().await;
        }
    }
}
