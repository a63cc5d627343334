//! Updates of a pod: nearly all of it is immutable (spec: api-server §5.6).
use super::rules;
use crate::kind::at::{At, check};
use crate::kind::template::{self, APP_ARMOR_OF_CONTAINER, MIRROR};
use crate::kind::{Report, list, text};
use bytes::Bytes;
use serde_json::{Value, json};
use setpoint_object::{encode, field};
use std::collections::{HashMap, HashSet};

/// The message for a refused change; a diff follows.
const FORBIDDEN: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Validates an update of the main endpoint.
pub(super) fn validate(pod: &Value, old: &Value, errors: &mut Report) {
    let path = field::Path::new("spec");
    let (new_spec, old_spec) = (&pod["spec"], &old["spec"]);
    let annotations = |pod: &Value| pod["metadata"].get("annotations").cloned();
    if annotations(pod) != annotations(old) || new_spec != old_spec {
        check(pod, Some(old), errors, rules);
        changed_annotations(pod, old, errors);
    }
    if new_spec == old_spec {
        return;
    }
    for member in ["containers", "initContainers"] {
        if list(new_spec, member).len() != list(old_spec, member).len() {
            return errors.push(field::Error::forbidden(
                path.child(member),
                "pod updates may not add or remove containers",
            ));
        }
        for (i, container) in list(new_spec, member).iter().enumerate() {
            let (path, image) = (path.child(member).index(i), text(container, "image"));
            if image.is_empty() {
                errors.push(field::Error::required(path.child("image"), ""));
            } else if image.trim() != image {
                errors.push(field::Error::invalid(
                    path.child("image"),
                    &image.into(),
                    "must not have leading or trailing whitespace",
                ));
            }
        }
    }
    if !validate_deadline(new_spec, old_spec, &path, errors) {
        return;
    }
    validate_tolerations(new_spec, old_spec, &path, errors);
    validate_gates(new_spec, old_spec, errors);
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
    if !list(old_spec, "schedulingGates").is_empty() {
        narrow(&mut allowed, new_spec, old_spec, errors);
    }
    if allowed != *old_spec {
        let diff = difference(&allowed, old_spec);
        errors.push(field::Error::forbidden(path, format!("{FORBIDDEN}\n{diff}")));
    }
}

/// Validates what an update, or one of the status, does to annotations. An update reports some
/// faults twice, as the API.
pub(super) fn changed_annotations(pod: &Value, old: &Value, errors: &mut Report) {
    const PATH: &str = "metadata.annotations";
    check(pod, None, errors, |at| {
        immutable_annotations(&at.get(PATH), &old["metadata"]["annotations"]);
    });
    check(pod, Some(old), errors, |at| template::annotations(&at.get(PATH), &at.get("spec")));
}

/// Annotations that say how a pod was made stay.
fn immutable_annotations(new: &At<'_, '_>, old: &Value) {
    let names = |value: &Value| -> Vec<String> {
        let all = value.as_object().into_iter().flatten().map(|(key, _)| key);
        all.filter(|key| *key == MIRROR || key.starts_with(APP_ARMOR_OF_CONTAINER))
            .cloned()
            .collect()
    };
    let noun =
        |key: &str| if key == MIRROR { "mirror pod annotation" } else { "AppArmor annotations" };
    for key in names(old) {
        if new.key(&key).value != &old[&key] {
            new.key(&key).forbidden(format!("may not remove or update {}", noun(&key)));
        }
    }
    for key in names(new.value) {
        if old.get(&key).is_none() {
            new.key(&key).forbidden(format!("may not add {}", noun(&key)));
        }
    }
}

/// Scheduling gates can only be removed.
fn validate_gates(new: &Value, old: &Value, errors: &mut Report) {
    let known: HashSet<&str> =
        list(old, "schedulingGates").iter().map(|gate| text(gate, "name")).collect();
    let path = field::Path::new("spec.schedulingGates");
    let gates = list(new, "schedulingGates");
    let last: HashMap<&str, usize> =
        gates.iter().enumerate().map(|(i, gate)| (text(gate, "name"), i)).collect();
    for (i, gate) in gates.iter().enumerate() {
        let name = text(gate, "name");
        // The last one of a name is reported.
        if !known.contains(name) && last.get(name) == Some(&i) {
            errors.push(field::Error::forbidden(
                path.index(i).child("name"),
                format!("only deletion is allowed, but found new scheduling gate '{name}'"),
            ));
        }
    }
}

