//! Kinds of `admissionregistration.k8s.io`.
pub(super) mod admission_policy;
pub(crate) mod expression;
mod policy_binding;
mod policy_spec;
mod rules;
pub(super) mod webhook_configuration;
