//! `pods/ephemeralcontainers` and `pods/resize`: parts of a running pod that may change (spec:
//! api-server §5.6).
use super::rules;
use crate::kind::at::{At, check, same};
use crate::kind::template::qos_class;
use crate::kind::{Part, list, template};
use serde_json::Value;
use setpoint_object::field;
use std::collections::HashMap;

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
    merged["spec"]["resources"] = sent["spec"]["resources"].take();
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
    let Some(old) = old else { return };
    if is_mirror(old, "static pods do not support ephemeral containers", errors) {
        return;
    }
    check(new, Some(old), errors, rules);
    check(new, None, errors, |at| {
        template::ephemeral(
            &at.get("spec.ephemeralContainers"),
            list_of(old, "ephemeralContainers"),
        );
    });
}
/// Reports a pod that a node agent runs from its own files.
fn is_mirror(pod: &Value, message: &str, errors: &mut field::Errors) -> bool {
    let is_mirror = pod["metadata"]["annotations"].get(template::MIRROR).is_some();
    if is_mirror {
        errors.push(field::Error::forbidden(field::Path::new("[]"), message));
    }
    is_mirror
}

/// A resize keeps the pod's QoS class and changes only amounts of cpu and memory.
fn validate_resize(new: &Value, old: Option<&Value>, errors: &mut field::Errors) {
    let Some(old) = old else { return };
    if is_mirror(old, "static pods cannot be resized", errors) {
        return;
    }
    if old["spec"]["os"]["name"] == "windows" {
        let path = field::Path::new("[]");
        return errors.push(field::Error::forbidden(path, "windows pods cannot be resized"));
    }
    check(new, Some(old), errors, rules);
    let (before, after) = (qos_class(old), qos_class(new));
    if before != after {
        errors.push(field::Error::invalid(
            field::Path::new("spec"),
            &new["status"]["qosClass"],
            "Pod QOS Class may not change as a result of resizing",
        ));
    }
    check(new, None, errors, |at| {
        let spec = at.get("spec");
        let statuses = list(&old["status"], "containerStatuses");
        let running = statuses.iter().find(|status| !status["state"]["running"].is_null());
        if running.is_some_and(|status| status.get("resources").is_none()) {
            spec.forbidden("Pod running on node without support for resize");
        }
        resize_of_pod(&spec, &old["spec"]);
        for (list, message) in [
            (
                "initContainers",
                "only cpu and memory resources for init or sidecar containers are mutable",
            ),
            ("containers", "only cpu and memory resources are mutable"),
        ] {
            for (container, before) in spec.each(list).zip(list_of(old, list)) {
                resize(&container.get("resources"), &before["resources"]);
                let is_same =
                    same(&rest(container.get("resources").value), &rest(&before["resources"]))
                        && same(container.get("resizePolicy").value, &before["resizePolicy"]);
                if is_same {
                    continue;
                }
                match list {
                    "containers" => spec.forbidden(message),
                    _ => container.forbidden(message),
                }
            }
        }
    });
}
/// Resources of the whole pod.
fn resize_of_pod(spec: &At<'_, '_>, old: &Value) {
    let (resources, before) = (spec.get("resources"), &old["resources"]);
    if before.is_null() {
        return;
    }
    if !resources.is_set() {
        return resources.forbidden("pod-level resources cannot be removed");
    }
    for (member, message) in [
        ("requests", "pod-level resource requests cannot be removed"),
        ("limits", "pod-level resource limits cannot be removed"),
    ] {
        if lacks(resources.get(member).value, &before[member]) {
            resources.get(member).forbidden(message);
        }
    }
    if !same(&rest(resources.value), &rest(before)) {
        spec.forbidden("only cpu and memory resources are mutable at pod-level");
    }
}
fn resize(at: &At<'_, '_>, old: &Value) {
    for (member, message) in [
        ("requests", "resource requests cannot be removed"),
        ("limits", "resource limits cannot be removed"),
    ] {
        if lacks(at.get(member).value, &old[member]) {
            at.get(member).forbidden(message);
        }
    }
}
/// Whether a resource of the old map is missing.
fn lacks(new: &Value, old: &Value) -> bool {
    old.as_object().into_iter().flatten().any(|(name, _)| new.get(name).is_none())
}
/// Resources without amounts of cpu and memory.
fn rest(resources: &Value) -> Value {
    let mut rest = resources.clone();
    for member in ["requests", "limits"] {
        let Some(amounts) = rest.get_mut(member).and_then(Value::as_object_mut) else { continue };
        amounts.retain(|name, _| !matches!(name.as_str(), "cpu" | "memory"));
        if amounts.is_empty()
            && let Some(members) = rest.as_object_mut()
        {
            members.remove(member);
        }
    }
    rest
}
