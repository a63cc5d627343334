//! RuntimeClasses.
use crate::kind::Kind;
use crate::table::cell;
use serde_json::Value;
use setpoint_object::time::Timestamp;

/// RuntimeClass.
pub(in crate::kind) static KIND: Kind = Kind {
    create_on_update: true,
    unconditional_update: false,
    cells: Some(cells),
    ..Kind::plain("node.k8s.io", "RuntimeClass")
};

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![cell::name(object), cell::text(object, "handler").into(), cell::age(object, now)]
}
