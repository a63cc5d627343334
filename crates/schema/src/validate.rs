//! Validation of custom resources against their structural schema (spec: crd §5).
//!
//! The order of errors is that of the reference: per node type, combinators, string, format and number checks, items, enum, then
//! the object's own bounds, required and declared properties, in name order. Embedded resources and list uniqueness follow. Rules in
//! CEL are data here ([`crate::node::Validation::rules`]): whoever evaluates them does so after these checks, unless
//! [`blocks_rules`] says that an error found here stands in the way.
//!
//! # Ratcheting
//!
//! On update a node whose value equals the old one is not looked at. Old and new correlate through properties, map keys and the keys
//! of `x-kubernetes-list-type: map` lists; elements of other lists and branches of combinators do not correlate.

mod embedded;
mod format;
mod lists;
mod openapi;
mod scalar;

pub(crate) use format::is_known as is_known_format;

use crate::node::TypeSchema;
use serde_json::Value;
use setpoint_object::field;

/// Every violation, in the order the API reports them. `old` is the stored object on update (ratcheting).
///
/// `apiVersion`, `kind` and `metadata` at the root are the caller's, except for what the schema says of `metadata.name` and
/// `metadata.generateName`.
pub fn validate(schema: &TypeSchema, value: &Value, old: Option<&Value>) -> Vec<field::Error> {
    let root = schema.view();
    let mut errors = openapi::validate(root, value, old);
    if schema.has_embedded_resources() {
        embedded::validate(root, value, &field::Path::root(), &mut errors);
    }
    lists::validate(root, value, old, &mut errors);
    errors
}

/// Violations of `status` alone: what a write to `/status` is held to.
pub fn validate_status(
    schema: &TypeSchema,
    value: &Value,
    old: Option<&Value>,
) -> Vec<field::Error> {
    let root = schema.view();
    let (Some(status_schema), Some(status)) = (root.property("status"), value.get("status")) else {
        return Vec::new();
    };
    let old = old.and_then(|old| old.get("status"));
    openapi::validate_at(status_schema, "status", status, old)
}

/// Violations of a value that is no root; paths are relative to it.
pub(crate) fn validate_node(schema: &TypeSchema, value: &Value) -> Vec<field::Error> {
    let mut errors = openapi::validate_at(schema.view(), "", value, None);
    embedded::validate(schema.view(), value, &field::Path::root(), &mut errors);
    errors
}

/// Whether an error keeps CEL rules from being evaluated: then the API adds one cause saying so.
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
