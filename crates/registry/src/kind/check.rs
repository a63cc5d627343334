//! Accessors for members, and errors that many kinds share.
use serde_json::{Value, json};
use setpoint_object::time::Timestamp;
use setpoint_object::{field, name};
use std::collections::BTreeMap;

/// The list in a member, empty if missing.
pub fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The text in a member, empty if missing.
pub fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Reports a value that is not in a list.
pub fn one_of(
    value: &Value,
    name: &str,
    supported: &[&str],
    path: &field::Path,
    errors: &mut field::Errors,
) {
    let given = text(value, name);
    if given.is_empty() {
        errors.push(field::Error::required(path.child(name), ""));
    } else if !supported.contains(&given) {
        errors.push(field::Error::not_supported(path.child(name), &given.into(), supported));
    }
}

/// Reports a negative number.
pub fn not_negative(value: &Value, name: &str, path: &field::Path, errors: &mut field::Errors) {
    if let Some(number) = value.get(name).and_then(Value::as_i64).filter(|n| *n < 0) {
        errors.push(field::Error::invalid(
            path.child(name),
            &number.into(),
            "must be greater than or equal to 0",
        ));
    }
}

/// Reports a port outside 1 to 65535.
pub fn validate_port_number(number: i64, path: field::Path, errors: &mut field::Errors) {
    if !(1..=65_535).contains(&number) {
        errors.push(field::Error::invalid(
            path,
            &number.into(),
            "must be between 1 and 65535, inclusive",
        ));
    }
}

/// Validates a `LabelSelector`.
pub fn validate_label_selector(selector: &Value, path: &field::Path, errors: &mut field::Errors) {
    validate_labels(selector.get("matchLabels"), &path.child("matchLabels"), errors);
    for (i, expression) in list(selector, "matchExpressions").iter().enumerate() {
        let path = path.child("matchExpressions").index(i);
        let values = list(expression, "values");
        match text(expression, "operator") {
            "In" | "NotIn" if values.is_empty() => errors.push(field::Error::required(
                path.child("values"),
                "must be specified when `operator` is 'In' or 'NotIn'",
            )),
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                errors.push(field::Error::forbidden(
                    path.child("values"),
                    "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                ))
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.push(field::Error::invalid(
                path.child("operator"),
                &other.into(),
                "not a valid selector operator",
            )),
        }
        for message in setpoint_object::name::qualified_name(text(expression, "key")) {
            errors.push(field::Error::invalid(
                path.child("key"),
                &text(expression, "key").into(),
                message,
            ));
        }
        for (i, value) in values.iter().enumerate() {
            for message in name::label_value(value.as_str().unwrap_or_default()) {
                errors.push(field::Error::invalid(path.child("values").index(i), value, message));
            }
        }
    }
}

/// Maximum total bytes of keys and values of one object's annotations: 256 KiB, as
/// `TotalAnnotationSizeLimitB`.
pub(super) const ANNOTATIONS_BYTES_MAX: usize = 262_144;
/// Validates labels of an object or a pod template.
pub fn validate_labels(labels: Option<&Value>, path: &field::Path, errors: &mut field::Errors) {
    for (key, value) in members(labels) {
        for message in name::qualified_name(key) {
            errors.push(field::Error::invalid(path.clone(), &key.as_str().into(), message));
        }
        for message in name::label_value(value.as_str().unwrap_or_default()) {
            errors.push(field::Error::invalid(path.clone(), value, message));
        }
    }
}
/// Validates annotations of an object or a pod template.
pub fn validate_annotations(
    annotations: Option<&Value>,
    path: &field::Path,
    errors: &mut field::Errors,
) {
    let mut size = 0;
    for (key, value) in members(annotations) {
        for message in name::qualified_name(&key.to_lowercase()) {
            errors.push(field::Error::invalid(path.clone(), &key.as_str().into(), message));
        }
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > ANNOTATIONS_BYTES_MAX {
        errors.push(field::Error::too_long(path.clone(), ANNOTATIONS_BYTES_MAX));
    }
}
fn members(value: Option<&Value>) -> impl Iterator<Item = (&String, &Value)> {
    value.and_then(Value::as_object).into_iter().flatten()
}
/// Sets a condition of an object's status by its type. The transition time changes only with the
/// condition's status.
pub fn set_condition(object: &mut Value, mut condition: Value, now: Timestamp) {
    if !object["status"].is_object() {
        object["status"] = json!({});
    }
    let conditions = &mut object["status"]["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(list) = conditions.as_array_mut() else { return };
    let present = list.iter().position(|c| c["type"] == condition["type"]);
    condition["lastTransitionTime"] = match present {
        Some(i) if list[i]["status"] == condition["status"] => {
            list[i]["lastTransitionTime"].clone()
        }
        _ => now.rfc3339().into(),
    };
    match present {
        Some(i) => list[i] = condition,
        None => list.push(condition),
    }
}

/// Whether only what the server and the garbage collector maintain differs.
pub(crate) fn changes_for_collection_only(old: &Value, new: &Value) -> bool {
    const MAINTAINED: [&str; 9] = [
        "ownerReferences",
        "finalizers",
        "managedFields",
        "resourceVersion",
        "generation",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ];
    let members = |object: &Value, left_out: &[&str]| {
        let members = object.as_object().into_iter().flatten();
        let members =
            members.filter(|(name, value)| !left_out.contains(&name.as_str()) && !is_empty(value));
        members.map(|(name, value)| (name.clone(), value.clone())).collect::<BTreeMap<_, _>>()
    };
    members(old, &["metadata"]) == members(new, &["metadata"])
        && members(&old["metadata"], &MAINTAINED) == members(&new["metadata"], &MAINTAINED)
}

/// Whether a member is as good as absent.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(elements) => elements.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}
