//! What ConfigMaps and Secrets share: maps of data, bounded, perhaps immutable.
use serde_json::{Map, Value};
use setpoint_object::field;

/// The most data a ConfigMap or Secret holds, in bytes: 1 MiB, as Kubernetes' `MaxSecretSize`.
pub(super) const DATA_BYTES_MAX: usize = 1_048_576;

pub(super) fn map<'a>(object: &'a Value, name: &str) -> Option<&'a Map<String, Value>> {
    object.get(name).and_then(Value::as_object)
}

/// Bytes of a base64 text, without decoding it.
pub(super) fn decoded_len(text: &str) -> usize {
    text.trim_end_matches('=').len() * 3 / 4
}

fn is_immutable(object: &Value) -> bool {
    object["immutable"] == true
}

pub(super) fn validate_immutable(
    new: &Value,
    old: &Value,
    members: &[&str],
    errors: &mut field::Errors,
) {
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
