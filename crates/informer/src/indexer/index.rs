//! One index: keys by value.
use crate::key::Key;
use crate::object::Object;
use imbl::{OrdMap, OrdSet};
use std::sync::Arc;

/// What an index function says of an object: zero or more values (IDX-2).
pub(crate) type IndexFn<K> = Arc<dyn Fn(&Object<K>) -> Result<Vec<String>, String> + Send + Sync>;

/// An index function failed, and the object was not taken in (IDX-5).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("index {key} by {index:?}: {reason}")]
#[non_exhaustive]
pub struct IndexError {
    /// The index.
    pub index: Arc<str>,
    /// The object.
    pub key: Key,
    /// What the function said.
    pub reason: String,
}

pub(crate) struct Index<K> {
    name: Arc<str>,
    function: IndexFn<K>,
    keys: OrdMap<Arc<str>, OrdSet<Key>>,
    /// The values under which a key is filed; absent when there are none.
    values: OrdMap<Key, Box<[Arc<str>]>>,
}

impl<K> Clone for Index<K> {
    fn clone(&self) -> Self {
        Self {
            name: self.name.clone(),
            function: self.function.clone(),
            keys: self.keys.clone(),
            values: self.values.clone(),
        }
    }
}

impl<K> Index<K> {
    pub(super) fn new(name: Arc<str>, function: IndexFn<K>) -> Self {
        Self { name, function, keys: OrdMap::new(), values: OrdMap::new() }
    }

    /// The same index over no objects.
    pub(super) fn emptied(&self) -> Self {
        Self::new(self.name.clone(), self.function.clone())
    }

    /// Asks the function; values come back without duplicates.
    pub(super) fn values(&self, object: &Object<K>) -> Result<Box<[Arc<str>]>, IndexError> {
        let mut values = (self.function)(object).map_err(|reason| IndexError {
            index: self.name.clone(),
            key: object.key().clone(),
            reason,
        })?;
        values.sort_unstable();
        values.dedup();
        Ok(values.into_iter().map(Arc::from).collect())
    }

    pub(super) fn insert(&mut self, key: &Key, values: Box<[Arc<str>]>) {
        for value in &values {
            self.keys.entry(value.clone()).or_default().insert(key.clone());
        }
        if !values.is_empty() {
            self.values.insert(key.clone(), values);
        }
    }

    pub(super) fn remove(&mut self, key: &Key) {
        for value in self.values.remove(key).iter().flatten() {
            // IDX-7: a value without keys goes, or values that are rarely repeated pile up.
            if let Some(keys) = self.keys.get_mut(value) {
                keys.remove(key);
                if keys.is_empty() {
                    self.keys.remove(value);
                }
            }
        }
    }

    /// The values under which a key is filed now.
    pub(super) fn values_of(&self, key: &Key) -> Box<[Arc<str>]> {
        self.values.get(key).cloned().unwrap_or_default()
    }

    pub(super) fn keys(&self, value: &str) -> impl Iterator<Item = &Key> {
        self.keys.get(value).into_iter().flatten()
    }

    pub(super) fn distinct(&self) -> impl Iterator<Item = &Arc<str>> {
        self.keys.keys()
    }
}
