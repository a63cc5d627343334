//! Validation of custom resources against their structural schema (spec: crd §5).
//!
//! The order of errors is that of the reference: per node type, combinators, string, format and
//! number checks, items, enum, then the object's own bounds, required and declared properties, in
//! name order. Embedded resources and list uniqueness follow. Rules in CEL are evaluated after
//! these checks ([`crate::rules::check`]), unless [`blocks_rules`] says that an error found here
//! stands in the way.
//!
//! # Ratcheting
//!
//! On update a node whose value is unchanged (`correlate`) is not looked at. Old and new correlate
//! through properties, map keys and the keys of `x-kubernetes-list-type: map` lists; elements of
//! other lists and branches of combinators do not correlate.
//!
//! # Budget
//!
//! A definition of a few KiB can ask for any amount of work: combinators in lists, patterns that
//! are large, enums that are long. One validation takes [`STEPS_MAX`] steps at most; beyond that
//! the object is refused with an error that says so. Errors are bounded by [`ERRORS_BYTES_MAX`].

mod embedded;
mod format;
mod lists;
mod metadata;
mod openapi;
mod report;
mod scalar;

pub(crate) use format::is_known as is_known_format;
pub(crate) use openapi::type_of;
pub use report::{ERRORS_BYTES_MAX, STEPS_MAX};

use crate::node::{TypeSchema, View};
use report::Report;
use scalar::Formats;
use serde_json::Value;
use setpoint_object::field;

/// Every violation, in the order the API reports them. `old` is the stored object on update
/// (ratcheting).
///
/// `apiVersion`, `kind` and `metadata` at the root are the caller's, except for what the schema
/// says of `metadata.name` and `metadata.generateName`.
pub fn validate(schema: &TypeSchema, value: &Value, old: Option<&Value>) -> Vec<field::Error> {
    validate_with(schema, value, old, Vec::new())
}

/// As [`validate`], with errors of the caller, which the API reports after those of types and
/// values.
pub fn validate_with(
    schema: &TypeSchema,
    value: &Value,
    old: Option<&Value>,
    others: Vec<field::Error>,
) -> Vec<field::Error> {
    let root = schema.view();
    let mut report = Report::default();
    openapi::validate(root, value, old, &mut report);
    let mut errors = report.take();
    errors.extend(others);
    if schema.has_embedded_resources() {
        embedded::validate(root, value, &mut String::new(), &mut report);
    }
    lists::validate(root, value, old, &mut report);
    errors.extend(report.finish());
    errors
}

/// Violations of `status` alone, and of lists of unique elements anywhere: what a write to
/// `/status` is held to.
///
/// The API validates the value of `status` on its own: sentences have paths below it, and an error
/// that belongs to no field is one of `status`. `others`: as for [`validate_with`].
pub fn validate_status(
    schema: &TypeSchema,
    value: &Value,
    old: Option<&Value>,
    others: Vec<field::Error>,
) -> Vec<field::Error> {
    let root = schema.view();
    let mut report = Report::default();
    let mut errors = Vec::new();
    if let (Some(status_schema), Some(status)) = (root.property("status"), value.get("status")) {
        let old = old.and_then(|old| old.get("status"));
        openapi::validate_at(status_schema, Formats::Known, "", status, old, &mut report);
        errors = report.take();
        let path = field::Path::new("status");
        errors.iter_mut().for_each(|error| put_below(&path, error));
    }
    errors.extend(others);
    lists::validate(root, value, old, &mut report);
    errors.extend(report.finish());
    errors
}

/// Puts an error of a value that was validated on its own below the value's path.
pub(crate) fn put_below(path: &field::Path, error: &mut field::Error) {
    let below = error.path.text();
    error.path = match below.as_str() {
        "" => path.clone(),
        below if below.starts_with('[') => field::Path::new(format!("{path}{below}")),
        below => path.child(below.strip_prefix('.').unwrap_or(below)),
    };
}

/// Violations of a default that is no root, types and metadata aside; paths are relative to it.
pub(crate) fn validate_default(schema: &TypeSchema, value: &Value) -> Vec<field::Error> {
    let mut report = Report::default();
    openapi::validate_at(schema.view(), Formats::All, "", value, None, &mut report);
    report.finish()
}

/// Violations in the types and metadata of embedded resources, and of the value itself if it
/// `is_root`; paths are relative to it.
pub(crate) fn validate_resources(
    schema: &TypeSchema,
    is_root: bool,
    value: &Value,
) -> Vec<field::Error> {
    let mut report = Report::default();
    let root = schema.view();
    if is_root && value.is_object() && !root.embedded_resource {
        embedded::resource(value, &field::Path::root(), &mut report);
    }
    embedded::validate(root, value, &mut String::new(), &mut report);
    report.finish()
}

/// Extends the path of a node by a member: a property, or the key of a map.
pub(crate) fn enter(path: &mut String, schema: View<'_>, name: &str) {
    let is_key = schema.property(name).is_none();
    if is_key {
        path.push('[');
    } else if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
    if is_key {
        path.push(']');
    }
}

/// Whether an error prevents the evaluation of CEL rules: then the API adds a cause about that.
pub fn blocks_rules(error: &field::Error) -> bool {
    use field::ErrorKind;
    matches!(
        error.kind,
        ErrorKind::Required
            | ErrorKind::TypeInvalid
            | ErrorKind::NotSupported
            | ErrorKind::TooLong
            | ErrorKind::TooMany
    )
}

#[cfg(test)]
mod tests;
