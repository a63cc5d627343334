//! Kinds of `admissionregistration.k8s.io`.
pub(super) mod admission_policy;
pub(crate) mod expression;
mod policy_binding;
mod policy_spec;
mod rules;
pub(super) mod webhook_configuration;

/// The kind of validating policies, and the name of the plugin that evaluates them.
pub(crate) const VALIDATING_POLICY: &str = "ValidatingAdmissionPolicy";
/// The kind of mutating policies, and the name of the plugin that evaluates them.
pub(crate) const MUTATING_POLICY: &str = "MutatingAdmissionPolicy";
