//! The order of `fieldsV1`: that of structured-merge-diff's path elements.
//!
//! Items of lists are in the order of their keys, and numbers are compared as numbers: the port 80
//! comes before 443.

use crate::apply::PathElement;

/// A name of a `fieldsV1`, as it is ordered.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Name<'a> {
    /// The set itself, and what is no element.
    Other(&'a str),
    Element(PathElement<'a>),
}

impl<'a> Name<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        match PathElement::from_wire(text) {
            Ok(Some(element)) => Self::Element(element),
            _ => Self::Other(text),
        }
    }
}
