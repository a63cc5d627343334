//! A cache at one moment.
use super::index::Held;
use super::index::{Index, Looked, label_value};
use super::tree::{Cursor, Iter, KeyRef, Tree};
use super::{LABEL_INDEX, NAMESPACE_INDEX, State};
use crate::key::Key;
use crate::object::{Object, Raw};
use setpoint_object::label::Selector;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

/// The whole cache at one moment, for several reads that must agree with each other. Taking one
/// copies nothing. While it exists, the cache keeps what it replaces, and copies what it changes.
pub struct Snapshot<K>(pub(super) Arc<State>, PhantomData<fn() -> K>);

/// Shows the number of objects, not the objects.
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

    /// Of an empty cache.
    pub(crate) fn empty() -> Self {
        Self::of(Arc::default())
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

    /// One object, untyped.
    pub(crate) fn raw(&self, key: &Key) -> Option<&Raw> {
        self.0.objects.get(key.into()).map(|held| &held.object)
    }

    /// A cursor at the first object of a namespace or after it.
    pub(super) fn cursor(&self, namespace: &str) -> ObjectCursor {
        ObjectCursor(Cursor::from(&self.0.objects, KeyRef { namespace, name: "" }))
    }

    /// The objects of a value in an index; `None` if there are none.
    pub(super) fn posting(
        &self,
        index: &str,
        value: &str,
    ) -> Result<Option<&Tree<Raw>>, UnknownIndex> {
        Ok(self.index(index)?.tree(value))
    }

    /// Whether two snapshots are of the same state.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// A cursor at the first object, or at the object with this key or after it.
    pub(crate) fn cursor_from(&self, key: Option<&Key>) -> ObjectCursor {
        match key {
            Some(key) => ObjectCursor(Cursor::from(&self.0.objects, key.into())),
            None => ObjectCursor::first(&self.0),
        }
    }

    /// All objects, in the order of their keys.
    pub fn iter(&self) -> Objects<'_, K> {
        Objects::of(Kind::All(self.0.objects.iter()))
    }

    /// The objects of one namespace, by name. Cluster-scoped objects have the empty namespace.
    pub fn namespace<'a>(&'a self, namespace: &'a str) -> Objects<'a, K> {
        let first = KeyRef { namespace, name: "" };
        Objects::of(Kind::Namespace(self.0.objects.from(first), namespace))
    }

    /// The objects of a value in an index, by key. Copies nothing.
    ///
    /// # Errors
    /// If there is no such index (IDX-4).
    pub fn by_index<'a>(
        &'a self,
        index: &str,
        value: &'a str,
    ) -> Result<Objects<'a, K>, UnknownIndex> {
        if index == NAMESPACE_INDEX {
            return Ok(self.namespace(value));
        }
        Ok(Objects::posted(self.index(index)?.tree(value), None))
    }

    /// The objects of a range of an index's values, by value and then by key: for values that are
    /// made to be sorted, such as numbers of one width. An object with several of the values comes
    /// several times. Copies nothing; finds the first one in logarithmic time.
    ///
    /// # Errors
    /// If there is no such index (IDX-4); the one by namespace has no ranges.
    pub fn index_range<'a>(
        &'a self,
        index: &str,
        values: Range<&'a str>,
    ) -> Result<impl Iterator<Item = Object<K>> + 'a, UnknownIndex> {
        let trees = self.index(index)?.range(values);
        Ok(trees.flat_map(|tree| Objects::posted(Some(tree), None)))
    }

    /// The objects that may match a selector, of all namespaces or of one, by key: those with the
    /// rarest label that it requires if there is an index by labels, else all.
    pub(super) fn candidates<'a>(
        &'a self,
        selector: &Selector,
        namespace: Option<&'a str>,
    ) -> Objects<'a, K> {
        match (self.labelled(selector), namespace) {
            (Some(posting), _) => Objects::posted(posting, namespace),
            (None, Some(namespace)) => self.namespace(namespace),
            (None, None) => self.iter(),
        }
    }

    /// The objects with the rarest label that a selector requires, or none. `None` if there is no
    /// index by labels, or no label of one value is required.
    pub(super) fn labelled(&self, selector: &Selector) -> Option<Option<&Tree<Raw>>> {
        if selector.is_everything() {
            return None;
        }
        let index = self.index(LABEL_INDEX).ok()?;
        let postings = selector.required().map(|(key, value)| index.tree(&label_value(key, value)));
        postings.min_by_key(|posting| posting.map_or(0, Tree::len))
    }

    /// The objects of any of these values in an index: each object once, by key (IDX-3).
    ///
    /// With the values of an object this is client-go's `Index(name, object)`.
    ///
    /// # Errors
    /// If there is no such index (IDX-4).
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
        objects.sort_by(|a, b| a.key().cmp(b.key()));
        objects.dedup_by(|a, b| a.key() == b.key());
        Ok(objects)
    }

    /// The keys of the objects of a value in an index, sorted.
    ///
    /// # Errors
    /// If there is no such index (IDX-4).
    pub fn index_keys(&self, index: &str, value: &str) -> Result<Vec<Key>, UnknownIndex> {
        Ok(self.by_index(index, value)?.map(|object| object.key().clone()).collect())
    }

    /// The values of an index that have objects, sorted; none for an unknown index (IDX-4).
    pub fn index_values(&self, index: &str) -> Vec<Arc<str>> {
        if index == NAMESPACE_INDEX {
            let mut values: Vec<Arc<str>> =
                self.iter().map(|object| object.key().namespace.clone()).collect();
            values.dedup();
            return values;
        }
        self.index(index).map_or_else(|_| Vec::new(), |index| index.distinct().cloned().collect())
    }

    /// Whether an index would list an object under a value; `None` if there is no such index, or
    /// its function fails.
    pub(crate) fn would_list(&self, index: &str, value: &str, object: &Object<K>) -> Option<bool> {
        if index == NAMESPACE_INDEX {
            return Some(object.namespace() == value);
        }
        let function = &self.index(index).ok()?.function;
        let values = function.values(&object.cast(), &mut Looked::default()).ok()?;
        Some(values.iter().any(|held| **held == *value))
    }

    fn index(&self, name: &str) -> Result<&Index, UnknownIndex> {
        let index = self.0.indices.iter().find(|index| &*index.function.name == name);
        index.ok_or_else(|| UnknownIndex(name.to_owned()))
    }
}

