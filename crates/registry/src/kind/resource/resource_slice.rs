//! ResourceSlices.
use crate::kind::{Kind, Selectable};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::GroupVersionKind;
use setpoint_object::time::Timestamp;

/// ResourceSlice.
pub(in crate::kind) static KIND: Kind = Kind {
    returns_deleted: true,
    selectable: &[Selectable::new("spec.nodeName"), Selectable::new("spec.driver")],
    selects_namespace: false,
    unknown_label,
    cells: Some(cells),
    ..Kind::plain("resource.k8s.io", "ResourceSlice")
};

fn unknown_label(gvk: &GroupVersionKind, label: &str) -> String {
    format!("field label not supported for {gvk}: {label}")
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        cell::name(object),
        cell::text(object, "spec.nodeName").into(),
        cell::text(object, "spec.driver").into(),
        cell::text(object, "spec.pool.name").into(),
        cell::age(object, now),
    ]
}
