//! CSINodes.
use crate::kind::Kind;
use crate::table::cell;
use serde_json::Value;
use setpoint_object::time::Timestamp;

/// CSINode.
pub(in crate::kind) static KIND: Kind = Kind {
    unconditional_update: false,
    returns_deleted: true,
    cells: Some(cells),
    ..Kind::plain("storage.k8s.io", "CSINode")
};

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![cell::name(object), cell::len(object, "spec.drivers").into(), cell::age(object, now)]
}
