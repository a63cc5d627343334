//! Persistent volumes, claims, classes and drivers.
use super::fill::{Fill, Object};
use serde_json::json;

/// PersistentVolume.
pub(super) fn volume(object: &mut Object) {
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

/// PersistentVolumeClaim, also as a template of a StatefulSet.
pub(super) fn claim(object: &mut Object) {
    if let Some(spec) = object.object("spec") {
        claim_spec(spec);
    }
    if let Some(status) = object.object_or_new("status") {
        status.absent("phase", "Pending");
    }
}

/// PersistentVolumeClaimSpec.
pub(super) fn claim_spec(spec: &mut Object) {
    spec.absent("volumeMode", "Filesystem");
}

/// StorageClass.
pub(super) fn class(object: &mut Object) {
    object.absent("reclaimPolicy", "Delete");
    object.absent("volumeBindingMode", "Immediate");
}

/// CSIDriver.
pub(super) fn csi_driver(object: &mut Object) {
    let Some(spec) = object.object("spec") else { return };
    spec.absent("attachRequired", true);
    spec.absent("podInfoOnMount", false);
    spec.absent("storageCapacity", false);
    spec.absent("fsGroupPolicy", "ReadWriteOnceWithFSType");
    spec.absent("volumeLifecycleModes", json!(["Persistent"]));
    spec.absent("requiresRepublish", false);
    spec.absent("seLinuxMount", false);
}
