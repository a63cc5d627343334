//! Kinds of `admissionregistration.k8s.io`.
pub(super) mod admission_policy;
pub(crate) mod expression;
pub(crate) mod manifest;
mod policy_binding;
mod policy_spec;
mod rules;
pub(super) mod webhook_configuration;

use super::Report;
use crate::features::Feature;
use serde_json::Value;
use setpoint_object::field::{Error, Path};
use setpoint_object::meta::ObjectExt;

/// The kind of validating policies, and the name of the plugin that evaluates them.
pub(crate) const VALIDATING_POLICY: &str = "ValidatingAdmissionPolicy";
/// The kind of mutating policies, and the name of the plugin that evaluates them.
pub(crate) const MUTATING_POLICY: &str = "MutatingAdmissionPolicy";

/// The suffix of the names of objects in manifests.
pub(crate) const SUFFIX: &str = ".static.k8s.io";

/// Whether a name is one of manifests.
pub(crate) fn is_reserved(name: &str) -> bool {
    name.ends_with(SUFFIX)
}

/// What is said of a reserved name.
fn reserved_name() -> String {
    format!(
        "names ending with {SUFFIX:?} are reserved for static manifest-based configurations and cannot be managed via the API"
    )
}

/// Refuses a reserved name of a new object, if there may be manifests.
fn refuse_reserved(object: &Value, old: Option<&Value>, errors: &mut Report) {
    let name = object.name();
    let may_be_one = old.is_none() && errors.is_on(Feature::ManifestBasedAdmissionControlConfig);
    if may_be_one && is_reserved(name) {
        let path = Path::new("metadata").child("name");
        errors.push(Error::invalid(path, &name.into(), reserved_name()));
    }
}

/// Warns of a reserved name.
fn name_warnings(object: &Value) -> Vec<String> {
    let is_reserved = is_reserved(object.name());
    is_reserved.then(|| format!("metadata.name: {}", reserved_name())).into_iter().collect()
}
