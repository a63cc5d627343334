//! Server-side apply and managedFields (spec: patch §5).
//!
//! # Theory
//!
//! `metadata.managedFields` says who owns which field: one entry per manager, operation,
//! subresource (and, for updates, version), each with a set of paths. Everything here is arithmetic
//! on such sets:
//!
//! | set | is made by |
//! |---|---|
//! | what an object mentions | walking it with its schema (`leaves`) |
//! | what a write changed | comparing the object before and after (`compare`): added, modified, removed |
//! | what an entry says | reading FieldsV1 (`wire`) |
//!
//! An **update** gives the writer what it added and modified and takes that, and what it removed,
//! from everybody else. An **apply** gives the applier exactly what its configuration mentions; it
//! merges the configuration into the live object, removes what the applier owned before and nobody
//! owns now, and is refused when it changes what others own, unless forced.
//!
//! Invariants: every leaf of an applied configuration is owned by its applier (identity
//! and reset fields aside); a repeated apply changes nothing; no entry is empty.
//!
//! Sets borrow names and keys from the objects they describe, so that a write allocates little
//! beyond the result. The fields of a new object are written without a set (`created`).
//!
//! The fields of an entry are those of its version. A write is compared once in each version of
//! which the object has entries (`versions`), with the objects converted to it. Without a
//! conversion entries are compared in the request's version, which is exact as long as the
//! versions' fields have the same names and types. So is what an applier gives up that has changed
//! its version.

mod compare;
mod configuration;
mod conflict;
mod created;
mod element;
mod fieldset;
mod last_applied;
mod leaves;
mod lift;
mod managed;
mod merge;
mod owners;
mod path;
mod prune;
mod remove;
mod scale;
mod scope;
mod stored;
#[cfg(test)]
mod tests;
mod times;
mod types;
mod validate;
mod value;
mod versions;
mod wire;
mod write;

pub use configuration::merge_configuration;
pub use fieldset::{FieldSet, Node};
pub use last_applied::{KUBECTL, LAST_APPLIED_ANNOTATION};
pub use managed::{ANCIENT_CHANGES, BEFORE_FIRST_APPLY, UPDATE_ENTRIES_MAX};
pub use owners::Owners;
pub use path::{Path, PathElement};
pub use scale::ScaleMapping;
pub use times::{settle_times, settle_times_apart};
pub use versions::Versions;
pub use wire::WireError;
pub use write::{Merged, apply, apply_apart, unconvertible, update, update_apart, versions_of};

use crate::node::TypeSchema;
use serde_json::Value;
use setpoint_object::time::Timestamp;
use std::collections::BTreeSet;
use stored::Stored;

/// The writer of a change and its endpoint.
#[derive(Debug, Clone)]
pub struct Manager<'a> {
    /// Name: the `fieldManager` option, else made of the user agent.
    pub name: &'a str,
    /// `apiVersion` of the request.
    pub api_version: &'a str,
    /// Empty for the main endpoint.
    pub subresource: &'a str,
    /// The time an entry gets that changes the object.
    pub now: Timestamp,
}
/// The type as field ownership sees it.
#[derive(Debug, Clone)]
pub struct Typing<'a> {
    /// Schema of the request's version.
    pub schema: &'a TypeSchema,
    /// The kind: `Deployment`.
    pub kind: &'a str,
    /// Members this endpoint resets (`status` on the main endpoint, `spec` on `/status`; `metadata`
    /// on `/status` of custom resources, `metadata/labels` on that of Deployments): never owned.
    pub reset: &'a BTreeSet<&'a str>,
    /// The object is a custom resource (structs carry `.` when created).
    pub custom: bool,
    /// The versions that this kind has, served or not, as `apiVersion`s. Empty: any.
    ///
    /// Entries of other versions are dropped. For a custom resource they are an error, as in the
    /// reference: an apply fails, and an update ends the tracking.
    pub versions: &'a [String],
    /// The other versions; `None`: there is one, or all are alike.
    pub others: Option<&'a dyn Versions>,
}

/// Checks `metadata.managedFields` of an object that something other than a manager has changed.
///
/// # Errors
///
/// An entry that is malformed, in the reference's words.
pub fn check_entries(object: &Value) -> Result<(), String> {
    managed::decode(Stored::Tree(managed::of(object))).map(drop)
}
