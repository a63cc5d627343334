//! The words of strategic merge patch and the errors it answers with.

use super::notation::{go_number, go_type, go_value};
use crate::decode;
use serde_json::{Map, Value};
use setpoint_object::ApiError;

/// Member with the operation on the map that contains it.
pub(super) const PATCH: &str = "$patch";
/// Member that names what is to stay.
pub(super) const RETAIN_KEYS: &str = "$retainKeys";
/// `<prefix>/<field>`: scalars to remove from a list.
pub(super) const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList";
/// `<prefix>/<field>`: the order a list is to have.
pub(super) const ELEMENT_ORDER: &str = "$setElementOrder";

/// The field a `<prefix>/<field>` member is about.
///
/// # Errors
/// 400 when the member begins with the prefix but names no field.
pub(super) fn field_of<'a>(member: &'a str, prefix: &str) -> Result<&'a str, ApiError> {
    member.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('/')).ok_or_else(|| {
        ApiError::bad_request(match prefix {
            DELETE_FROM_LIST => "invalid patch format of primitive list",
            _ => "invalid patch format of setElementOrder list",
        })
    })
}

/// 400 of a `$retainKeys` that is malformed or does not cover the patch.
pub(super) fn bad_retain_keys() -> ApiError {
    ApiError::bad_request("invalid patch format of retainKeys")
}

/// 500 for an unknown `$patch` directive.
pub(super) fn unknown_patch_type(directive: &Value, map: &Map<String, Value>) -> ApiError {
    let shown = match directive {
        Value::String(text) => text.clone(),
        Value::Null => "%!s(<nil>)".to_owned(),
        Value::Bool(b) => format!("%!s(bool={b})"),
        Value::Number(n) => format!("%!s({}={})", go_type(directive), go_number(n)),
        other => go_value(other),
    };
    let map = go_value(&Value::Object(map.clone()));
    ApiError::unclassified(format!("unknown patch type: {shown} in map: {map}"))
}

/// 500 of a list element without its merge key.
pub(super) fn no_merge_key(element: &Map<String, Value>, key: &str) -> ApiError {
    let element = go_value(&Value::Object(element.clone()));
    ApiError::unclassified(format!("map: {element} does not contain declared merge key: {key}"))
}

/// 500 of something that is no list.
pub(super) fn no_list(found: &Value) -> ApiError {
    wrong_type("[]interface {}", found)
}

/// 500 of something that is no map.
pub(super) fn no_map(found: &Value) -> ApiError {
    wrong_type("map[string]interface {}", found)
}

fn wrong_type(wanted: &str, found: &Value) -> ApiError {
    ApiError::unclassified(format!("expected a {wanted}, but received a {}", go_type(found)))
}

/// The error of Go's decoder for a body that should be an object.
pub(super) fn not_an_object(found: &Value) -> String {
    let found = match found {
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::Null | Value::Object(_) => "object",
    };
    decode::wrong_type(found, "", "map[string]interface {}")
}

/// Takes directives out of content that is new: a map that carries [`PATCH`] vanishes, from lists
/// too. False when `value` itself is such a map.
pub(super) fn strip(value: &mut Value) -> bool {
    match value {
        Value::Object(members) => {
            if members.contains_key(PATCH) {
                return false;
            }
            members.retain(|_, member| strip(member));
        }
        Value::Array(items) => items.retain_mut(strip),
        _ => {}
    }
    true
}
