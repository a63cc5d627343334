//! What a watcher is interested in, as far as changes can be looked up by it.
use super::Field;
use crate::catalog::Resource;
use bytes::Bytes;
use std::sync::Arc;

/// Every change that a watcher may get an event of is of an object that is, or was, in here. It may
/// say more than the watcher selects, never less.
#[derive(Debug, Clone, Default)]
pub(crate) struct Interest {
    /// The one key there is.
    pub(crate) only: Option<Bytes>,
    /// The one namespace.
    pub(crate) namespace: Option<Box<str>>,
    /// What every selected object has, each by itself: the watcher is found by one of them. None:
    /// it looks at every change.
    pub(crate) terms: Vec<Term>,
}
/// Something that a selector requires of an object.
#[derive(Debug, Clone)]
pub(crate) enum Term {
    /// Its name.
    Name(Box<str>),
    /// A label, with one of these values.
    Label(Box<str>, Vec<Box<str>>),
    /// A field as a row serves it, with this value.
    Field(Arc<Resource>, Field, Box<str>),
}
