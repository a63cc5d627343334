//! `pods/ephemeralcontainers` and `pods/resize`: parts of a running pod that may change (spec:
//! api-server §5.6).
use super::rules;
use crate::features::Feature;
use crate::kind::at::{At, check, same};
use crate::kind::{Context, Part, Report, list, template, text};
use serde_json::Value;
use setpoint_object::field;
use setpoint_quota::qos;

pub(super) const EPHEMERAL: Part = Part {
    validate: validate_ephemeral,
    steps_generation: true,
    ..Part::new("ephemeralcontainers", take_ephemeral)
};
pub(super) const RESIZE: Part = Part {
    prepare: prepare_resize,
    validate: validate_resize,
    steps_generation: true,
    ..Part::new("resize", take_resources)
};

/// The containers that a resize may change.
const LISTS: [&str; 2] = ["containers", "initContainers"];

fn take_ephemeral(merged: &mut Value, sent: &mut Value) {
    merged["spec"]["ephemeralContainers"] = sent["spec"]["ephemeralContainers"].take();
}
/// Takes the resources. Of containers that are others, or in another order, takes all: validation
/// refuses them.
fn take_resources(merged: &mut Value, sent: &mut Value) {
    let is_other = |list| list_of(sent, list).len() != list_of(merged, list).len();
    if LISTS.into_iter().any(is_other) {
        merged["spec"] = sent["spec"].take();
        return;
    }
    match sent["spec"]["resources"].take() {
        Value::Null => {
            if let Some(spec) = merged["spec"].as_object_mut() {
                spec.remove("resources");
            }
        }
        resources => merged["spec"]["resources"] = resources,
    }
    for list in LISTS {
        if !same_names(list_of(sent, list), list_of(merged, list)) {
            merged["spec"][list] = sent["spec"][list].take();
            continue;
        }
        let Some(stored) = merged["spec"].get_mut(list).and_then(Value::as_array_mut) else {
            continue;
        };
        for (container, new) in stored.iter_mut().zip(list_of(sent, list)) {
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
/// The resources of the whole pod stay without the feature for that.
fn prepare_resize(context: &Context<'_>, pod: &mut Value, old: Option<&Value>) {
    let spec = pod.get_mut("spec").and_then(Value::as_object_mut);
    let (Some(spec), Some(old)) = (spec, old) else { return };
    if !context.features.is_on(Feature::InPlacePodLevelResourcesVerticalScaling) {
        match old["spec"].get("resources") {
            Some(resources) => drop(spec.insert("resources".to_owned(), resources.clone())),
            None => drop(spec.remove("resources")),
        }
    }
}
fn list_of<'a>(pod: &'a Value, name: &str) -> &'a [Value] {
    list(&pod["spec"], name)
}
fn same_names(a: &[Value], b: &[Value]) -> bool {
    a.iter().zip(b).all(|(a, b)| text(a, "name") == text(b, "name"))
}
/// Ephemeral containers may only be added.
fn validate_ephemeral(new: &Value, old: Option<&Value>, errors: &mut Report) {
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
fn is_mirror(pod: &Value, message: &str, errors: &mut Report) -> bool {
    let is_mirror = pod["metadata"]["annotations"].get(template::MIRROR).is_some();
    if is_mirror {
        errors.push(field::Error::forbidden(field::Path::new("[]"), message));
    }
    is_mirror
}

/// A resize keeps the pod's QoS class and changes only amounts of cpu and memory.
fn validate_resize(new: &Value, old: Option<&Value>, errors: &mut Report) {
    let Some(old) = old else { return };
    if is_mirror(old, "static pods cannot be resized", errors) {
        return;
    }
    if old["spec"]["os"]["name"] == "windows" {
        let path = field::Path::new("[]");
        return errors.push(field::Error::forbidden(path, "windows pods cannot be resized"));
    }
    check(new, Some(old), errors, rules);
    if qos::of(old) != qos::of_spec(&new["spec"]) {
        errors.push(field::Error::invalid(
            field::Path::new("spec"),
            &new["status"]["qosClass"],
            "Pod QOS Class may not change as a result of resizing",
        ));
    }
    let is_clean = errors.is_empty();
    check(new, None, errors, |at| {
        let spec = at.get("spec");
        let statuses = list(&old["status"], "containerStatuses");
        let running = statuses.iter().find(|status| !status["state"]["running"].is_null());
        if running.is_some_and(|status| status.get("resources").is_none()) {
            spec.forbidden("Pod running on node without support for resize");
        }
        let resizes_pods = at.is_on(Feature::InPlacePodLevelResourcesVerticalScaling);
        if !resizes_pods && has_amounts(&old["spec"]["resources"]) {
            return at.report(|_| {
                let path = field::Path::new("[]");
                field::Error::forbidden(path, "resize of pods with pod-level resources is forbidden when InPlacePodLevelResourcesVerticalScalingEnabled feature gate is disabled")
            });
        }
        resize_of_pod(&spec, &old["spec"]);
        if !list(&old["status"], "nodeAllocatableResourceClaimStatuses").is_empty() {
            spec.forbidden("pods with node allocatable resource claims cannot be resized");
        }
        if !same_order(&spec, old) {
            return;
        }
        let resizes_init = at.is_on(Feature::InPlacePodVerticalScalingInitContainers);
        for list in ["initContainers", "containers"] {
            for (container, before) in spec.each(list).zip(list_of(old, list)) {
                if list == "initContainers" && !resizes_init && !template::is_sidecar(before) {
                    continue;
                }
                resize(&container.get("resources"), &before["resources"]);
            }
        }
        for (container, before) in spec.each("containers").zip(list_of(old, "containers")) {
            if differs(&container, before) {
                spec.forbidden(MUTABLE);
            }
        }
        for (container, before) in spec.each("initContainers").zip(list_of(old, "initContainers")) {
            if !resizes_init && !template::is_sidecar(container.value) {
                if container.value != before {
                    spec.forbidden("resources for non-sidecar init containers are immutable");
                }
                continue;
            }
            if differs(&container, before) {
                container.forbidden(
                    "only cpu and memory resources for init or sidecar containers are mutable",
                );
            }
            if template::is_sidecar(container.value) || container.value == before {
                continue;
            }
            let restarts = |policy: &&Value| text(policy, "restartPolicy") == "RestartContainer";
            for _ in container.list_of("resizePolicy").iter().filter(restarts) {
                container.forbidden(
                    "non-sidecar init containers with a resize policy of RestartContainer cannot be resized",
                );
            }
        }
        let resources = [spec.get("resources").value, &old["spec"]["resources"]];
        let is_given = resources.map(Value::is_null);
        if is_clean
            && spec.n_errors() == 0
            && is_given[0] != is_given[1]
            && !resources.iter().any(|all| has_amounts(all))
        {
            spec.forbidden(MUTABLE);
        }
    });
}
const MUTABLE: &str = "only cpu and memory resources are mutable";
/// Whether anything but amounts of cpu and memory is another. The API compares the new amounts
/// alone with the old amounts and claims: whatever has claims is refused.
fn differs(container: &At<'_, '_>, old: &Value) -> bool {
    let mut after = rest(container.get("resources").value);
    after.as_object_mut().into_iter().for_each(|after| drop(after.remove("claims")));
    !same(&after, &rest(&old["resources"]))
        || !same(container.get("resizePolicy").value, &old["resizePolicy"])
}
/// Reports containers that are others than before, or in another order.
fn same_order(spec: &At<'_, '_>, old: &Value) -> bool {
    let before = spec.n_errors();
    for list in LISTS {
        let names = list_of(old, list);
        if spec.list_of(list).len() != names.len() {
            spec.get(list).forbidden(format!("{list} may not be added or removed on resize"));
            continue;
        }
        for (container, old) in spec.each(list).zip(names) {
            if container.text_of("name") != text(old, "name") {
                let message = format!("{list} may not be renamed or reordered on resize");
                container.get("name").forbidden(message);
            }
        }
    }
    spec.n_errors() == before
}
/// Resources of the whole pod.
fn resize_of_pod(spec: &At<'_, '_>, old: &Value) {
    let (resources, before) = (spec.get("resources"), &old["resources"]);
    if !has_amounts(before) && !has_amounts(resources.value) {
        return;
    }
    if !before.is_null() {
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
    }
    if !same(&rest(resources.value), &rest(before)) {
        spec.forbidden("only cpu and memory resources are mutable at pod-level");
    }
}
/// Whether there is a request or a limit.
fn has_amounts(resources: &Value) -> bool {
    !same(&resources["requests"], &Value::Null) || !same(&resources["limits"], &Value::Null)
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
