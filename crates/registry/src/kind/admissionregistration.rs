//! Kinds of `admissionregistration.k8s.io`.
pub(super) mod admission_policy;
pub(crate) mod match_condition;
pub(super) mod webhook_configuration;
