//! Shared by ConfigMaps and Secrets: maps of data with a size limit, optionally immutable.
use crate::kind::Report;
use serde_json::{Map, Value};
use setpoint_object::field;

/// Maximum data of a ConfigMap or Secret in bytes: 1 MiB, as Kubernetes' `MaxSecretSize`.
pub(super) const DATA_BYTES_MAX: usize = 1_048_576;

pub(super) fn map<'a>(object: &'a Value, name: &str) -> Option<&'a Map<String, Value>> {
    object.get(name).and_then(Value::as_object)
}

/// The decoded length of a base64 text.
pub(super) fn decoded_len(text: &str) -> usize {
    text.trim_end_matches('=').len() * 3 / 4
}

fn is_immutable(object: &Value) -> bool {
    object["immutable"] == true
}

pub(super) fn validate_immutable(new: &Value, old: &Value, members: &[&str], errors: &mut Report) {
    if !is_immutable(old) {
        return;
    }
    let mut forbid = |member: &str| {
        errors.push(field::Error::forbidden(
            field::Path::new(member),
            "field is immutable when `immutable` is set",
        ));
    };
    if !is_immutable(new) {
        forbid("immutable");
    }
    let empty = Map::new();
    for member in members {
        if map(new, member).unwrap_or(&empty) != map(old, member).unwrap_or(&empty) {
            forbid(member);
        }
    }
}
