//! The cache: objects by key and by index.
//!
//! # Theory
//!
//! One owner writes through an [`Indexer`]; any number of [`Lister`]s read. The state is a
//! persistent map behind one lock. A reader holds the lock only to look up one key or to clone a
//! reference; for anything longer it takes a [`Snapshot`], which never blocks the writer. The
//! writer holds the lock while one transaction inserts its objects, of which there are at most
//! [`BATCH_MAX`](crate::delta::BATCH_MAX) in an informer; a relist is built beside the state, and
//! swapped in by one assignment. Every read answers from one state (IDX-3).
//!
//! Index functions run once per write and without any lock, so they may read the cache and call its
//! informer. Their values are stored with the object: removing it from an index never depends on
//! what a function returns later. If a function fails, the write is rejected, so indexes and
//! objects agree (IDX-5). If it panics, or if its type does not fit the object, it has no values:
//! the object is stored, but not in that index. A cache without the object would tell all its
//! readers, whatever their types, that the object does not exist.

mod freshness;
mod index;
mod lister;
mod query;
mod readable;
mod relist;
mod snapshot;
mod transaction;
mod tree;

pub use freshness::AtLeastError;
pub use index::IndexError;
pub(crate) use index::{
    Function, Functions, IndexFn, IndexResult, Looked, NoValues, ObjectIndexFn, values_of,
};
pub use lister::{Lister, NamespaceLister, ReadError};
pub use query::{Query, SelectError, Selected};
pub use readable::Readable;
pub(crate) use relist::{Relist, Relisted, Swapped, free};
pub(crate) use snapshot::ObjectCursor;
pub use snapshot::{Objects, Snapshot, UnknownIndex};
pub use transaction::Write;

use crate::failure::Failures;
use crate::key::Key;
use crate::object::{Object, Raw, Untyped};
use freshness::Announcer;
use index::{Held, Index, Values};
use parking_lot::RwLock;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use tree::{Builder, Tree};

/// The name of the index by namespace. Every cache has it at no cost, since objects are sorted by
/// namespace (IDX-12).
pub const NAMESPACE_INDEX: &str = "namespace";

/// The name of the index by labels, which a cache has if it is asked for:
/// [`SharedInformerBuilder::label_index`](crate::SharedInformerBuilder::label_index). Its values
/// are `key=value`. What reads by a label selector that requires one value of a label then looks
/// only at objects with that label.
pub const LABEL_INDEX: &str = "metadata.labels";

/// The only writer of a cache; [`Indexer::lister`] returns readers.
pub struct Indexer<K> {
    state: Arc<RwLock<Arc<State>>>,
    pub(crate) failures: Failures,
    announcer: Announcer,
    /// Added objects arrive in any order, so their versions are not the cache's.
    is_replaying: bool,
    /// In the order of the indexes in the state.
    functions: Functions,
    of: PhantomData<fn() -> K>,
    /// Whether the objects stored before the dictionary have been packed.
    is_packed: bool,
}

impl<K> fmt::Debug for Indexer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.snapshot(), f)
    }
}

