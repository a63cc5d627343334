//! Kinds of `admissionregistration.k8s.io`.
pub(super) mod admission_policy;
pub(super) mod webhook_configuration;
