//! Volumes.
use crate::kind::volume::{access_modes, class_name, phase};
use crate::kind::{Context, Fill, Kind, Members, StatusMeta};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::time::Timestamp;

/// PersistentVolume.
pub(in crate::kind) static KIND: Kind = Kind {
    returns_deleted: true,
    default,
    prepare,
    cells: Some(cells),
    ..Kind::with_status("", "PersistentVolume", StatusMeta::All, r#"{"phase":"Pending"}"#)
};

fn default(object: &mut Members, _version: &str) {
    if let Some(spec) = object.object("spec") {
        spec.absent("persistentVolumeReclaimPolicy", "Retain");
        spec.absent("volumeMode", "Filesystem");
        if let Some(path) = spec.object("hostPath") {
            path.absent("type", "");
        }
    }
    if let Some(status) = object.object_or_new("status") {
        status.absent("phase", "Pending");
    }
}

/// Sets the time of the last phase transition.
fn prepare(context: &Context<'_>, volume: &mut Value, old: Option<&Value>) {
    if old.is_none() {
        volume["status"]["lastPhaseTransitionTime"] = context.now.rfc3339().into();
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let claim = cell::at(object, "spec.claimRef");
    let claim = match claim.is_null() {
        true => String::new(),
        false => format!("{}/{}", cell::text(claim, "namespace"), cell::text(claim, "name")),
    };
    vec![
        cell::name(object),
        cell::scalar(object, "spec.capacity.storage").into_owned().into(),
        access_modes(cell::list(object, "spec.accessModes")).into(),
        cell::text(object, "spec.persistentVolumeReclaimPolicy").into(),
        phase(object).into(),
        claim.into(),
        class_name(object),
        cell::text_or(object, "spec.volumeAttributesClassName", cell::UNSET).into(),
        cell::text(object, "status.reason").into(),
        cell::age(object, now),
        cell::text_or(object, "spec.volumeMode", cell::UNSET).into(),
    ]
}
