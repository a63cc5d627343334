//! ReplicaSets.
use crate::kind::at::check;
use crate::kind::workload::replicas;
use crate::kind::{Fill, Kind, Members, Report, StatusMeta, pod_default, workload};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::time::Timestamp;

/// ReplicaSet.
pub(in crate::kind) static KIND: Kind = Kind {
    default,
    validate,
    validate_status,
    warnings: workload::warnings,
    update_warnings: workload::update_warnings,
    pod_spec: "spec.template.spec",
    disabled: &workload::DISABLED,
    cells: Some(cells),
    rules: "selector, template, numbers; immutable selector; `status`",
    ..Kind::with_status("apps", "ReplicaSet", StatusMeta::All, r#"{"replicas":0}"#)
};

fn default(object: &mut Members, _version: &str) {
    let Some(spec) = object.object("spec") else { return };
    spec.absent("replicas", 1);
    pod_default::template(spec);
}

fn validate(object: &Value, old: Option<&Value>, errors: &mut Report) {
    check(object, old, errors, |at| {
        let spec = at.get("spec");
        for member in ["replicas", "minReadySeconds"] {
            spec.get(member).not_negative();
        }
        workload::replicated(&spec);
    });
    workload::selector_immutable(object, old, errors);
}

fn validate_status(object: &Value, old: Option<&Value>, errors: &mut Report) {
    check(object, old, errors, |at| {
        workload::status(
            &at.get("status"),
            &[
                "replicas",
                "fullyLabeledReplicas",
                "readyReplicas",
                "availableReplicas",
                "observedGeneration",
                "terminatingReplicas",
            ],
            &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
            "readyReplicas",
        );
    });
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    replicas(object, now, cell::selector(object, "spec.selector"))
}
