//! The cache: objects by key, and keys by whatever index functions say of them.
//!
//! # Theory
//!
//! One owner writes through an [`Indexer`]; anybody reads through a [`Lister`]. The state is a persistent map behind one lock
//! that is held only to swap or to copy a reference: a reader takes a [`Snapshot`] and is never in the way of the writer, nor the
//! writer in its. Every read answers from one snapshot (IDX-3).
//!
//! Index functions run once per write. The values they gave are kept with the key, so that taking an object out of an index never
//! depends on what a function says later; a function that fails rejects the write, and the indices stay in step with the
//! objects (IDX-5).

mod freshness;
mod index;
mod lister;
mod snapshot;

pub use freshness::AtLeastError;
pub use index::IndexError;
pub(crate) use index::{Index, IndexFn};
pub use lister::{Lister, NamespaceLister, ReadError};
pub use snapshot::{Snapshot, UnknownIndex};

use crate::broken::{Broken, Rule};
use crate::key::Key;
use crate::object::Object;
use freshness::Announcer;
use imbl::OrdMap;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The name of the index by namespace. It exists in every cache, at no cost: objects are ordered by namespace (IDX-12).
pub const NAMESPACE_INDEX: &str = "namespace";

/// The writing end of a cache. There is one; [`Indexer::lister`] gives the reading ends.
pub struct Indexer<K> {
    state: Arc<RwLock<Arc<State<K>>>>,
    pub(crate) broken: Broken,
    announcer: Announcer,
    /// Additions come in no order: their versions are not the cache's.
    is_replaying: bool,
}

impl<K> fmt::Debug for Indexer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.snapshot(), f)
    }
}

/// Everything a cache knows at one moment. Cloning is cheap: the maps share their nodes.
pub(crate) struct State<K> {
    pub(crate) objects: OrdMap<Key, Object<K>>,
    pub(crate) indices: BTreeMap<Arc<str>, Index<K>>,
    pub(crate) resource_version: Arc<str>,
}

impl<K> Clone for State<K> {
    fn clone(&self) -> Self {
        Self {
            objects: self.objects.clone(),
            indices: self.indices.clone(),
            resource_version: self.resource_version.clone(),
        }
    }
}

/// An index cannot be added: its name is taken (IDX-6).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the index {0:?} exists already")]
pub struct IndexExists(pub Arc<str>);

