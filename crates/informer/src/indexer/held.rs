//! An object in its place in the cache.
use super::index::Values;
use super::tree::HasKey;
use crate::key::Key;
use crate::object::Object;
use std::sync::Arc;

/// An object, with the values under which the indices file it.
pub(super) struct Held<K> {
    pub(super) object: Object<K>,
    /// One element for each index; none when there is no index, or no value.
    values: Option<Arc<Values>>,
}

impl<K> Held<K> {
    pub(super) fn new(object: Object<K>, values: Values) -> Self {
        let is_filed = values.iter().any(|values| !values.is_empty());
        Self { object, values: is_filed.then(|| Arc::new(values)) }
    }

    /// The same object with the values of one more index.
    pub(super) fn with(&self, n_before: usize, values: Box<[Arc<str>]>) -> Self {
        let mut all: Values = (0..n_before).map(|n| self.values(n).into()).collect();
        all.push(values);
        Self::new(self.object.clone(), all)
    }

    /// Another form of the same version.
    pub(super) fn exchanged(&self, object: Object<K>) -> Self {
        Self { object, values: self.values.clone() }
    }

    /// The values in one index.
    pub(super) fn values(&self, index: usize) -> &[Arc<str>] {
        self.values.as_ref().and_then(|values| values.get(index)).map_or(&[], |values| values)
    }
}

impl<K> Clone for Held<K> {
    fn clone(&self) -> Self {
        Self { object: self.object.clone(), values: self.values.clone() }
    }
}

impl<K> HasKey for Held<K> {
    fn key(&self) -> &Key {
        self.object.key()
    }
}

impl<K> HasKey for Object<K> {
    fn key(&self) -> &Key {
        self.key()
    }
}
