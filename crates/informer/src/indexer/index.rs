//! One index: objects by value.
use super::tree::{Iter, Tree};
use crate::key::Key;
use crate::object::{Object, Raw, Untyped};
use crate::status::Panics;
use imbl::OrdMap;
use std::sync::Arc;

/// What an index function says of an object: zero or more values (IDX-2).
pub(crate) type IndexFn = ObjectIndexFn<Untyped>;

/// The same, over objects of a type.
pub(crate) type ObjectIndexFn<K> =
    Arc<dyn Fn(&Object<K>) -> Result<Vec<String>, String> + Send + Sync>;

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

/// The function of an index. It is others' code, and runs without the lock.
#[derive(Clone)]
pub(crate) struct Function {
    pub(super) name: Arc<str>,
    function: IndexFn,
    panics: Panics,
}

impl Function {
    pub(super) fn new(name: Arc<str>, function: IndexFn, panics: Panics) -> Self {
        Self { name, function, panics }
    }

    /// Asks the function; values come back sorted and without duplicates. None if it panics.
    pub(super) fn values(&self, object: &Raw) -> Result<Box<[Arc<str>]>, IndexError> {
        let what = format_args!("the function of the index {:?}", self.name);
        let said = self.panics.catch(what, object.key(), || (self.function)(object));
        let mut values = said.unwrap_or(Ok(Vec::new())).map_err(|reason| IndexError {
            index: self.name.clone(),
            key: object.key().clone(),
            reason,
        })?;
        values.sort_unstable();
        values.dedup();
        Ok(values.into_iter().map(Arc::from).collect())
    }
}

/// The values under which an object is filed, sorted, for each index in the order in which they
/// were added.
pub(crate) type Values = Vec<Box<[Arc<str>]>>;

/// The functions of all indices, in their order.
pub(crate) type Functions = Arc<[Function]>;

/// What all functions said of an object.
pub(crate) type Asked = Result<Values, IndexError>;

/// What all functions say of an object.
pub(crate) fn values_of<'a>(
    functions: impl IntoIterator<Item = &'a Function>,
    object: &Raw,
) -> Asked {
    functions.into_iter().map(|function| function.values(object)).collect()
}

/// The objects of one index. Each value has a tree of its own, so that a listing by value goes
/// through nothing else.
#[derive(Clone)]
pub(super) struct Index {
    pub(super) function: Function,
    objects: OrdMap<Arc<str>, Tree<Raw>>,
}

impl Index {
    /// Over no objects.
    pub(super) fn new(function: Function) -> Self {
        Self { function, objects: OrdMap::new() }
    }

    /// Files an object under the new values instead of the old ones. A value that is known already
    /// comes to share its text.
    pub(super) fn file(&mut self, object: &Raw, old: &[Arc<str>], new: &mut [Arc<str>]) {
        for gone in old.iter().filter(|value| new.binary_search(value).is_err()) {
            self.forget(object.key(), gone);
        }
        for value in new {
            if let Some((known, _)) = self.objects.get_key_value(value) {
                *value = known.clone();
            }
            self.objects.entry(value.clone()).or_default().insert(object.clone());
        }
    }

    /// Takes an object out from under a value.
    pub(super) fn forget(&mut self, key: &Key, value: &Arc<str>) {
        // IDX-7: a value without objects goes, or values that are rarely repeated pile up.
        if let Some(objects) = self.objects.get_mut(value) {
            objects.remove(key.into());
            if objects.is_empty() {
                self.objects.remove(value);
            }
        }
    }

    pub(super) fn objects(&self, value: &str) -> Option<Iter<'_, Raw>> {
        self.objects.get(value).map(Tree::iter)
    }

    pub(super) fn distinct(&self) -> impl Iterator<Item = &Arc<str>> {
        self.objects.keys()
    }
}
