//! ReplicationControllers: like ReplicaSets, with a plain map as the selector.
use crate::kind::template::validate_template;
use crate::kind::workload::{mismatch, replicas, validate_always};
use crate::kind::{
    Fill, Kind, Members, Selectable, StatusMeta, not_negative, not_supported, pod_default,
};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::field;
use setpoint_object::time::Timestamp;

/// ReplicationController.
pub(in crate::kind) static KIND: Kind = Kind {
    orphans_by_default: true,
    default,
    validate,
    selectable: &[Selectable { absent: "0", ..Selectable::new("status.replicas") }],
    unknown_label: not_supported,
    cells: Some(cells),
    ..Kind::with_status("", "ReplicationController", StatusMeta::All, r#"{"replicas":0}"#)
};

/// ReplicationController: labels and selector default to those of the template.
fn default(object: &mut Members, _version: &str) {
    let labels = object
        .get("spec")
        .and_then(|spec| spec.pointer("/template/metadata/labels"))
        .filter(|labels| labels.as_object().is_some_and(|labels| !labels.is_empty()))
        .cloned();
    if let Some(labels) = labels {
        if let Some(spec) = object.object("spec") {
            spec.absent("selector", labels.clone());
        }
        if let Some(metadata) = object.object_or_new("metadata") {
            metadata.absent("labels", labels);
        }
    }
    let Some(spec) = object.object("spec") else { return };
    spec.absent("replicas", 1);
    pod_default::template(spec);
}

/// ReplicationController: its selector is a plain map.
fn validate(object: &Value, _old: Option<&Value>, errors: &mut field::Errors) {
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
    validate_always(template, &path.child("template"), KIND.kind, errors);
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    replicas(object, now, cell::labels(object, "spec.selector"))
}
