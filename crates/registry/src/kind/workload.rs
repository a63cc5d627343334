//! Workloads: a selector and a template that match.
use crate::features::Feature;
use crate::kind::at::{At, check, same};
use crate::kind::{Disabled, Report, template};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::field;
use setpoint_object::label::Selector;
use setpoint_object::meta::ObjectExt;
use setpoint_object::name;
use setpoint_object::time::Timestamp;
use std::num::IntErrorKind;

/// Old revisions that a workload keeps.
pub(super) const REVISIONS: i32 = 10;

/// The members of Deployments and ReplicaSets that a feature keeps.
pub(super) const DISABLED: [Disabled; 1] =
    [(Some(Feature::DeploymentReplicaSetTerminatingReplicas), &["status.terminatingReplicas"])];

/// The path of their containers.
pub(super) const TEMPLATE_CONTAINERS: &str = "spec.template.spec.containers";

/// The first cells of Deployment and StatefulSet: name, and ready replicas of all replicas.
pub(super) fn name_and_ready(object: &Value) -> [Value; 2] {
    let [ready, wanted] =
        ["status.readyReplicas", "spec.replicas"].map(|path| cell::int(object, path));
    [cell::name(object), format!("{ready}/{wanted}").into()]
}

/// A selector that is not empty and selects the template, and numbers that are not negative.
/// `noun`: the kind's word in API messages. Returns whether the selector can be read.
pub(super) fn selection(spec: &At<'_, '_>, noun: &str, needs_selector: bool) -> bool {
    spec.get("replicas").not_negative();
    selector(spec, noun, needs_selector)
}
/// The same without the numbers. Returns whether the selector can be read.
pub(super) fn selector(spec: &At<'_, '_>, noun: &str, needs_selector: bool) -> bool {
    let selector = spec.get("selector");
    if selector.is_set() {
        selector.selector();
        let is_empty = selector.get("matchLabels").len() == 0
            && selector.list_of("matchExpressions").is_empty();
        if is_empty {
            selector.invalid(format!("empty selector is invalid for {noun}"));
        }
    } else if needs_selector {
        selector.required("");
    }
    let labels = spec.get("template.metadata.labels");
    let parsed = Selector::from_object(selector.value);
    let is_readable = parsed.is_ok();
    match parsed {
        // The API's words differ by kind.
        Err(_) => match noun {
            "daemonset" => {}
            "statefulset" => selector.invalid(""),
            _ => selector.invalid("invalid label selector"),
        },
        Ok(Some(parsed)) if parsed.is_everything() || selects(&parsed, &labels) => {}
        Ok(_) => mismatch(&labels),
    }
    is_readable
}
fn selects(selector: &Selector, labels: &At<'_, '_>) -> bool {
    selector.matches(|key| labels.value.get(key).and_then(Value::as_str))
}
/// The labels of the template do not match the selector.
pub(super) fn mismatch(labels: &At<'_, '_>) {
    labels.invalid("`selector` does not match template `labels`");
}

/// Why a text is no integer, in the words of Go's parser.
pub(super) fn integer_fault(text: &str) -> Option<String> {
    let fault = match text.parse::<i64>().err()?.kind() {
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
        _ => "invalid syntax",
    };
    Some(format!("strconv.ParseInt: parsing {}: {fault}", field::quote(text)))
}

/// Workloads that run indefinitely always restart and have no deadline. `kind`: as messages name
/// it.
pub(super) fn runs_always(template: &At<'_, '_>, kind: &str) {
    let policy = template.get("spec.restartPolicy");
    if !policy.text().is_empty() && policy.text() != "Always" {
        policy.unsupported(&["Always"]);
    }
    if template.has("spec.activeDeadlineSeconds") {
        template
            .get("spec.activeDeadlineSeconds")
            .forbidden(format!("activeDeadlineSeconds in {kind} is not Supported"));
    }
}

