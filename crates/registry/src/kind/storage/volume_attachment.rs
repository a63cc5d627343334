//! VolumeAttachments.
use crate::kind::{Kind, StatusMeta};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::time::Timestamp;

/// VolumeAttachment.
pub(in crate::kind) static KIND: Kind = Kind {
    unconditional_update: false,
    returns_deleted: true,
    cells: Some(cells),
    ..Kind::with_status(
        "storage.k8s.io",
        "VolumeAttachment",
        StatusMeta::All,
        r#"{"attached":false}"#,
    )
};

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        cell::name(object),
        cell::text(object, "spec.attacher").into(),
        cell::text(object, "spec.source.persistentVolumeName").into(),
        cell::text(object, "spec.nodeName").into(),
        (cell::at(object, "status.attached") == true).into(),
        cell::age(object, now),
    ]
}
