//! `pods/ephemeralcontainers` and `pods/resize`: parts of a pod that may change while it runs (spec: api-server §5.6).
use super::Write;
use crate::strategy::pod::qos_class;
use serde_json::{Value, json};
use setpoint_object::field;
use setpoint_object::meta::ObjectExt;
use std::collections::{HashMap, HashSet};

impl Write<'_> {
    /// Of a whole object sent to a subresource, takes the part that is its own and the rest from the stored one.
    pub(super) fn merge_subresource(&self, object: &mut Value, stored: &Value) {
        let take: fn(&mut Value, &mut Value) = match self.target.subresource.as_str() {
            "finalize" => {
                |merged, sent| merged["spec"]["finalizers"] = sent["spec"]["finalizers"].take()
            }
            "ephemeralcontainers" => take_ephemeral,
            "resize" => take_resources,
            "approval" => super::approval::take,
            _ => return,
        };
        let mut merged = stored.clone();
        take(&mut merged, object);
        for member in ["resourceVersion", "managedFields"] {
            if let Some(value) = object.meta().and_then(|m| m.get(member)) {
                merged.set_meta(member, value.clone());
            }
        }
        prune_nulls(&mut merged);
        *object = merged;
    }
}
fn prune_nulls(object: &mut Value) {
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        spec.retain(|_, value| !value.is_null());
    }
}
fn take_ephemeral(merged: &mut Value, sent: &mut Value) {
    merged["spec"]["ephemeralContainers"] = sent["spec"]["ephemeralContainers"].take();
}
fn take_resources(merged: &mut Value, sent: &mut Value) {
    for list in ["containers", "initContainers"] {
        let Some(stored) = merged["spec"].get_mut(list).and_then(Value::as_array_mut) else {
            continue;
        };
        let sent = by_name(list_of(sent, list));
        for container in stored {
            let name = container["name"].as_str().unwrap_or_default();
            let Some(new) = sent.get(name) else { continue };
            for member in ["resources", "resizePolicy"] {
                match new.get(member) {
                    Some(value) => container[member] = value.clone(),
                    None => {
                        if let Some(members) = container.as_object_mut() {
                            members.remove(member);
                        }
                    }
                }
            }
        }
    }
}
fn list_of<'a>(pod: &'a Value, list: &str) -> &'a [Value] {
    pod["spec"].get(list).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
fn by_name(containers: &[Value]) -> HashMap<&str, &Value> {
    containers.iter().map(|c| (c["name"].as_str().unwrap_or_default(), c)).collect()
}
/// Ephemeral containers may only be added.
pub(super) fn validate_ephemeral(new: &Value, old: &Value, errors: &mut Vec<field::Error>) {
    let path = field::Path::new("spec.ephemeralContainers");
    let sent = list_of(new, "ephemeralContainers");
    let mut names: HashSet<&str> = ["containers", "initContainers"]
        .into_iter()
        .flat_map(|list| list_of(new, list))
        .map(|c| c["name"].as_str().unwrap_or_default())
        .collect();
    for (i, container) in sent.iter().enumerate() {
        let path = path.index(i);
        let name = &container["name"];
        if name.as_str().unwrap_or_default().is_empty() {
            errors.push(field::Error::required(path.child("name"), ""));
        } else if !names.insert(name.as_str().unwrap_or_default()) {
            errors.push(field::Error::duplicate(path.child("name"), name));
        }
        if container["image"].as_str().unwrap_or_default().is_empty() {
            errors.push(field::Error::required(path.child("image"), ""));
        }
    }
    let by_name = by_name(sent);
    for container in list_of(old, "ephemeralContainers") {
        let name = &container["name"];
        match by_name.get(name.as_str().unwrap_or_default()) {
            None => errors.push(field::Error::forbidden(
                path.clone(),
                format!("existing ephemeral containers {name} may not be removed\n"),
            )),
            Some(same) if *same != container => errors.push(field::Error::forbidden(
                path.clone(),
                format!("existing ephemeral containers {name} may not be changed\n"),
            )),
            Some(_) => {}
        }
    }
}
/// A resize keeps the pod's class.
pub(super) fn validate_resize(new: &Value, old: &Value, errors: &mut Vec<field::Error>) {
    let (before, after) = (qos_class(old), qos_class(new));
    if before != after {
        errors.push(field::Error::invalid(
            field::Path::new("spec"),
            &json!(after),
            "Pod QOS Class may not change as a result of resizing",
        ));
    }
}
