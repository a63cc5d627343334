//! A cache at one moment.
use super::held::Held;
use super::index::Index;
use super::tree::{Iter, KeyRef, compare};
use super::{NAMESPACE_INDEX, State};
use crate::key::Key;
use crate::object::{Object, Raw};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// The whole cache at one moment: what several reads that must agree with each other are made on.
/// Taking and keeping one copies nothing.
pub struct Snapshot<K>(pub(super) Arc<State>, PhantomData<fn() -> K>);

/// How much there is, not what: a cache may be large.
impl<K> fmt::Debug for Snapshot<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("resource_version", &self.0.resource_version)
            .field("n_objects", &self.0.objects.len())
            .finish_non_exhaustive()
    }
}

impl<K> Clone for Snapshot<K> {
    fn clone(&self) -> Self {
        Self::of(self.0.clone())
    }
}

/// There is no index of that name (IDX-4).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no index {0:?}")]
pub struct UnknownIndex(pub String);

impl<K> Snapshot<K> {
    pub(super) fn of(state: Arc<State>) -> Self {
        Self(state, PhantomData)
    }

    /// The resourceVersion up to which the cache is complete; empty before the first list (IDX-10).
    pub fn resource_version(&self) -> &str {
        &self.0.resource_version
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.0.objects.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.objects.is_empty()
    }

    /// One object.
    pub fn get(&self, key: &Key) -> Option<Object<K>> {
        self.raw(key).map(Object::cast)
    }

    /// One object, for nobody's type.
    pub(crate) fn raw(&self, key: &Key) -> Option<&Raw> {
        self.0.objects.get(key.into()).map(|held| &held.object)
    }

    /// Every object, for nobody's type.
    pub(crate) fn all_raw(&self) -> impl Iterator<Item = &Raw> {
        self.0.objects.iter().map(|held| &held.object)
    }

    /// Every object, by namespace and name.
    pub fn iter(&self) -> Objects<'_, K> {
        Objects::of(Kind::All(self.0.objects.iter()))
    }

    /// The objects of one namespace, by name. The empty namespace is that of cluster-scoped
    /// objects.
    pub fn namespace<'a>(&'a self, namespace: &'a str) -> Objects<'a, K> {
        let first = KeyRef { namespace, name: "" };
        Objects::of(Kind::Namespace(self.0.objects.from(first), namespace))
    }

    /// The objects that an index files under a value, by key. Nothing is copied.
    ///
    /// # Errors
    /// When there is no such index (IDX-4).
    pub fn by_index<'a>(
        &'a self,
        index: &str,
        value: &'a str,
    ) -> Result<Objects<'a, K>, UnknownIndex> {
        if index == NAMESPACE_INDEX {
            return Ok(self.namespace(value));
        }
        let objects = self.index(index)?.objects(value);
        Ok(Objects::of(objects.map_or(Kind::None, Kind::Index)))
    }

    /// The objects that an index files under any of some values: each once, by key (IDX-3).
    ///
    /// With the values that an index function gives to an object, this is client-go's `Index(name,
    /// object)`.
    ///
    /// # Errors
    /// When there is no such index (IDX-4).
    pub fn by_index_any<'a>(
        &'a self,
        index: &str,
        values: impl IntoIterator<Item = &'a str>,
    ) -> Result<Vec<Object<K>>, UnknownIndex> {
        let mut objects = Vec::new();
        self.by_index(index, "")?;
        for value in values {
            objects.extend(self.by_index(index, value)?);
        }
        objects.sort_by(|a, b| compare(a.key(), b.key()));
        objects.dedup_by(|a, b| a.key() == b.key());
        Ok(objects)
    }

    /// The keys that an index files under a value, sorted.
    ///
    /// # Errors
    /// When there is no such index (IDX-4).
    pub fn index_keys(&self, index: &str, value: &str) -> Result<Vec<Key>, UnknownIndex> {
        Ok(self.by_index(index, value)?.map(|object| object.key().clone()).collect())
    }

    /// The values of an index under which there is anything, sorted; none for an unknown index
    /// (IDX-4).
    pub fn index_values(&self, index: &str) -> Vec<Arc<str>> {
        if index == NAMESPACE_INDEX {
            let mut values: Vec<Arc<str>> =
                self.iter().map(|object| object.key().namespace.clone()).collect();
            values.dedup();
            return values;
        }
        self.index(index).map_or_else(|_| Vec::new(), |index| index.distinct().cloned().collect())
    }

    /// Whether an index would file an object under a value; `None` when there is no such index, or
    /// its function fails.
    pub(crate) fn is_filed(&self, index: &str, value: &str, object: &Object<K>) -> Option<bool> {
        if index == NAMESPACE_INDEX {
            return Some(object.namespace() == value);
        }
        let values = self.index(index).ok()?.function.values(&object.cast()).ok()?;
        Some(values.iter().any(|held| **held == *value))
    }

    fn index(&self, name: &str) -> Result<&Index, UnknownIndex> {
        let index = self.0.indices.iter().find(|index| &*index.function.name == name);
        index.ok_or_else(|| UnknownIndex(name.to_owned()))
    }
}

/// Objects of a [`Snapshot`], by key.
pub struct Objects<'a, K>(Kind<'a>, PhantomData<fn() -> K>);

enum Kind<'a> {
    None,
    All(Iter<'a, Held>),
    Namespace(Iter<'a, Held>, &'a str),
    Index(Iter<'a, Raw>),
}

impl<K> fmt::Debug for Objects<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Objects").finish_non_exhaustive()
    }
}

impl<'a, K> Objects<'a, K> {
    fn of(kind: Kind<'a>) -> Self {
        Self(kind, PhantomData)
    }

    /// The next one, for nobody's type: nothing is counted.
    fn next_raw(&mut self) -> Option<&'a Raw> {
        match &mut self.0 {
            Kind::None => None,
            Kind::All(all) => all.next().map(|held| &held.object),
            Kind::Namespace(from, namespace) => from
                .next()
                .map(|held| &held.object)
                .filter(|object| object.namespace() == *namespace),
            Kind::Index(objects) => objects.next(),
        }
    }
}

impl<K> Iterator for Objects<'_, K> {
    type Item = Object<K>;

    fn next(&mut self) -> Option<Object<K>> {
        self.next_raw().map(Object::cast)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match &self.0 {
            Kind::None => (0, Some(0)),
            Kind::All(all) => all.size_hint(),
            Kind::Namespace(from, _) => (0, from.size_hint().1),
            Kind::Index(objects) => objects.size_hint(),
        }
    }
}
