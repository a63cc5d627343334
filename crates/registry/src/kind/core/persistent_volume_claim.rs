//! PersistentVolumeClaims: they request storage and are nearly immutable.
use crate::kind::volume::{access_modes, class_name, phase};
use crate::kind::{Kind, Members, StatusMeta, list, pod_default};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::field;
use setpoint_object::time::Timestamp;

/// PersistentVolumeClaim.
pub(in crate::kind) static KIND: Kind = Kind {
    returns_deleted: true,
    default,
    validate,
    cells: Some(cells),
    ..Kind::with_status("", "PersistentVolumeClaim", StatusMeta::All, r#"{"phase":"Pending"}"#)
};

fn default(claim: &mut Members, _version: &str) {
    pod_default::volume_claim(claim);
}

/// Validates a claim; nearly all of it is immutable.
fn validate(claim: &Value, old: Option<&Value>, errors: &mut field::Errors) {
    let path = field::Path::new("spec");
    let spec = &claim["spec"];
    if let Some(old) = old {
        let rest = |claim: &Value| {
            let mut spec = claim["spec"].clone();
            if let Some(spec) = spec.as_object_mut() {
                spec.remove("volumeAttributesClassName");
                spec.remove("resources");
                // The volume name may be set once.
                if old["spec"]["volumeName"].as_str().unwrap_or_default().is_empty() {
                    spec.remove("volumeName");
                }
            }
            spec
        };
        if rest(claim) != rest(old) {
            errors.push(field::Error::forbidden(
                path,
                "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n",
            ));
        }
        return;
    }
    if list(spec, "accessModes").is_empty() {
        errors.push(field::Error::required(
            path.child("accessModes"),
            "at least 1 access mode is required",
        ));
    }
    if spec["resources"]["requests"].get("storage").is_none() {
        errors.push(field::Error::required(path.child("resources").key("storage"), ""));
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let volume = cell::text(object, "spec.volumeName");
    // A bound claim shows its volume's values; an unbound claim shows none.
    let (capacity, modes) = match volume {
        "" => (String::new(), String::new()),
        _ => (
            cell::scalar(object, "status.capacity.storage").into_owned(),
            access_modes(cell::list(object, "status.accessModes")),
        ),
    };
    vec![
        cell::name(object),
        phase(object).into(),
        volume.into(),
        capacity.into(),
        modes.into(),
        class_name(object),
        cell::text_or(object, "spec.volumeAttributesClassName", cell::UNSET).into(),
        cell::age(object, now),
        cell::text_or(object, "spec.volumeMode", cell::UNSET).into(),
    ]
}