/// A position among the objects of a state, which it keeps alive.
pub(crate) struct ObjectCursor(Cursor<Held>);

impl ObjectCursor {
    pub(super) fn first(state: &State) -> Self {
        Self(Cursor::first(&state.objects))
    }

    /// The object at the cursor; `None` at the end.
    pub(crate) fn peek(&self) -> Option<&Raw> {
        self.0.peek().map(|held| &held.object)
    }

    /// Moves to the next object.
    pub(crate) fn advance(&mut self) {
        self.0.advance();
    }
}

/// Objects of a [`Snapshot`], by key.
pub struct Objects<'a, K>(Kind<'a>, PhantomData<fn() -> K>);

enum Kind<'a> {
    None,
    All(Iter<'a, Held>),
    Namespace(Iter<'a, Held>, &'a str),
    Index(Iter<'a, Raw>),
    IndexIn(Iter<'a, Raw>, &'a str),
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

    /// The objects of a value in an index, of all namespaces or of one.
    fn posted(posting: Option<&'a Tree<Raw>>, namespace: Option<&'a str>) -> Self {
        Self::of(match (posting, namespace) {
            (None, _) => Kind::None,
            (Some(posting), None) => Kind::Index(posting.iter()),
            (Some(posting), Some(namespace)) => {
                Kind::IndexIn(posting.from(KeyRef { namespace, name: "" }), namespace)
            }
        })
    }

    /// The next object, untyped and borrowed.
    fn next_raw(&mut self) -> Option<&'a Raw> {
        match &mut self.0 {
            Kind::None => None,
            Kind::All(all) => all.next().map(|held| &held.object),
            Kind::Namespace(from, namespace) => from
                .next()
                .map(|held| &held.object)
                .filter(|object| object.namespace() == *namespace),
            Kind::Index(objects) => objects.next(),
            Kind::IndexIn(from, namespace) => {
                from.next().filter(|object| object.namespace() == *namespace)
            }
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
            Kind::IndexIn(from, _) => (0, from.size_hint().1),
        }
    }
}
