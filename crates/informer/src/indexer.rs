//! The cache: objects by key, and keys by whatever index functions say of them.
//!
//! # Theory
//!
//! One owner writes through an [`Indexer`]; anybody reads through a [`Lister`]. The state is a
//! persistent map behind one lock that a reader holds only to look up a key or to copy a reference:
//! it takes a [`Snapshot`] for anything longer, is never in the way of the writer, and the writer
//! is in its for as long as one transaction puts its objects in their places. Every read answers
//! from one snapshot (IDX-3).
//!
//! Index functions run once per write, and without any lock: they may read the cache and call its
//! informer. The values they gave are kept with the
//! object, so that taking it out of an index never depends on what a function says later; a
//! function that fails rejects the write, and the indices stay in step with the objects (IDX-5).
//! One that panics gives no value: the object is in the cache, and not in that index.

mod freshness;
mod held;
mod index;
mod lister;
mod snapshot;
mod transaction;
mod tree;

pub use freshness::AtLeastError;
pub use index::IndexError;
pub(crate) use index::{Asked, Function, Functions, IndexFn, ObjectIndexFn, values_of};
pub use lister::{Lister, NamespaceLister, ReadError};
pub use snapshot::{Objects, Snapshot, UnknownIndex};
pub use transaction::Write;

use crate::broken::{Broken, Rule};
use crate::key::Key;
use crate::object::{Object, Raw, Untyped};
use crate::status::Panics;
use freshness::Announcer;
use held::Held;
use index::{Index, Values};
use parking_lot::RwLock;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use tree::Tree;

/// The name of the index by namespace. It exists in every cache, at no cost: objects are ordered by
/// namespace (IDX-12).
pub const NAMESPACE_INDEX: &str = "namespace";

/// The writing end of a cache. There is one; [`Indexer::lister`] gives the reading ends.
pub struct Indexer<K> {
    state: Arc<RwLock<Arc<State>>>,
    pub(crate) broken: Broken,
    pub(crate) panics: Panics,
    announcer: Announcer,
    /// Additions come in no order: their versions are not the cache's.
    is_replaying: bool,
    /// In the order of the indices in the state.
    functions: Functions,
    of: PhantomData<fn() -> K>,
    /// What was taken in before there was a dictionary is packed.
    is_packed: bool,
}

impl<K> fmt::Debug for Indexer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.snapshot(), f)
    }
}

