//! Kinds of `apiregistration.k8s.io`.
pub(super) mod api_service;
