//! Objects that webhooks or policies have changed.
use super::Review;
use crate::catalog::Resource;
use crate::stored::too_large;
use serde_json::Value;
use setpoint_object::encode::is_longer_than;
use setpoint_object::meta::ObjectExt;
use setpoint_object::{ApiError, GroupVersionKind};
use setpoint_schema::{apply, builtin, decode};

/// Maximum bytes of an object between two patches: 6 MiB, twice as many as of a body. Each patch
/// may add a few mebibytes, and there may be a thousand.
const OBJECT_BYTES_MAX: usize = 6 << 20;

/// Refuses an object that has grown beyond what could be stored.
///
/// # Errors
///
/// 500, as the store's.
pub(super) fn check_size(object: &Value) -> Result<(), ApiError> {
    match is_longer_than(object, OBJECT_BYTES_MAX) {
        // The rest is not counted.
        true => Err(too_large(OBJECT_BYTES_MAX + 1)),
        false => Ok(()),
    }
}

/// Converts a patched object to the type of its row, and fills in defaults. Returns what was wrong:
/// unknown fields, which are dropped.
///
/// A `null` that a webhook or a policy has put into a custom object is left to validation, which
/// refuses it, as kube-apiserver does: only nulls of requests are dropped.
///
/// # Errors
///
/// 500: it has not the type.
pub(super) fn decode_own(row: &Resource, object: &mut Value) -> Result<Vec<String>, ApiError> {
    let mut problems = Vec::new();
    row.schema.conform(&row.gvk.kind, object, &mut problems).map_err(ApiError::internal)?;
    match row.has_go_type() {
        true => row.schema.fill_defaults(object)?,
        false => row.schema.fill_merged(object)?,
    }
    if let Some(members) = object.as_object_mut() {
        (row.kind.default)(members, &row.gvk.version);
    }
    Ok(problems)
}
/// The same for an object of another kind: a Scale, an Eviction, options.
///
/// # Errors
///
/// As [`decode_own`].
pub(super) fn decode_other(
    kind: &GroupVersionKind,
    object: &mut Value,
) -> Result<Vec<String>, ApiError> {
    let mut problems = Vec::new();
    if let Some(schema) = builtin::type_schema(&kind.group, &kind.version, &kind.kind) {
        let decoded = decode::conform(&schema, &kind.kind, object, &mut problems);
        decoded.map_err(ApiError::internal)?;
    }
    Ok(problems)
}

/// The `managedFields` of an object.
pub(super) fn managed_fields(object: &Value) -> Value {
    let entries = object.meta().and_then(|meta| meta.get("managedFields"));
    entries.cloned().unwrap_or_default()
}
/// Puts the former entries back if hooks or policies have made the present ones invalid. Removes an
/// empty list.
pub(super) fn restore_entries(review: &Review<'_>, object: &mut Value, former: Value) {
    let has_entries = object.meta().is_some_and(|meta| meta.contains_key("managedFields"));
    if !has_entries || managed_fields(object) == former {
        return;
    }
    if let Err(detail) = apply::check_entries(object) {
        review.warn(format!(
            ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating admission controller; please fix your requests: {detail}"
        ));
        object.set_meta("managedFields", former);
    } else if managed_fields(object).as_array().is_some_and(Vec::is_empty) {
        object.set_meta("managedFields", Value::Null);
    }
}
