//! A stored object with its index values.
use super::index::Values;
use super::tree::HasKey;
use crate::key::Key;
use crate::object::Raw;
use std::sync::Arc;

/// An object, with its values in the indexes.
#[derive(Clone)]
pub(super) struct Held {
    pub(super) object: Raw,
    /// One element per index; `None` if there is no value in any.
    values: Option<Arc<Values>>,
}

impl Held {
    pub(super) fn new(object: Raw, values: Values) -> Self {
        let has_values = values.iter().any(|values| !values.is_empty());
        Self { object, values: has_values.then(|| Arc::new(values)) }
    }

    /// The same object with the values of one more index.
    pub(super) fn with(&self, n_before: usize, values: Box<[Arc<str>]>) -> Self {
        let mut all: Values = (0..n_before).map(|n| self.values(n).into()).collect();
        all.push(values);
        Self::new(self.object.clone(), all)
    }

    /// The same version in another form.
    pub(super) fn exchanged(&self, object: Raw) -> Self {
        Self { object, values: self.values.clone() }
    }

    /// The values in one index.
    pub(super) fn values(&self, index: usize) -> &[Arc<str>] {
        self.values.as_ref().and_then(|values| values.get(index)).map_or(&[], |values| values)
    }
}

impl HasKey for Held {
    fn key(&self) -> &Key {
        self.object.key()
    }
}

impl HasKey for Raw {
    fn key(&self) -> &Key {
        self.key()
    }
}