/// The content of a cache at one moment. Cloning is cheap: the trees share their nodes.
#[derive(Clone, Default)]
pub(crate) struct State {
    objects: Tree<Held>,
    indices: Vec<Index>,
    resource_version: Arc<str>,
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
    /// The function fails for a stored object.
    #[error(transparent)]
    Function(#[from] IndexError),
    /// The informer that owns the cache has ended.
    #[error(transparent)]
    Stopped(#[from] crate::failure::Stopped),
}

impl<K> Default for Indexer<K> {
    fn default() -> Self {
        Self {
            state: Arc::default(),
            functions: Arc::new([]),
            of: PhantomData,
            is_packed: false,
            failures: Failures::default(),
            announcer: Announcer::default(),
            is_replaying: false,
        }
    }
}

impl<K> Indexer<K> {
    /// An empty cache without indexes.
    pub fn new() -> Self {
        Self::default()
    }

    /// A reader.
    pub fn lister(&self) -> Lister<K> {
        Lister::new(self.state.clone(), self.announcer.0.clone())
    }

    /// The present state.
    pub fn snapshot(&self) -> Snapshot<K> {
        Snapshot::of(self.state.read().clone())
    }

    /// The present state, untyped.
    pub(crate) fn raw_snapshot(&self) -> Snapshot<Untyped> {
        Snapshot::of(self.state.read().clone())
    }

    /// Adds indexes over the stored objects and all later ones: all of these indexes or none
    /// (IDX-6).
    ///
    /// # Errors
    /// If a name is taken, or a function fails for an object.
    pub fn add_indices(
        &mut self,
        functions: impl IntoIterator<Item = (Arc<str>, ObjectIndexFn<K>)>,
    ) -> Result<(), AddIndexError>
    where
        K: 'static,
    {
        self.add_raw_indices(functions.into_iter().map(|(name, function)| {
            let call = move |object: &Raw, _: &mut Looked| {
                function(&object.cast()).map_err(NoValues::Refused)
            };
            let function = IndexFn::new(call);
            (name, function)
        }))
    }

    /// [`add_indices`](Self::add_indices) with untyped functions.
    pub(crate) fn add_raw_indices(
        &mut self,
        functions: impl IntoIterator<Item = (Arc<str>, IndexFn)>,
    ) -> Result<(), AddIndexError> {
        let (before, n_before) = (self.raw_snapshot(), self.functions.len());
        for (name, function) in functions {
            let added = self.function(name, function).map_err(AddIndexError::from);
            let added = added.and_then(|function| {
                let mut filed = Vec::new();
                let snapshot = self.raw_snapshot();
                update_values(&function, &snapshot, &mut filed)?;
                self.add_index(&snapshot, with_index(&snapshot, &function, &mut filed));
                Ok(())
            });
            if let Err(error) = added {
                let functions = self.functions.iter().take(n_before).cloned();
                self.functions = functions.collect();
                *self.state.write() = before.0;
                return Err(error);
            }
        }
        Ok(())
    }

    /// A function under a name that is not taken.
    pub(crate) fn function(
        &self,
        name: Arc<str>,
        function: IndexFn,
    ) -> Result<Function, IndexExists> {
        let is_taken = self.functions.iter().any(|known| known.name == name);
        if is_taken || !function.may_have(&name) {
            return Err(IndexExists(name));
        }
        Ok(Function::new(name, function, self.failures.clone()))
    }

    /// Adds an index that [`with_index`] built over this snapshot, if that is still the present
    /// state. Returns whether it is.
    pub(crate) fn add_index(&mut self, of: &Snapshot<Untyped>, new: Snapshot<Untyped>) -> bool {
        let mut state = self.state.write();
        if !Arc::ptr_eq(&state, &of.0) {
            return false;
        }
        self.functions = new.0.indices.iter().map(|index| index.function.clone()).collect();
        *state = new.0;
        true
    }

    /// The functions of the indexes, to be called without a lock.
    pub(crate) fn functions(&self) -> &Functions {
        &self.functions
    }

    /// Inserts an object and returns the one that it replaces.
    ///
    /// # Errors
    /// If an index function fails; the cache is unchanged then.
    pub fn upsert(&mut self, object: Object<K>) -> Result<Option<Object<K>>, IndexError> {
        let object: Raw = object.into_type();
        let values = values_of(&*self.functions, &object)?;
        self.pack_held(&object);
        let old = {
            let mut state = self.state.write();
            let state = Arc::make_mut(&mut state);
            if !self.is_replaying {
                state.reach(object.resource_version());
            }
            state.put(object, values)
        };
        old.iter().for_each(Object::on_removed);
        Ok(old.map(Object::into_type))
    }

    /// Removes and returns an object. A `resource_version` that is not empty becomes the cache's
    /// (IDX-10).
    pub fn remove(&mut self, key: &Key, resource_version: &str) -> Option<Object<K>> {
        let old = {
            let mut state = self.state.write();
            let state = Arc::make_mut(&mut state);
            state.reach(resource_version);
            state.take(key)
        };
        old.iter().for_each(Object::on_removed);
        old.map(Object::into_type)
    }

    /// Packs the objects that are stored as plain JSON, when the first packed object shows that
    /// there is a dictionary. They are few, since the dictionary was trained on them.
    fn pack_held(&mut self, arriving: &Raw) {
        if self.is_packed || !arriving.is_packed() {
            return;
        }
        self.is_packed = true;
        let held = self.raw_snapshot();
        let packed: Vec<Raw> = held.iter().filter_map(|object| object.repacked()).collect();
        drop(held);
        let mut state = self.state.write();
        let state = Arc::make_mut(&mut state);
        packed.into_iter().for_each(|object| state.exchange(object));
    }

    /// Records that the cache is complete up to this resourceVersion (IDX-10).
    pub fn bookmark(&mut self, resource_version: &str) {
        Arc::make_mut(&mut self.state.write()).reach(resource_version);
    }
}

/// The values of a function for each object of a snapshot, in their order.
pub(crate) type Filed = Vec<(Raw, Box<[Arc<str>]>)>;

/// Calls a function with the objects of a snapshot. `filed` has the values for an earlier snapshot,
/// which are reused for objects that have not changed since.
pub(crate) fn update_values(
    function: &Function,
    snapshot: &Snapshot<Untyped>,
    filed: &mut Filed,
) -> Result<(), IndexError> {
    let mut before = std::mem::take(filed).into_iter().peekable();
    for object in snapshot.iter() {
        let is_less = |(known, _): &(Raw, _)| known.key() < object.key();
        while before.next_if(is_less).is_some() {}
        let known = before
            .next_if(|(known, _)| known.key() == object.key() && is_same_version(known, &object));
        let values = match known {
            Some((_, values)) => values,
            None => function.values(&object, &mut Looked::default())?,
        };
        filed.push((object, values));
    }
    Ok(())
}

/// A snapshot with one more index. `filed` has the values of its function for all objects; it keeps
/// them, for a later snapshot.
pub(crate) fn with_index(
    of: &Snapshot<Untyped>,
    function: &Function,
    filed: &mut Filed,
) -> Snapshot<Untyped> {
    let mut index = Index::new(function.clone());
    let n_before = of.0.indices.len();
    let mut objects = Builder::default();
    for (held, (_, values)) in of.0.objects.iter().zip(filed) {
        values.iter_mut().for_each(|value| index.put(&held.object, value));
        let pushed = objects.push(held.with(n_before, values.clone()));
        debug_assert!(pushed.is_ok(), "a snapshot is sorted");
    }
    let indices = of.0.indices.iter().cloned().chain([index]).collect();
    let resource_version = of.0.resource_version.clone();
    Snapshot::of(Arc::new(State { objects: objects.finish(), indices, resource_version }))
}

impl State {
    fn reach(&mut self, resource_version: &str) {
        if !resource_version.is_empty() {
            self.resource_version = Arc::from(resource_version);
        }
    }

    /// Inserts an object. The cache's version stays.
    fn put(&mut self, object: Raw, values: Values) -> Option<Raw> {
        if self.indices.is_empty() {
            return self.objects.insert(Held::new(object, values)).map(|held| held.object);
        }
        self.insert(object, values)
    }

    /// Inserts an object with its index values.
    fn insert(&mut self, object: Raw, mut values: Values) -> Option<Raw> {
        let old = self.objects.get(object.key().into()).cloned();
        for (n, (index, values)) in self.indices.iter_mut().zip(&mut values).enumerate() {
            let old = old.as_ref().map_or(&[][..], |held| held.values(n));
            index.file(&object, old, values);
        }
        self.objects.insert(Held::new(object, values));
        old.map(|held| held.object)
    }

    /// Replaces a stored object by another form of the same version.
    fn exchange(&mut self, object: Raw) {
        let Some(held) = self.objects.get(object.key().into()) else { return };
        let held = held.exchanged(object.clone());
        for (n, index) in self.indices.iter_mut().enumerate() {
            let values = held.values(n);
            index.file(&object, values, &mut values.to_vec());
        }
        self.objects.insert(held);
    }

    /// Removes an object. The cache's version stays.
    fn take(&mut self, key: &Key) -> Option<Raw> {
        let held = self.objects.remove(key.into())?;
        for (n, index) in self.indices.iter_mut().enumerate() {
            held.values(n).iter().for_each(|value| index.remove(key, value));
        }
        Some(held.object)
    }
}

fn is_same_version(held: &Raw, object: &Raw) -> bool {
    held.has_version_of(object) && held.uid() == object.uid()
}

#[cfg(test)]
mod tests;
