//! Workloads: a selector and a template that match.
use crate::kind::template::validate_template;
use crate::kind::{list, not_negative, text, validate_label_selector};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::field;
use setpoint_object::label::Selector;
use setpoint_object::time::Timestamp;

/// Old revisions that a workload keeps.
pub(super) const REVISIONS: i32 = 10;

/// The path of their containers.
pub(super) const TEMPLATE_CONTAINERS: &str = "spec.template.spec.containers";

/// The first cells of Deployment and StatefulSet: name, and ready replicas of all replicas.
pub(super) fn name_and_ready(object: &Value) -> [Value; 2] {
    let [ready, wanted] =
        ["status.readyReplicas", "spec.replicas"].map(|path| cell::int(object, path));
    [cell::name(object), format!("{ready}/{wanted}").into()]
}

/// Deployment and ReplicaSet.
pub(super) fn validate(object: &Value, old: Option<&Value>, errors: &mut field::Errors) {
    validate_common(object, "deployment", true, validate_template, errors);
    if let Some(old) = old {
        validate_selector_kept(object, old, errors);
    }
}

/// Validation of the template: (template, path, errors).
type ValidateTemplate = fn(&Value, &field::Path, &mut field::Errors);

/// Validates selector, template and numbers. `noun`: the kind's word in API messages.
pub(super) fn validate_common(
    object: &Value,
    noun: &str,
    needs_selector: bool,
    validate_template: ValidateTemplate,
    errors: &mut field::Errors,
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
    validate_always(template, &path.child("template"), text(object, "kind"), errors);
    for member in ["minReadySeconds", "revisionHistoryLimit"] {
        not_negative(spec, member, &path, errors);
    }
}

pub(super) fn mismatch(template: &field::Path, labels: &Value) -> field::Error {
    field::Error::invalid(
        template.child("metadata.labels"),
        labels,
        "`selector` does not match template `labels`",
    )
}

/// Workloads that run indefinitely always restart and have no deadline.
pub(super) fn validate_always(
    template: &Value,
    path: &field::Path,
    kind: &str,
    errors: &mut field::Errors,
) {
    let policy = text(&template["spec"], "restartPolicy");
    if !policy.is_empty() && policy != "Always" {
        errors.push(field::Error::not_supported(
            path.child("spec.restartPolicy"),
            &policy.into(),
            &["Always"],
        ));
    }
    if template["spec"].get("activeDeadlineSeconds").is_some() {
        // The message for Deployments names the ReplicaSet.
        let kind = if kind == "Deployment" { "ReplicaSet" } else { kind };
        errors.push(field::Error::forbidden(
            path.child("spec.activeDeadlineSeconds"),
            format!("activeDeadlineSeconds in {kind} is not Supported"),
        ));
    }
}

pub(super) fn validate_selector_kept(object: &Value, old: &Value, errors: &mut field::Errors) {
    if object["spec"]["selector"] != old["spec"]["selector"] {
        errors.push(field::Error::invalid(
            field::Path::new("spec.selector"),
            &object["spec"]["selector"],
            "field is immutable",
        ));
    }
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