/// Everything a cache knows at one moment. Cloning is cheap: the maps share their nodes.
#[derive(Clone)]
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
    /// The function fails for an object that is in the cache.
    #[error(transparent)]
    Function(#[from] IndexError),
    /// The informer that owns the cache has ended.
    #[error(transparent)]
    Stopped(#[from] crate::status::Stopped),
}

impl<K> Default for Indexer<K> {
    fn default() -> Self {
        let state = State {
            objects: Tree::default(),
            indices: Vec::new(),
            resource_version: Arc::from(""),
        };
        Self {
            state: Arc::new(RwLock::new(Arc::new(state))),
            functions: Arc::new([]),
            of: PhantomData,
            is_packed: false,
            broken: Broken::default(),
            panics: Panics::default(),
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
        Snapshot::of(self.state.read().clone())
    }

    /// The present state, for nobody's type.
    pub(crate) fn raw_snapshot(&self) -> Snapshot<Untyped> {
        Snapshot::of(self.state.read().clone())
    }

    /// Adds indices over the objects that are there and those to come: all of them or none (IDX-6).
    ///
    /// # Errors
    /// When a name is taken, or a function fails for an object.
    pub fn add_indices(
        &mut self,
        functions: impl IntoIterator<Item = (Arc<str>, ObjectIndexFn<K>)>,
    ) -> Result<(), AddIndexError>
    where
        K: 'static,
    {
        self.add_raw_indices(functions.into_iter().map(|(name, function)| {
            let function: IndexFn = Arc::new(move |object: &Raw| function(&object.cast()));
            (name, function)
        }))
    }

    /// [`add_indices`](Self::add_indices), of functions of nobody's type.
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
                ask_again(&function, &snapshot, &mut filed)?;
                self.add_index(&snapshot, &function, &mut filed);
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

    /// A function under a name that is free.
    pub(crate) fn function(
        &self,
        name: Arc<str>,
        function: IndexFn,
    ) -> Result<Function, IndexExists> {
        let is_taken = self.functions.iter().any(|known| known.name == name);
        if is_taken || &*name == NAMESPACE_INDEX {
            return Err(IndexExists(name));
        }
        Ok(Function::new(name, function, self.panics.clone()))
    }

    /// Adds an index whose function was asked about everything in this snapshot. Says whether that
    /// is still the cache; nothing is done otherwise.
    pub(crate) fn add_index(
        &mut self,
        of: &Snapshot<Untyped>,
        function: &Function,
        filed: &mut Filed,
    ) -> bool {
        let state = self.state.read().clone();
        if !Arc::ptr_eq(&state, &of.0) {
            return false;
        }
        let mut state = State::clone(&state);
        let mut index = Index::new(function.clone());
        let n_before = state.indices.len();
        let held =
            state.objects.iter().zip(std::mem::take(filed)).map(|(held, (_, mut values))| {
                index.file(&held.object, &[], &mut values);
                held.with(n_before, values)
            });
        let objects = Tree::from_sorted(held.collect::<Vec<_>>());
        state.objects = objects;
        state.indices.push(index);
        self.functions = self.functions.iter().cloned().chain([function.clone()]).collect();
        *self.state.write() = Arc::new(state);
        true
    }

    /// The functions of the indices: who asks them holds no lock.
    pub(crate) fn functions(&self) -> &Functions {
        &self.functions
    }

    /// Puts one object in, and gives what it replaces.
    ///
    /// # Errors
    /// When an index function fails; nothing has changed then.
    pub fn upsert(&mut self, object: Object<K>) -> Result<Option<Object<K>>, IndexError> {
        let object: Raw = object.into_type();
        let values = values_of(&*self.functions, &object)?;
        self.pack_held(&object);
        let how = self.how();
        let old = Arc::make_mut(&mut self.state.write()).put(object, values, how);
        old.iter().for_each(Object::left);
        Ok(old.map(Object::into_type))
    }

    /// Takes one object out. A `resource_version` that is not empty becomes the cache's (IDX-10).
    pub fn remove(&mut self, key: &Key, resource_version: &str) -> Option<Object<K>> {
        let old = Arc::make_mut(&mut self.state.write()).take(key, resource_version);
        old.iter().for_each(Object::left);
        old.map(Object::into_type)
    }

    /// Makes the cache hold exactly these objects, in one step (IDX-8), and gives those that were
    /// rejected.
    ///
    /// A rejected object leaves its key as it was. Of two objects with one key the later counts. An
    /// object that is already held in the same version keeps its place in memory.
    pub fn replace(&mut self, objects: Vec<Object<K>>, resource_version: &str) -> Vec<IndexError> {
        let functions = self.functions.clone();
        let ask = |object: Raw| {
            let values = values_of(&*functions, &object);
            (object, values)
        };
        let objects = objects.into_iter().map(Object::into_type).collect();
        self.replace_with(objects, |object| object, ask, resource_version)
    }

    /// [`replace`](Self::replace), by objects whose functions were asked already.
    pub(crate) fn replace_asked(
        &mut self,
        objects: Vec<(Raw, Asked)>,
        resource_version: &str,
    ) -> Vec<IndexError> {
        self.replace_with(objects, |(object, _)| object, |asked| asked, resource_version)
    }

    fn replace_with<T>(
        &mut self,
        mut objects: Vec<T>,
        object_of: impl Fn(&T) -> &Raw,
        ask: impl Fn(T) -> (Raw, Asked),
        resource_version: &str,
    ) -> Vec<IndexError> {
        let old = self.raw_snapshot();
        let mut rejected = Vec::new();
        let mut indices: Vec<Index> = self.functions.iter().cloned().map(Index::new).collect();
        // A list comes almost in this order, so that there is little to sort.
        objects.sort_by(|a, b| tree::compare(object_of(a).key(), object_of(b).key()));
        let mut held = Vec::with_capacity(objects.len());
        let mut objects = objects.into_iter().peekable();
        while let Some(object) = objects.next() {
            let key = object_of(&object).key();
            if objects.peek().is_some_and(|next| object_of(next).key() == key) {
                continue;
            }
            let (object, asked) = ask(object);
            let before = old.0.objects.get(object.key().into());
            let object = match before {
                Some(before) if is_same_version(&before.object, &object) => before.object.clone(),
                Some(before) => {
                    before.object.left();
                    object
                }
                None => object,
            };
            let object = object.repacked().unwrap_or(object);
            self.is_packed |= object.is_packed();
            let (object, mut values) = match (asked, before) {
                (Ok(values), _) => (object, values),
                (Err(error), None) => {
                    rejected.push(error);
                    continue;
                }
                (Err(error), Some(before)) => {
                    rejected.push(error);
                    let kept = (0..indices.len()).map(|n| before.values(n).into()).collect();
                    (before.object.clone(), kept)
                }
            };
            for (index, values) in indices.iter_mut().zip(&mut values) {
                index.file(&object, &[], values);
            }
            held.push(Held::new(object, values));
        }
        let objects = Tree::from_sorted(held);
        let resource_version = Arc::from(resource_version);
        *self.state.write() = Arc::new(State { objects, indices, resource_version });
        rejected
    }

    /// How writes are to be taken now.
    fn how(&self) -> How {
        How { moves_version: !self.is_replaying, keeps_old: self.broken.is(Rule::IndexKeepsOld) }
    }

    /// The first object that comes packed says that there is a dictionary now: packs what is held
    /// plain, which is as much as it was made of.
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

    /// Notes that the cache is complete up to this resourceVersion (IDX-10).
    pub fn bookmark(&mut self, resource_version: &str) {
        Arc::make_mut(&mut self.state.write()).reach(resource_version);
    }
}

/// What a function says of each object of a snapshot, in their order.
pub(crate) type Filed = Vec<(Raw, Box<[Arc<str>]>)>;

/// Asks a function about a snapshot's objects. `filed` is what it said of an earlier one: of what
/// has not changed since it is not asked again.
pub(crate) fn ask_again(
    function: &Function,
    snapshot: &Snapshot<Untyped>,
    filed: &mut Filed,
) -> Result<(), IndexError> {
    let mut before = std::mem::take(filed).into_iter().peekable();
    for object in snapshot.iter() {
        let is_less = |(known, _): &(Raw, _)| tree::compare(known.key(), object.key()).is_lt();
        while before.next_if(is_less).is_some() {}
        let known = before
            .next_if(|(known, _)| known.key() == object.key() && is_same_version(known, &object));
        let values = known.map_or_else(|| function.values(&object), |(_, values)| Ok(values))?;
        filed.push((object, values));
    }
    Ok(())
}

/// How a write is taken.
#[derive(Debug, Clone, Copy)]
struct How {
    /// Its version becomes the cache's.
    moves_version: bool,
    /// A rule that is broken on purpose.
    keeps_old: bool,
}

impl State {
    fn reach(&mut self, resource_version: &str) {
        if !resource_version.is_empty() {
            self.resource_version = Arc::from(resource_version);
        }
    }

    fn put(&mut self, object: Raw, mut values: Values, how: How) -> Option<Raw> {
        if how.moves_version {
            self.reach(object.resource_version());
        }
        if self.indices.is_empty() {
            return self.objects.insert(Held::new(object, values)).map(|held| held.object);
        }
        let old = self.objects.get(object.key().into()).cloned();
        for (n, (index, values)) in self.indices.iter_mut().zip(&mut values).enumerate() {
            let old = old.as_ref().filter(|_| !how.keeps_old);
            let old = old.map_or(&[][..], |held| held.values(n));
            index.file(&object, old, values);
        }
        self.objects.insert(Held::new(object, values));
        old.map(|held| held.object)
    }

    /// Puts another form of a version that is held in its place.
    fn exchange(&mut self, object: Raw) {
        let Some(held) = self.objects.get(object.key().into()) else { return };
        let held = held.exchanged(object.clone());
        for (n, index) in self.indices.iter_mut().enumerate() {
            let values = held.values(n);
            index.file(&object, values, &mut values.to_vec());
        }
        self.objects.insert(held);
    }

    fn take(&mut self, key: &Key, resource_version: &str) -> Option<Raw> {
        self.reach(resource_version);
        let held = self.objects.remove(key.into())?;
        for (n, index) in self.indices.iter_mut().enumerate() {
            held.values(n).iter().for_each(|value| index.forget(key, value));
        }
        Some(held.object)
    }
}

fn is_same_version(held: &Raw, object: &Raw) -> bool {
    !held.resource_version().is_empty()
        && held.resource_version() == object.resource_version()
        && held.uid() == object.uid()
}

#[cfg(test)]
mod tests;
