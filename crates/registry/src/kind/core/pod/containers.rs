//! `pods/ephemeralcontainers` and `pods/resize`: parts of a running pod that may change (spec:
//! api-server §5.6).
use crate::kind::template::qos_class;
use crate::kind::{Part, list};
use serde_json::{Value, json};
use setpoint_object::field;
use std::collections::{HashMap, HashSet};

pub(super) const EPHEMERAL: Part = Part {
    validate: validate_ephemeral,
    steps_generation: true,
    ..Part::new("ephemeralcontainers", take_ephemeral)
};
pub(super) const RESIZE: Part = Part {
    validate: validate_resize,
    steps_generation: true,
    ..Part::new("resize", take_resources)
};

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
fn list_of<'a>(pod: &'a Value, name: &str) -> &'a [Value] {
    list(&pod["spec"], name)
}
fn by_name(containers: &[Value]) -> HashMap<&str, &Value> {
    containers.iter().map(|c| (c["name"].as_str().unwrap_or_default(), c)).collect()
}
/// Ephemeral containers may only be added.
fn validate_ephemeral(new: &Value, old: Option<&Value>, errors: &mut field::Errors) {
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
    for container in old.map_or(&[][..], |old| list_of(old, "ephemeralContainers")) {
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
/// A resize must keep the pod's QoS class.
fn validate_resize(new: &Value, old: Option<&Value>, errors: &mut field::Errors) {
    let Some(old) = old else { return };
    let (before, after) = (qos_class(old), qos_class(new));
    if before != after {
        errors.push(field::Error::invalid(
            field::Path::new("spec"),
            &json!(after),
            "Pod QOS Class may not change as a result of resizing",
        ));
    }
}
