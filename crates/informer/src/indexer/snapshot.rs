//! A cache at one moment.
use super::{NAMESPACE_INDEX, State};
use crate::key::Key;
use crate::object::Object;
use std::fmt;
use std::sync::Arc;

/// The whole cache at one moment: what several reads that must agree with each other are made on. Taking and keeping one copies
/// nothing.
pub struct Snapshot<K>(pub(super) Arc<State<K>>);

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
        Self(self.0.clone())
    }
}

/// There is no index of that name (IDX-4).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no index {0:?}")]
pub struct UnknownIndex(pub String);

impl<K> Snapshot<K> {
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
    pub fn get(&self, key: &Key) -> Option<&Object<K>> {
        self.0.objects.get(key)
    }

    /// Every object, by namespace and name.
    pub fn iter(&self) -> impl Iterator<Item = &Object<K>> {
        self.0.objects.values()
    }

    /// The objects of one namespace, by name. The empty namespace is that of cluster-scoped objects.
    pub fn namespace<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Object<K>> {
        self.0
            .objects
            .range(Key::new(namespace, "")..)
            .take_while(move |(key, _)| &*key.namespace == namespace)
            .map(|(_, object)| object)
    }

    /// The objects that an index files under a value, by key.
    ///
    /// # Errors
    /// When there is no such index.
    pub fn by_index(&self, index: &str, value: &str) -> Result<Vec<Object<K>>, UnknownIndex> {
        if index == NAMESPACE_INDEX {
            return Ok(self.namespace(value).cloned().collect());
        }
        let index = self.0.indices.get(index).ok_or_else(|| UnknownIndex(index.to_owned()))?;
        Ok(index.keys(value).filter_map(|key| self.get(key)).cloned().collect())
    }

    /// The keys that an index files under a value, sorted.
    ///
    /// # Errors
    /// When there is no such index.
    pub fn index_keys(&self, index: &str, value: &str) -> Result<Vec<Key>, UnknownIndex> {
        if index == NAMESPACE_INDEX {
            return Ok(self.namespace(value).map(|object| object.key().clone()).collect());
        }
        let index = self.0.indices.get(index).ok_or_else(|| UnknownIndex(index.to_owned()))?;
        Ok(index.keys(value).cloned().collect())
    }

    /// The values of an index under which there is anything, sorted; none for an unknown index (IDX-4).
    pub fn index_values(&self, index: &str) -> Vec<Arc<str>> {
        if index == NAMESPACE_INDEX {
            let mut values: Vec<Arc<str>> =
                self.0.objects.keys().map(|key| key.namespace.clone()).collect();
            values.dedup();
            return values;
        }
        self.0.indices.get(index).into_iter().flat_map(|index| index.distinct().cloned()).collect()
    }

    /// Whether an index would file an object under a value; `None` when there is no such index, or its function fails.
    pub(crate) fn is_filed(&self, index: &str, value: &str, object: &Object<K>) -> Option<bool> {
        if index == NAMESPACE_INDEX {
            return Some(object.namespace() == value);
        }
        let values = self.0.indices.get(index)?.values(object).ok()?;
        Some(values.iter().any(|held| **held == *value))
    }
}
