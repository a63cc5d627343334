//! Deployment, ReplicaSet, StatefulSet, DaemonSet, ReplicationController: a selector and a template that fit each other.
use super::Context;
use super::pod::{list, not_negative, text, validate_template};
use serde_json::{Value, json};
use setpoint_object::field;
use setpoint_object::label::Selector;
use setpoint_object::meta::ObjectExt;

/// Deployment, ReplicaSet and DaemonSet.
pub(super) fn validate(object: &Value, old: Option<&Value>, errors: &mut Vec<field::Error>) {
    let kind = text(object, "kind");
    let noun = if kind == "DaemonSet" { "daemonset" } else { "deployment" };
    validate_common(object, noun, kind != "DaemonSet", errors);
    if let Some(old) = old {
        validate_selector_kept(object, old, errors);
    }
}
/// StatefulSet.
pub(super) fn validate_stateful_set(
    object: &Value,
    old: Option<&Value>,
    errors: &mut Vec<field::Error>,
) {
    validate_common(object, "statefulset", true, errors);
    let Some(old) = old else { return };
    let mutable = [
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ];
    let rest = |object: &Value| {
        let mut spec = object["spec"].clone();
        if let Some(spec) = spec.as_object_mut() {
            spec.retain(|name, _| !mutable.contains(&name.as_str()));
        }
        spec
    };
    if rest(object) != rest(old) {
        errors.push(field::Error::forbidden(
            field::Path::new("spec"),
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        ));
    }
}
/// ReplicationController: its selector is a plain map.
pub(super) fn validate_controller(
    object: &Value,
    _old: Option<&Value>,
    errors: &mut Vec<field::Error>,
) {
    let path = field::Path::new("spec");
    let spec = &object["spec"];
    not_negative(spec, "minReadySeconds", &path, errors);
    let selector = spec["selector"].as_object().filter(|s| !s.is_empty());
    if selector.is_none() {
        errors.push(field::Error::required(path.child("selector"), ""));
    }
    not_negative(spec, "replicas", &path, errors);
    let template = &spec["template"];
    if !template.is_object() {
        errors.push(field::Error::required(path.child("template"), ""));
        return;
    }
    let labels = &template["metadata"]["labels"];
    let matches = selector.into_iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    if !matches {
        errors.push(mismatch(&path.child("template"), labels));
    }
    validate_template(template, &path.child("template"), errors);
    validate_always(template, &path.child("template"), errors);
}
/// The template generation of old clients.
pub(super) fn prepare_daemon_set(_: &Context<'_>, object: &mut Value, old: Option<&Value>) {
    let key = "deprecated.daemonset.template.generation";
    let generation = match old {
        None => 1,
        Some(old) => {
            let generation = old["metadata"]["annotations"][key]
                .as_str()
                .and_then(|g| g.parse().ok())
                .unwrap_or(1);
            if old["spec"]["template"] == object["spec"]["template"] {
                generation
            } else {
                generation + 1
            }
        }
    };
    let annotations = object.meta_mut().entry("annotations").or_insert_with(|| json!({}));
    annotations[key] = generation.to_string().into();
}

fn validate_common(
    object: &Value,
    noun: &str,
    needs_selector: bool,
    errors: &mut Vec<field::Error>,
) {
    let path = field::Path::new("spec");
    let spec = &object["spec"];
    not_negative(spec, "replicas", &path, errors);
    let selector = spec.get("selector").filter(|s| s.is_object());
    match selector {
        None if needs_selector => errors.push(field::Error::required(path.child("selector"), "")),
        None => {}
        Some(selector) => {
            validate_label_selector(selector, &path.child("selector"), errors);
            let is_empty = selector["matchLabels"].as_object().is_none_or(|m| m.is_empty())
                && list(selector, "matchExpressions").is_empty();
            if is_empty {
                errors.push(field::Error::invalid(
                    path.child("selector"),
                    selector,
                    format!("empty selector is invalid for {noun}"),
                ));
            }
        }
    }
    let template = &spec["template"];
    let labels = template["metadata"].get("labels").unwrap_or(&Value::Null);
    let label = |key: &str| labels.get(key).and_then(Value::as_str);
    match Selector::from_object(selector.unwrap_or(&Value::Null)) {
        Err(_) => errors.push(field::Error::invalid(
            path.child("selector"),
            selector.unwrap_or(&Value::Null),
            "invalid label selector",
        )),
        Ok(Some(selector)) if selector.is_everything() || selector.matches(label) => {}
        Ok(_) => errors.push(mismatch(&path.child("template"), labels)),
    }
    validate_template(template, &path.child("template"), errors);
    validate_always(template, &path.child("template"), errors);
    for member in ["minReadySeconds", "revisionHistoryLimit"] {
        not_negative(spec, member, &path, errors);
    }
}
fn mismatch(template: &field::Path, labels: &Value) -> field::Error {
    field::Error::invalid(
        template.child("metadata.labels"),
        labels,
        "`selector` does not match template `labels`",
    )
}
/// Workloads that keep running restart always.
fn validate_always(template: &Value, path: &field::Path, errors: &mut Vec<field::Error>) {
    let policy = text(&template["spec"], "restartPolicy");
    if !policy.is_empty() && policy != "Always" {
        errors.push(field::Error::not_supported(
            path.child("spec.restartPolicy"),
            &policy.into(),
            &["Always"],
        ));
    }
}
fn validate_selector_kept(object: &Value, old: &Value, errors: &mut Vec<field::Error>) {
    if object["spec"]["selector"] != old["spec"]["selector"] {
        errors.push(field::Error::invalid(
            field::Path::new("spec.selector"),
            &object["spec"]["selector"],
            "field is immutable",
        ));
    }
}
/// The parts of a `LabelSelector`.
pub(super) fn validate_label_selector(
    selector: &Value,
    path: &field::Path,
    errors: &mut Vec<field::Error>,
) {
    crate::write::validate_labels(selector.get("matchLabels"), &path.child("matchLabels"), errors);
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
    }
}
