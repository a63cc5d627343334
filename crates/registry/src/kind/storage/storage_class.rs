//! StorageClasses: the provisioner is immutable.
use crate::kind::volume::class_title;
use crate::kind::{Fill, Kind, Members, text};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::field;
use setpoint_object::time::Timestamp;

/// StorageClass.
pub(in crate::kind) static KIND: Kind = Kind {
    returns_deleted: true,
    default,
    validate,
    cells: Some(cells),
    ..Kind::plain("storage.k8s.io", "StorageClass")
};

/// Annotations that mark the default storage class.
const DEFAULT_CLASS: [&str; 2] = [
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
];

fn default(object: &mut Members, _version: &str) {
    object.absent("reclaimPolicy", "Delete");
    object.absent("volumeBindingMode", "Immediate");
}

/// Validates a storage class: the provisioner is immutable.
fn validate(class: &Value, old: Option<&Value>, errors: &mut field::Errors) {
    if text(class, "provisioner").is_empty() {
        errors.push(field::Error::required(field::Path::new("provisioner"), ""));
    }
    let Some(old) = old else { return };
    for member in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
        if old.get(member) != class.get(member) {
            errors.push(field::Error::forbidden(
                field::Path::new(member),
                format!("updates to {member} are forbidden."),
            ));
        }
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        class_title(object, &DEFAULT_CLASS),
        cell::text(object, "provisioner").into(),
        cell::text_or(object, "reclaimPolicy", "Delete").into(),
        cell::text_or(object, "volumeBindingMode", "Immediate").into(),
        (cell::at(object, "allowVolumeExpansion") == true).into(),
        cell::age(object, now),
    ]
}
