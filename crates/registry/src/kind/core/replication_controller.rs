//! ReplicationControllers: like ReplicaSets, with a plain map as the selector.
use crate::kind::at::check;
use crate::kind::workload::replicas;
use crate::kind::{
    Fill, Kind, Members, Report, Selectable, StatusMeta, not_supported, pod_default, template,
    workload,
};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::time::Timestamp;

/// ReplicationController.
pub(in crate::kind) static KIND: Kind = Kind {
    checks_prefix: false,
    orphans_by_default: true,
    default,
    validate,
    validate_status,
    warnings: workload::warnings,
    // The API warns of the template that was.
    update_warnings: |object, old| workload::update_warnings(old, object),
    pod_spec: "spec.template.spec",
    selectable: &[Selectable { absent: "0", ..Selectable::new("status.replicas") }],
    unknown_label: not_supported,
    cells: Some(cells),
    rules: "selector, template, numbers; counters of `status`",
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
fn validate(object: &Value, old: Option<&Value>, errors: &mut Report) {
    check(object, old, errors, |at| {
        let spec = at.get("spec");
        spec.get("minReadySeconds").not_negative();
        spec.get("selector").need();
        spec.get("replicas").not_negative();
        let template = spec.get("template");
        if !template.is_set() {
            return template.required("");
        }
        let labels = template.get("metadata.labels");
        let selector = spec.get("selector").value.as_object();
        let mut wanted = selector.into_iter().flatten();
        if !wanted.all(|(key, value)| labels.value.get(key) == Some(value)) {
            workload::mismatch(&labels);
        }
        template::template(&template);
        workload::runs_always(&template, KIND.kind);
    });
}

fn validate_status(object: &Value, old: Option<&Value>, errors: &mut Report) {
    check(object, old, errors, |at| {
        let parts = ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
        let counters = [&["replicas"], &parts[..], &["observedGeneration"]].concat();
        workload::status(&at.get("status"), &counters, &parts, "readyReplicas");
    });
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    replicas(object, now, cell::labels(object, "spec.selector"))
}
