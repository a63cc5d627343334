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
pub use versions::Versions;
pub use wire::WireError;
pub use write::{Merged, apply, apply_apart, unconvertible, update, update_apart, versions_of};

use crate::node::TypeSchema;
use serde_json::Value;
use setpoint_object::time::Timestamp;
use std::collections::{BTreeSet, HashSet};
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

/// Settles timestamps: when nothing but managedFields' times would change, the old entries (and so
/// the old bytes) stay.
///
/// `metadata.resourceVersion` is not looked at: a write that changes nothing else is none.
pub fn settle_times(old: Option<&Value>, new: &mut Value) {
    let Some(old) = old else { return };
    let (Some(before), Some(now)) = (managed::of(old), managed::of(new)) else { return };
    // Most writes change the content, which shows sooner than whether the entries are the same.
    if !same_content(old, new) || before == now || !same_but_for_times(before, now) {
        return;
    }
    let before = before.clone();
    managed::put(new, Some(before));
}

/// [`settle_times`] of objects whose managedFields are beside them: those of `new`.
pub fn settle_times_apart<'a>(
    (old, before): (&Value, Option<Owners<'a>>),
    (new, now): (&Value, Option<Owners<'a>>),
) -> Option<Owners<'a>> {
    let list = |owners: &Owners<'_>| serde_json::from_str(owners.as_str()).unwrap_or_default();
    let is_same = before.as_ref().zip(now.as_ref()).is_some_and(|(before, now)| {
        same_content(old, new) && (before == now || same_but_for_times(&list(before), &list(now)))
    });
    if is_same { before } else { now }
}

/// Whether two lists of entries differ in nothing but their times, and their order, which depends
/// on the times.
fn same_but_for_times(a: &Value, b: &Value) -> bool {
    let (Some(a), Some(b)) = (a.as_array(), b.as_array()) else { return false };
    if a.len() != b.len() {
        return false;
    }
    // Most often the order is the same too.
    let is_same = |(a, b)| untimed(a).zip(untimed(b)).is_some_and(|(a, b)| a.eq(b));
    if a.iter().zip(b).all(is_same) {
        return true;
    }
    let members = |entry| Some(untimed(entry)?.collect::<Vec<_>>());
    let Some(others) = b.iter().map(members).collect::<Option<HashSet<_>>>() else { return false };
    a.iter().all(|entry| members(entry).is_some_and(|entry| others.contains(&entry)))
}

/// The members of an entry but its time.
fn untimed(entry: &Value) -> Option<impl Iterator<Item = (&String, &Value)>> {
    Some(entry.as_object()?.iter().filter(|(name, _)| *name != "time"))
}

/// Whether two objects differ in nothing but managedFields and resourceVersion.
fn same_content(a: &Value, b: &Value) -> bool {
    const ASIDE: [&str; 2] = ["managedFields", "resourceVersion"];
    let (Some(a), Some(b)) = (a.as_object(), b.as_object()) else { return false };
    let same_metadata = |a: &Value, b: &Value| match (a.as_object(), b.as_object()) {
        (Some(a), Some(b)) => {
            let members = |map: &serde_json::Map<String, Value>| {
                map.keys().filter(|name| !ASIDE.contains(&name.as_str())).count()
            };
            members(a) == members(b)
                && a.iter().all(|(name, value)| {
                    ASIDE.contains(&name.as_str()) || b.get(name) == Some(value)
                })
        }
        _ => a == b,
    };
    a.len() == b.len()
        // `status` and `spec` change most often.
        && a.iter().rev().all(|(name, value)| {
            b.get(name).is_some_and(|other| {
                if name == "metadata" { same_metadata(value, other) } else { value == other }
            })
        })
}