/// A pod that waits for a gate may be restricted to fewer nodes. Takes those members from the old
/// spec.
fn narrow(allowed: &mut Value, new: &Value, old: &Value, errors: &mut Report) {
    let selector = |spec: &Value| spec["nodeSelector"].as_object().cloned().unwrap_or_default();
    let after = selector(new);
    if selector(old).iter().any(|(key, value)| after.get(key) != Some(value)) {
        errors.push(field::Error::invalid(
            field::Path::new("spec.nodeSelector"),
            &new["nodeSelector"],
            "only additions to spec.nodeSelector are allowed (no mutations or deletions)",
        ));
    }
    take(allowed, old, "nodeSelector");
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    let terms = |spec: &'_ Value| -> Vec<Value> {
        list(&spec["affinity"]["nodeAffinity"][REQUIRED], "nodeSelectorTerms").to_vec()
    };
    let (before, after) = (terms(old), terms(new));
    let path = field::Path::new("spec.affinity.nodeAffinity").child(REQUIRED);
    let path = path.child("nodeSelectorTerms");
    if !before.is_empty() && before.len() != after.len() {
        errors.push(field::Error::invalid(
            path,
            &Value::from(after),
            "no additions/deletions to non-empty NodeSelectorTerms list are allowed",
        ));
    } else {
        for (i, (old, new)) in before.iter().zip(&after).enumerate() {
            if !only_adds(new, old) {
                errors.push(field::Error::invalid(
                    path.index(i),
                    new,
                    "only additions are allowed (no mutations or deletions)",
                ));
            }
        }
    }
    let nodes = old["affinity"].get("nodeAffinity");
    if new["affinity"].get("nodeAffinity") == nodes {
        return;
    }
    if let Some(affinity) = allowed.get_mut("affinity").and_then(Value::as_object_mut) {
        match nodes {
            Some(nodes) => affinity.insert("nodeAffinity".to_owned(), nodes.clone()),
            None => affinity.remove("nodeAffinity"),
        };
        if affinity.is_empty() && old.get("affinity").is_none() {
            take(allowed, old, "affinity");
        }
    } else if let Some(nodes) = nodes {
        allowed["affinity"] = json!({"nodeAffinity": nodes});
    }
}
/// Whether a term of a node selector has the requirements of the old one first.
fn only_adds(new: &Value, old: &Value) -> bool {
    let members = ["matchExpressions", "matchFields"];
    if members.iter().all(|member| list(old, member).is_empty()) {
        return members.iter().all(|member| list(new, member).is_empty());
    }
    members.iter().all(|member| list(new, member).starts_with(list(old, member)))
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

/// Returns whether the other rules apply, too.
fn validate_deadline(new: &Value, old: &Value, path: &field::Path, errors: &mut Report) -> bool {
    let path = path.child("activeDeadlineSeconds");
    let seconds = |spec: &Value| spec.get("activeDeadlineSeconds").and_then(Value::as_i64);
    match (seconds(new), seconds(old)) {
        (Some(new), _) if !(0..=i64::from(i32::MAX)).contains(&new) => {
            errors.push(field::Error::invalid(
                path,
                &new.into(),
                format!("must be between 0 and {}, inclusive", i32::MAX),
            ));
            return false;
        }
        (Some(new), Some(old)) if new > old => {
            errors.push(field::Error::invalid(
                path,
                &new.into(),
                "must be less than or equal to previous value",
            ));
            return false;
        }
        (None, Some(_)) => errors.push(field::Error::invalid(
            path,
            &Value::Null,
            "must not update from a positive integer to nil value",
        )),
        _ => {}
    }
    true
}

fn validate_tolerations(new: &Value, old: &Value, path: &field::Path, errors: &mut Report) {
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
        return;
    }
    // The API checks them a second time, and reports both.
    let wrap = |spec: &Value| json!({"tolerations": spec["tolerations"]});
    check(&wrap(new), Some(&wrap(old)), errors, |at| {
        let stored = at.get("tolerations");
        let spec = at.shown_as("spec", at.value);
        template::tolerations(&spec.get("tolerations"), template::may_compare(&stored));
    });
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
