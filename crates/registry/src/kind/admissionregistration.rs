//! Kinds of `admissionregistration.k8s.io`.
pub(super) mod admission_policy;
pub(crate) mod expression;
mod policy_binding;
mod policy_spec;
mod rules;
pub(super) mod webhook_configuration;

use serde_json::Value;
use setpoint_object::meta::ObjectExt;

/// The kind of validating policies, and the name of the plugin that evaluates them.
pub(crate) const VALIDATING_POLICY: &str = "ValidatingAdmissionPolicy";
/// The kind of mutating policies, and the name of the plugin that evaluates them.
pub(crate) const MUTATING_POLICY: &str = "MutatingAdmissionPolicy";

/// The suffix of the names of configurations that kube-apiserver reads from files.
const STATIC: &str = ".static.k8s.io";

/// Warns of a name that is reserved.
fn name_warnings(object: &Value) -> Vec<String> {
    let is_reserved = object.name().ends_with(STATIC);
    let warning = is_reserved.then(|| {
        format!(
            "metadata.name: names ending with {STATIC:?} are reserved for static manifest-based configurations and cannot be managed via the API"
        )
    });
    warning.into_iter().collect()
}
