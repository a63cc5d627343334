//! VolumeAttributesClasses.
use crate::kind::Kind;
use crate::kind::volume::class_title;
use crate::table::cell;
use serde_json::Value;
use setpoint_object::time::Timestamp;

/// VolumeAttributesClass.
pub(in crate::kind) static KIND: Kind = Kind {
    returns_deleted: true,
    cells: Some(cells),
    ..Kind::plain("storage.k8s.io", "VolumeAttributesClass")
};

const DEFAULT_ATTRIBUTES_CLASS: [&str; 1] =
    ["volumeattributesclass.alpha.kubernetes.io/is-default-class"];

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        class_title(object, &DEFAULT_ATTRIBUTES_CLASS),
        cell::text(object, "driverName").into(),
        cell::age(object, now),
    ]
}