/// Why [`Indexer::add_indices`] changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddIndexError {
    /// The name is taken.
    #[error(transparent)]
    Exists(#[from] IndexExists),
    /// The function fails for an object that is in the cache.
    #[error(transparent)]
    Function(#[from] IndexError),
    /// The informer that owns the cache has ended.
    #[error(transparent)]
    Stopped(#[from] crate::status::Stopped),
}

impl<K> Default for Indexer<K> {
    fn default() -> Self {
        Self {
            state: Arc::new(RwLock::new(Arc::new(State {
                objects: OrdMap::new(),
                indices: BTreeMap::new(),
                resource_version: Arc::from(""),
            }))),
            broken: Broken::default(),
            announcer: Announcer::default(),
            is_replaying: false,
        }
    }
}

impl<K> Indexer<K> {
    /// An empty cache without indices.
    pub fn new() -> Self {
        Self::default()
    }

    /// A reading end.
    pub fn lister(&self) -> Lister<K> {
        Lister::new(self.state.clone(), self.announcer.0.clone())
    }

    /// The present state.
    pub fn snapshot(&self) -> Snapshot<K> {
        Snapshot(self.state.read().clone())
    }

    /// Adds indices over the objects that are there and those to come: all of them or none (IDX-6).
    ///
    /// # Errors
    /// When a name is taken, or a function fails for an object.
    pub fn add_indices(
        &mut self,
        functions: impl IntoIterator<Item = (Arc<str>, IndexFn<K>)>,
    ) -> Result<(), AddIndexError> {
        let mut state = State::clone(&self.state.read());
        for (name, function) in functions {
            if &*name == NAMESPACE_INDEX || state.indices.contains_key(&name) {
                return Err(IndexExists(name).into());
            }
            let mut index = Index::new(name.clone(), function);
            for (key, object) in &state.objects {
                let values = index.values(object)?;
                index.insert(key, values);
            }
            state.indices.insert(name, index);
        }
        *self.state.write() = Arc::new(state);
        Ok(())
    }

    /// Puts one object in, and gives what it replaces.
    ///
    /// # Errors
    /// When an index function fails; nothing has changed then.
    pub fn upsert(&mut self, object: Object<K>) -> Result<Option<Object<K>>, IndexError> {
        let mut guard = self.state.write();
        let state = Arc::make_mut(&mut guard);
        let values = index_values(&state.indices, &object)?;
        let key = object.key().clone();
        for (index, values) in state.indices.values_mut().zip(values) {
            if !self.broken.is(Rule::IndexKeepsOld) {
                index.remove(&key);
            }
            index.insert(&key, values);
        }
        if !self.is_replaying && !object.resource_version().is_empty() {
            state.resource_version = Arc::from(object.resource_version());
        }
        Ok(state.objects.insert(key, object))
    }

    /// Takes one object out. A `resource_version` that is not empty becomes the cache's (IDX-10).
    pub fn remove(&mut self, key: &Key, resource_version: &str) -> Option<Object<K>> {
        let mut guard = self.state.write();
        let state = Arc::make_mut(&mut guard);
        if !resource_version.is_empty() {
            state.resource_version = Arc::from(resource_version);
        }
        for index in state.indices.values_mut() {
            index.remove(key);
        }
        state.objects.remove(key)
    }

    /// Makes the cache hold exactly these objects, in one step (IDX-8), and gives those that were rejected.
    ///
    /// A rejected object leaves its key as it was. Of two objects with one key the later counts. An object that is already held
    /// in the same version keeps its place in memory.
    pub fn replace(&mut self, objects: Vec<Object<K>>, resource_version: &str) -> Vec<IndexError> {
        let old = self.snapshot();
        let mut rejected = Vec::new();
        let mut state = State {
            objects: OrdMap::new(),
            indices: old.0.indices.iter().map(|(n, index)| (n.clone(), index.emptied())).collect(),
            resource_version: Arc::from(resource_version),
        };
        for object in objects {
            let held = old.0.objects.get(object.key());
            let object = match held {
                Some(held) if is_same_version(held, &object) => held.clone(),
                _ => object,
            };
            let (object, values) = match (index_values(&state.indices, &object), held) {
                (Ok(values), _) => (object, values),
                (Err(error), None) => {
                    rejected.push(error);
                    continue;
                }
                (Err(error), Some(held)) => {
                    rejected.push(error);
                    let kept = old.0.indices.values().map(|index| index.values_of(held.key()));
                    (held.clone(), kept.collect())
                }
            };
            let key = object.key().clone();
            for (index, values) in state.indices.values_mut().zip(values) {
                index.remove(&key);
                index.insert(&key, values);
            }
            state.objects.insert(key, object);
        }
        *self.state.write() = Arc::new(state);
        rejected
    }

    /// Notes that the cache is complete up to this resourceVersion (IDX-10).
    pub fn bookmark(&mut self, resource_version: &str) {
        Arc::make_mut(&mut self.state.write()).resource_version = Arc::from(resource_version);
    }
}

/// The values that each index gives to an object, in the order of the indices.
fn index_values<K>(
    indices: &BTreeMap<Arc<str>, Index<K>>,
    object: &Object<K>,
) -> Result<Vec<Box<[Arc<str>]>>, IndexError> {
    indices.values().map(|index| index.values(object)).collect()
}

fn is_same_version<K>(held: &Object<K>, object: &Object<K>) -> bool {
    !held.resource_version().is_empty()
        && held.resource_version() == object.resource_version()
        && held.uid() == object.uid()
}

#[cfg(test)]
mod tests;
