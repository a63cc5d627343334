//! The interest of a watcher: the properties that changes are looked up by, field labels included
//! (spec: api-server §8).
use super::Item;
use crate::catalog::{Resource, SelectableField};
use crate::convert;
use bytes::Bytes;
use setpoint_object::{ApiError, skim};
use std::borrow::Cow;
use std::sync::Arc;

/// The objects that a watcher may get events of. It may cover more objects than the watcher
/// selects, never fewer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Interest {
    /// The only key.
    pub(crate) only: Option<Bytes>,
    /// The only namespace.
    pub(crate) namespace: Option<Box<str>>,
    /// Properties that every selected object has. The watcher is indexed by one of them. If empty,
    /// the watcher checks every change.
    pub(crate) terms: Vec<Term>,
}
/// A property that a selector requires of an object.
#[derive(Debug, Clone)]
pub(crate) enum Term {
    /// Its name.
    Name(Box<str>),
    /// A label, with one of these values.
    Label(Box<str>, Vec<Box<str>>),
    /// A field as a row serves it, with this value.
    Field(Arc<Resource>, Field, Box<str>),
}

/// The path of a field label's value in an object as a row serves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Field {
    path: Path,
    or_path: Option<Path>,
    /// The text for a missing value.
    absent: &'static str,
}
type Path = Arc<[Box<str>]>;

impl From<&SelectableField> for Field {
    fn from(field: &SelectableField) -> Self {
        let SelectableField { path, or_path, absent, .. } = field.clone();
        Self { path, or_path, absent }
    }
}
impl Field {
    /// The value.
    ///
    /// # Errors
    ///
    /// The object cannot be served by this row.
    pub(crate) fn value<'i>(
        &self,
        resource: &Resource,
        item: &'i Item,
    ) -> Result<Cow<'i, str>, ApiError> {
        if item.is_converted() {
            return Ok(self.value_in(&item.value));
        }
        Ok(match convert::members(resource, &item.value, item.revision)? {
            Cow::Borrowed(bytes) => self.value_in(bytes),
            Cow::Owned(bytes) => Cow::Owned(self.value_in(&bytes).into_owned()),
        })
    }
    fn value_in<'b>(&self, object: &'b [u8]) -> Cow<'b, str> {
        let scalar = |path: &Path| {
            let path: Vec<&str> = path.iter().map(|name| &**name).collect();
            skim::scalar(object, &path).filter(|text| !text.is_empty())
        };
        let value = scalar(&self.path).or_else(|| self.or_path.as_ref().and_then(scalar));
        value.unwrap_or(Cow::Borrowed(self.absent))
    }
}
