//! Where the values of field labels are found (spec: api-server §8).
use crate::cache::Item;
use crate::catalog::Resource;
use crate::convert;
use setpoint_object::{ApiError, skim};
use std::borrow::Cow;
use std::sync::Arc;

/// Where the value of a field label is found in an object as a row serves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Field {
    /// A member, with the text that stands for an absent one.
    Member(Arc<[Box<str>]>, &'static str),
    /// The first of several members that is not empty.
    First([&'static [&'static str]; 2]),
}

impl Field {
    pub(super) fn member(path: &str, absent: &'static str) -> Self {
        Self::Member(path.split('.').map(Box::from).collect(), absent)
    }
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
        Ok(match convert::members(resource, &item.value, item.revision)? {
            Cow::Borrowed(bytes) => self.value_in(bytes),
            Cow::Owned(bytes) => Cow::Owned(self.value_in(&bytes).into_owned()),
        })
    }
    fn value_in<'b>(&self, object: &'b [u8]) -> Cow<'b, str> {
        let scalar = |path: &[&str]| skim::scalar(object, path).filter(|text| !text.is_empty());
        match self {
            Self::Member(path, absent) => {
                let path: Vec<&str> = path.iter().map(|name| &**name).collect();
                scalar(&path).unwrap_or(Cow::Borrowed(absent))
            }
            Self::First(paths) => paths.iter().find_map(|path| scalar(path)).unwrap_or_default(),
        }
    }
}
