//! ReplicaSets.
use crate::kind::workload::replicas;
use crate::kind::{Fill, Kind, Members, StatusMeta, not_supported, pod_default, workload};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::time::Timestamp;

/// ReplicaSet.
pub(in crate::kind) static KIND: Kind = Kind {
    default,
    validate: workload::validate,
    unknown_label: not_supported,
    cells: Some(cells),
    ..Kind::with_status("apps", "ReplicaSet", StatusMeta::All, r#"{"replicas":0}"#)
};

fn default(object: &mut Members, _version: &str) {
    let Some(spec) = object.object("spec") else { return };
    spec.absent("replicas", 1);
    pod_default::template(spec);
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    replicas(object, now, cell::selector(object, "spec.selector"))
}
