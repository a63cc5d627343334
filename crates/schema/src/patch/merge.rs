//! Merge patch (RFC 7386).

use crate::decode::parse_floats;
use serde_json::{Map, Value};
use setpoint_object::ApiError;

/// RFC 7386: objects merge, `null` deletes, everything else replaces. `null`s inside content that
/// is new vanish. Integral floats stay floats, see [`crate::decode::parse_typed`].
///
/// # Errors
/// 400 for a body that is no JSON object; nothing else can fail.
pub fn merge_patch(
    target: &mut Value,
    patch: &[u8],
    problems: &mut Vec<String>,
) -> Result<(), ApiError> {
    let decoded = parse_floats(patch)
        .map_err(|error| ApiError::bad_request(format!("error decoding patch: {error}")))?;
    let patch = match decoded.value {
        Value::Object(patch) => patch,
        Value::Null => return Err(ApiError::bad_request("Invalid JSON Patch")),
        other => {
            return Err(ApiError::bad_request(format!(
                "error decoding patch: {}",
                super::directive::not_an_object(&other)
            )));
        }
    };
    problems.extend(decoded.problems);
    merge_into(target, patch);
    Ok(())
}

/// [`merge_patch`] with `fieldValidation=Ignore`: a list takes the place of the object.
///
/// # Errors
/// 400 for a body that is neither a JSON object nor a list.
pub fn merge_patch_unchecked(target: &mut Value, patch: &[u8]) -> Result<(), ApiError> {
    match parse_floats(patch).map(|decoded| decoded.value) {
        Ok(Value::Object(patch)) => merge_into(target, patch),
        Ok(mut list @ Value::Array(_)) => {
            drop_nulls(&mut list);
            *target = list;
        }
        _ => return Err(ApiError::bad_request("Invalid JSON Patch")),
    }
    Ok(())
}

fn merge_into(target: &mut Value, patch: Map<String, Value>) {
    match target {
        Value::Object(target) => merge(target, patch),
        other => {
            let mut patch = Value::Object(patch);
            drop_nulls(&mut patch);
            *other = patch;
        }
    }
}

fn merge(target: &mut Map<String, Value>, patch: Map<String, Value>) {
    for (name, mut new) in patch {
        match (target.get_mut(&name), &mut new) {
            (_, Value::Null) => {
                target.remove(&name);
            }
            (Some(Value::Object(old)), Value::Object(new)) => merge(old, std::mem::take(new)),
            (Some(old @ Value::Object(_)), _) => *old = new,
            (Some(old), _) => {
                drop_nulls(&mut new);
                *old = new;
            }
            (None, _) => {
                drop_nulls(&mut new);
                target.insert(name, new);
            }
        }
    }
}

/// Removes `null` members at every depth; `null` elements of lists stay.
pub(super) fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}
