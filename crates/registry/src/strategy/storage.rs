//! Volumes, claims and storage classes.
use super::Context;
use super::pod::{list, text};
use serde_json::Value;
use setpoint_object::field;

/// A volume tells when its phase began.
pub(super) fn prepare_volume(context: &Context<'_>, volume: &mut Value, old: Option<&Value>) {
    if old.is_none() {
        volume["status"]["lastPhaseTransitionTime"] = context.now.rfc3339().into();
    }
}
/// Claims: something to claim; nearly nothing may change.
pub(super) fn validate_claim(claim: &Value, old: Option<&Value>, errors: &mut Vec<field::Error>) {
    let path = field::Path::new("spec");
    let spec = &claim["spec"];
    if let Some(old) = old {
        let rest = |claim: &Value| {
            let mut spec = claim["spec"].clone();
            if let Some(spec) = spec.as_object_mut() {
                spec.remove("volumeAttributesClassName");
                spec.remove("resources");
                // A binder names the volume once.
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
/// Storage classes: who provisions does not change.
pub(super) fn validate_storage_class(
    class: &Value,
    old: Option<&Value>,
    errors: &mut Vec<field::Error>,
) {
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