/// The selector and the template of a Deployment or a ReplicaSet.
pub(super) fn replicated(spec: &At<'_, '_>) {
    // The API looks at the template only with a selector that can be read.
    if !selector(spec, "deployment", true) {
        return;
    }
    let at = spec.get("template");
    template::template(&at);
    // The message for Deployments names the ReplicaSet, too.
    runs_always(&at, "ReplicaSet");
}

/// Reports a changed selector.
pub(super) fn selector_immutable(object: &Value, old: Option<&Value>, errors: &mut Report) {
    let Some(old) = old else { return };
    check(object, None, errors, |at| {
        at.get("spec.selector").immutable(&old["spec"]["selector"]);
    });
}

/// Counters of a status: none is negative, and some, its parts, are not above the number of
/// replicas.
pub(super) fn status(status: &At<'_, '_>, counters: &[&str], parts: &[&str], ready_noun: &str) {
    for counter in counters {
        status.get(counter).not_negative();
    }
    let replicas = status.int_of("replicas");
    for part in parts {
        let number = status.int_of(part);
        if number > replicas {
            status.get(part).invalid_as(&number.into(), "cannot be greater than status.replicas");
        }
    }
    let available = status.int_of("availableReplicas");
    if available > status.int_of("readyReplicas") {
        status
            .get("availableReplicas")
            .invalid_as(&available.into(), format!("cannot be greater than {ready_noun}"));
    }
}
/// The number of name collisions only grows.
pub(super) fn collisions(status: &At<'_, '_>, old: &Value) {
    let count = status.get("collisionCount");
    let before = old["status"]["collisionCount"].as_i64();
    if before.is_some_and(|before| count.int().is_none_or(|now| now < before)) {
        count.invalid_as(&count.int().unwrap_or(0).into(), "cannot be decremented");
    }
}

/// Warns of a name that is not a label, because it is part of host names.
pub(super) fn name_warning(object: &Value) -> Option<String> {
    let messages = name::dns1123_label(object.name());
    (!messages.is_empty()).then(|| format!(
        "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: [{}]",
        messages.join(" ")
    ))
}
/// Warnings for a workload with a template at `spec.template`.
pub(super) fn warnings(object: &Value) -> Vec<String> {
    let mut all: Vec<String> = name_warning(object).into_iter().collect();
    all.append(&mut template::template_warnings(&object["spec"]["template"], "spec.template"));
    all
}
/// Whether an update has changed what a generation counts: the spec, or annotations of some kinds.
pub(super) fn has_stepped(object: &Value, old: &Value) -> bool {
    object["metadata"]["generation"] != old["metadata"]["generation"]
}
/// Warnings for a workload of another generation.
pub(super) fn update_warnings(object: &Value, old: &Value) -> Vec<String> {
    if has_stepped(object, old) { template_warnings(object) } else { Vec::new() }
}
/// Warnings for a template alone.
pub(super) fn template_warnings(object: &Value) -> Vec<String> {
    template::template_warnings(&object["spec"]["template"], "spec.template")
}

/// Whether all members but some are as in the stored object.
pub(super) fn rest_is_same(spec: &Value, old: &Value, mutable: &[&str]) -> bool {
    let empty = serde_json::Map::new();
    let [new, old] = [spec, old].map(|spec| spec.as_object().unwrap_or(&empty));
    let is_fixed = |name: &&String| !mutable.contains(&name.as_str());
    new.keys().chain(old.keys()).filter(is_fixed).all(|name| {
        let [new, old] = [new, old].map(|spec| spec.get(name).unwrap_or(&Value::Null));
        same(new, old)
    })
}

/// The cells of a workload with replicas.
pub(super) fn replicas(object: &Value, now: Timestamp, selector: String) -> Vec<Value> {
    let [names, images] = cell::containers(object, TEMPLATE_CONTAINERS);
    vec![
        cell::name(object),
        cell::int(object, "spec.replicas").into(),
        cell::int(object, "status.replicas").into(),
        cell::int(object, "status.readyReplicas").into(),
        cell::age(object, now),
        names,
        images,
        selector.into(),
    ]
}
