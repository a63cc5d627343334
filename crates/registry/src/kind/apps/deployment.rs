//! Deployments.
use crate::kind::workload::{REVISIONS, TEMPLATE_CONTAINERS, name_and_ready};
use crate::kind::{Fill, Kind, Members, StatusMeta, not_supported, pod_default, workload};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::time::Timestamp;

/// Deployment.
pub(in crate::kind) static KIND: Kind = Kind {
    annotations_step_generation: true,
    default,
    validate: workload::validate,
    unknown_label: not_supported,
    cells: Some(cells),
    ..Kind::with_status("apps", "Deployment", StatusMeta::ButLabels, "{}")
};

fn default(object: &mut Members, _version: &str) {
    let Some(spec) = object.object("spec") else { return };
    spec.absent("replicas", 1);
    if let Some(strategy) = spec.object_or_new("strategy") {
        strategy.absent("type", "RollingUpdate");
        if strategy.text("type") == "RollingUpdate"
            && let Some(rolling) = strategy.object_or_new("rollingUpdate")
        {
            rolling.absent("maxUnavailable", "25%");
            rolling.absent("maxSurge", "25%");
        }
    }
    spec.absent("revisionHistoryLimit", REVISIONS);
    spec.absent("progressDeadlineSeconds", 600);
    pod_default::template(spec);
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let [name, ready] = name_and_ready(object);
    let [names, images] = cell::containers(object, TEMPLATE_CONTAINERS);
    vec![
        name,
        ready,
        cell::int(object, "status.updatedReplicas").into(),
        cell::int(object, "status.availableReplicas").into(),
        cell::age(object, now),
        names,
        images,
        cell::selector(object, "spec.selector").into(),
    ]
}
