//! Updates of a pod: nearly all of it is immutable (spec: api-server §5.6).
use crate::kind::{list, text};
use bytes::Bytes;
use serde_json::Value;
use setpoint_object::{encode, field};
use std::collections::HashSet;

/// The message for a refused change; a diff follows.
const FORBIDDEN: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Validates an update of the main endpoint.
pub(super) fn validate(pod: &Value, old: &Value, errors: &mut field::Errors) {
    let path = field::Path::new("spec");
    let (new_spec, old_spec) = (&pod["spec"], &old["spec"]);
    if new_spec == old_spec {
        return;
    }
    let mut is_same_count = true;
    for member in ["containers", "initContainers"] {
        if list(new_spec, member).len() != list(old_spec, member).len() {
            errors.push(field::Error::forbidden(
                path.child(member),
                format!(
                    "pod updates may not add or remove {}",
                    if member == "containers" { "containers" } else { "init containers" }
                ),
            ));
            is_same_count = false;
        }
        for (i, container) in list(new_spec, member).iter().enumerate() {
            if text(container, "image").is_empty() {
                errors.push(field::Error::required(path.child(member).index(i).child("image"), ""));
            }
        }
    }
    if !is_same_count {
        return;
    }
    validate_deadline(new_spec, old_spec, &path, errors);
    validate_tolerations(new_spec, old_spec, &path, errors);
    if !errors.is_empty() {
        return;
    }
    let mut allowed = new_spec.clone();
    for member in ["containers", "initContainers"] {
        let Some(containers) = allowed.get_mut(member).and_then(Value::as_array_mut) else {
            continue;
        };
        for (container, old) in containers.iter_mut().zip(list(old_spec, member)) {
            container["image"] = old["image"].clone();
        }
    }
    for member in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        take(&mut allowed, old_spec, member);
    }
    if old_spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|s| s < 0)
        && new_spec["terminationGracePeriodSeconds"] == 1
    {
        take(&mut allowed, old_spec, "terminationGracePeriodSeconds");
    }
    if allowed != *old_spec {
        let diff = difference(&allowed, old_spec);
        errors.push(field::Error::forbidden(path, format!("{FORBIDDEN}\n{diff}")));
    }
}

fn take(spec: &mut Value, old: &Value, member: &str) {
    let Some(spec) = spec.as_object_mut() else { return };
    match old.get(member) {
        Some(value) => {
            spec.insert(member.to_owned(), value.clone());
        }
        None => {
            spec.remove(member);
        }
    }
}

fn validate_deadline(new: &Value, old: &Value, path: &field::Path, errors: &mut field::Errors) {
    let path = path.child("activeDeadlineSeconds");
    let seconds = |spec: &Value| spec.get("activeDeadlineSeconds").and_then(Value::as_i64);
    match (seconds(new), seconds(old)) {
        (Some(new), _) if !(0..=i64::from(i32::MAX)).contains(&new) => {
            errors.push(field::Error::invalid(
                path,
                &new.into(),
                format!("must be between 0 and {}, inclusive", i32::MAX),
            ));
        }
        (Some(new), Some(old)) if new > old => errors.push(field::Error::invalid(
            path,
            &new.into(),
            "must be less than or equal to previous value",
        )),
        (None, Some(_)) => errors.push(field::Error::invalid(
            path,
            &Value::Null,
            "must not update from a positive integer to nil value",
        )),
        _ => {}
    }
}

fn validate_tolerations(new: &Value, old: &Value, path: &field::Path, errors: &mut field::Errors) {
    let identity = |toleration: &Value| {
        let mut toleration = toleration.clone();
        if let Some(members) = toleration.as_object_mut() {
            members.remove("tolerationSeconds");
        }
        encode::to_bytes(&toleration)
    };
    let sent: HashSet<Bytes> = list(new, "tolerations").iter().map(identity).collect();
    let is_kept = list(old, "tolerations").iter().map(identity).all(|t| sent.contains(&t));
    if !is_kept {
        errors.push(field::Error::forbidden(
            path.child("tolerations"),
            "existing toleration can not be modified except its tolerationSeconds",
        ));
    }
}

/// The members that differ, before and after.
fn difference(new: &Value, old: &Value) -> String {
    let empty = serde_json::Map::new();
    let (new, old) = (new.as_object().unwrap_or(&empty), old.as_object().unwrap_or(&empty));
    let mut names: Vec<&String> = new.keys().chain(old.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let mut lines = Vec::new();
    for name in names {
        for (sign, value, other) in
            [('-', old.get(name), new.get(name)), ('+', new.get(name), old.get(name))]
        {
            if let Some(value) = value.filter(|v| Some(*v) != other) {
                lines.push(format!(
                    "{sign} {name}: {}",
                    String::from_utf8_lossy(&encode::to_bytes(value))
                ));
            }
        }
    }
    lines.join("\n")
}
