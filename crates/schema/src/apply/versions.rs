//! The other versions of a kind: an entry is held to the fields of its own version.

use super::compare::Comparison;
use super::fieldset::FieldSet;
use super::managed::Entry;
use super::scope::Scope;
use super::types::Type;
use super::validate::validate_object;
use super::{Manager, Typing};
use crate::node::TypeSchema;
use serde_json::Value;
use setpoint_object::ApiError;
use std::collections::BTreeSet;
use std::fmt;

/// The other versions that a kind is served in.
pub trait Versions: fmt::Debug {
    /// The schema of another version, named as in `apiVersion`; `None`: it is not served.
    fn schema(&self, api_version: &str) -> Option<&TypeSchema>;
    /// An object in a version, also in that of the request, with all of its fields. managedFields
    /// need not be kept.
    ///
    /// # Errors
    ///
    /// The object cannot be converted, or not without waiting. An update compares the entries of
    /// such a version in the request's; an apply fails with this error. Who waits for conversions
    /// drops the result, and repeats the write when the object is there.
    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, ApiError>;
}

/// The versions that are not the request's. A client may send any number of entries.
fn distinct<'v>(
    manager: &Manager<'_>,
    api_versions: impl Iterator<Item = &'v str>,
) -> BTreeSet<&'v str> {
    api_versions.filter(|version| *version != manager.api_version).collect()
}

/// An object in a version, whose type is `ty`.
///
/// # Errors
///
/// It cannot be converted; or it has a field that the version does not declare, which a conversion
/// to and fro would lose.
pub(super) fn converted(
    others: &dyn Versions,
    object: &Value,
    api_version: &str,
    (ty, custom): (Type<'_>, bool),
) -> Result<Value, ApiError> {
    let converted = others.convert(object, api_version)?;
    if custom {
        validate_object(ty, &converted).map_err(ApiError::unclassified)?;
    }
    Ok(converted)
}

/// An error with what failed by it, in the reference's words.
pub(super) fn because(what: &str, error: &ApiError) -> ApiError {
    ApiError::unclassified(format!("{what}: {error}"))
}

/// A write in another version.
#[derive(Debug)]
pub(super) struct Elsewhere<'t> {
    api_version: String,
    schema: &'t TypeSchema,
    old: Value,
    new: Value,
}

/// The live object in another version.
#[derive(Debug)]
pub(super) struct Live<'t> {
    api_version: String,
    schema: &'t TypeSchema,
    object: Value,
}

impl<'t> Live<'t> {
    /// The object in each of these versions that is not the request's, and is served.
    ///
    /// # Errors
    ///
    /// It cannot be converted.
    pub(super) fn all<'v>(
        typing: &Typing<'t>,
        manager: &Manager<'_>,
        api_versions: impl Iterator<Item = &'v str>,
        live: &Value,
    ) -> Result<Vec<Self>, ApiError> {
        let Some(others) = typing.others else { return Ok(Vec::new()) };
        let in_version = |api_version: &str| {
            let schema = others.schema(api_version)?;
            let ty = Type::root(schema.view(), typing.custom);
            let object = converted(others, live, api_version, (ty, typing.custom));
            Some(object.map(|object| Self { api_version: api_version.to_owned(), schema, object }))
        };
        distinct(manager, api_versions).into_iter().filter_map(in_version).collect()
    }
}

impl<'t> Elsewhere<'t> {
    /// A write in each of these versions that is not the request's, as far as it can be converted
    /// now. `None`: a version does not have all fields of an object, so that what is owned in it
    /// cannot be compared.
    pub(super) fn convertible<'v>(
        typing: &Typing<'t>,
        manager: &Manager<'_>,
        api_versions: impl Iterator<Item = &'v str>,
        old: &Value,
        new: &Value,
    ) -> Option<Vec<Self>> {
        let Some(others) = typing.others else { return Some(Vec::new()) };
        let mut all = Vec::new();
        for api_version in distinct(manager, api_versions) {
            let Some(schema) = others.schema(api_version) else { continue };
            let convert = |object| others.convert(object, api_version);
            let (Ok(old), Ok(new)) = (convert(old), convert(new)) else { continue };
            let ty = Type::root(schema.view(), typing.custom);
            let is_unfit = |object: &&Value| validate_object(ty, object).is_err();
            if typing.custom && [&old, &new].iter().any(is_unfit) {
                return None;
            }
            all.push(Self { api_version: api_version.to_owned(), schema, old, new });
        }
        Some(all)
    }
    /// A write in each version that its object was converted to.
    ///
    /// # Errors
    ///
    /// The new object cannot be converted.
    pub(super) fn all(
        typing: &Typing<'t>,
        lives: Vec<Live<'t>>,
        new: &Value,
    ) -> Result<Vec<Self>, ApiError> {
        let Some(others) = typing.others else { return Ok(Vec::new()) };
        let write = |live: Live<'t>| {
            let Live { api_version, schema, object: old } = live;
            let ty = Type::root(schema.view(), typing.custom);
            let new = converted(others, new, &api_version, (ty, typing.custom));
            let new = new.map_err(|error| because("failed to convert new object", &error))?;
            Ok(Self { api_version, schema, old, new })
        };
        lives.into_iter().map(write).collect()
    }

    /// What the write changes there, as far as it is in the scope of the endpoint.
    fn comparison(&self, typing: &Typing<'_>) -> Comparison<'_> {
        let ty = Type::root(self.schema.view(), typing.custom);
        Comparison::in_scope(ty, Scope::new(typing.reset), &self.old, &self.new)
    }
}

/// What a write takes from an entry: the fields that it adds or modifies, and those it removes.
#[derive(Debug)]
pub(super) struct Taken<'a> {
    pub(super) changed: FieldSet<'a>,
    pub(super) removed: FieldSet<'a>,
}

impl Taken<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.removed.is_empty()
    }
}

impl<'a> From<Comparison<'a>> for Taken<'a> {
    fn from(comparison: Comparison<'a>) -> Self {
        let Comparison { added, removed, modified } = comparison;
        Self { changed: added.union(modified), removed }
    }
}

/// What a write takes from entries, by their versions.
#[derive(Debug)]
pub(super) struct TakenByVersion<'a> {
    /// From entries of the request's version, and of those that are compared in it.
    here: Taken<'a>,
    elsewhere: Vec<(&'a str, Taken<'a>)>,
}

impl<'a> TakenByVersion<'a> {
    pub(super) fn new(
        typing: &Typing<'_>,
        here: Taken<'a>,
        elsewhere: &'a [Elsewhere<'_>],
    ) -> Self {
        let elsewhere = elsewhere
            .iter()
            .map(|there| (&*there.api_version, there.comparison(typing).into()))
            .collect();
        Self { here, elsewhere }
    }

    /// What is taken from an entry.
    pub(super) fn of_entry(&self, entry: &Entry<'_>) -> &Taken<'a> {
        let there = self.elsewhere.iter().find(|(version, _)| *version == entry.api_version);
        there.map_or(&self.here, |(_, taken)| taken)
    }

    /// What is taken in the request's version.
    pub(super) fn into_here(self) -> Taken<'a> {
        self.here
    }
}
