//! The other versions of a kind: an entry is held to the fields of its own version.

use super::compare::Comparison;
use super::fieldset::FieldSet;
use super::managed::Entry;
use super::scope::Scope;
use super::types::Type;
use super::{Manager, Typing};
use crate::node::TypeSchema;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt;

/// The other versions that a kind is served in.
pub trait Versions: fmt::Debug {
    /// The schema of another version, named as in `apiVersion`; `None`: it is not served.
    fn schema(&self, api_version: &str) -> Option<&TypeSchema>;
    /// An object in a version, also in that of the request; `None`: it cannot be converted without
    /// waiting. Entries of such a version are compared in the request's.
    fn convert(&self, object: &Value, api_version: &str) -> Option<Value>;
}

/// A write in another version.
#[derive(Debug)]
pub(super) struct Elsewhere<'t> {
    api_version: String,
    schema: &'t TypeSchema,
    old: Value,
    new: Value,
}

impl<'t> Elsewhere<'t> {
    /// A write in each of these versions that is not the request's.
    pub(super) fn all<'v>(
        typing: &Typing<'t>,
        manager: &Manager<'_>,
        api_versions: impl Iterator<Item = &'v str>,
        old: &Value,
        new: &Value,
    ) -> Vec<Self> {
        let Some(others) = typing.others else { return Vec::new() };
        // A client may send any number of entries.
        let distinct: BTreeSet<&str> =
            api_versions.filter(|version| *version != manager.api_version).collect();
        let all = distinct.into_iter().filter_map(|api_version| {
            Some(Self {
                api_version: api_version.to_owned(),
                schema: others.schema(api_version)?,
                old: others.convert(old, api_version)?,
                new: others.convert(new, api_version)?,
            })
        });
        all.collect()
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
