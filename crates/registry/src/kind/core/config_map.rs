//! ConfigMaps: keys, size, immutability.
use crate::kind::data::{DATA_BYTES_MAX, decoded_len, map, validate_immutable};
use crate::kind::{Kind, MetadataCheck, MetadataChecks, Report};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::time::Timestamp;
use setpoint_object::{field, name};

/// ConfigMap.
pub(in crate::kind) static KIND: Kind = Kind {
    changed_metadata: MetadataChecks::before(&[MetadataCheck::Change, MetadataCheck::Whole]),
    validate,
    validate_change,
    cells: Some(cells),
    rules: "keys, size; immutable data",
    ..Kind::plain("", "ConfigMap")
};

/// Data may be immutable.
fn validate_change(new: &Value, old: Option<&Value>, errors: &mut Report) {
    if let Some(old) = old {
        validate_immutable(new, old, &["data", "binaryData"], errors);
    }
}
/// Validates keys and size.
fn validate(new: &Value, _: Option<&Value>, errors: &mut Report) {
    let mut size = 0;
    for (member, other) in [("data", "binaryData"), ("binaryData", "data")] {
        for (key, value) in map(new, member).into_iter().flatten() {
            let path = field::Path::new(member).key(key);
            for message in name::config_key(key) {
                errors.push(field::Error::invalid(path.clone(), &key.as_str().into(), message));
            }
            // Reported once, at the member where Kubernetes reports it.
            if member == "data" && map(new, other).is_some_and(|o| o.contains_key(key)) {
                errors.push(field::Error::invalid(
                    path,
                    &key.as_str().into(),
                    format!("duplicate of key present in {other}"),
                ));
            }
            let value = value.as_str().unwrap_or_default();
            size += if member == "data" { value.len() } else { decoded_len(value) };
        }
    }
    if size > DATA_BYTES_MAX {
        errors.push(field::Error::too_long(field::Path::new("[]"), DATA_BYTES_MAX));
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let entries = cell::len(object, "data") + cell::len(object, "binaryData");
    vec![cell::name(object), entries.into(), cell::age(object, now)]
}
