//! Kinds of `certificates.k8s.io`.
pub(crate) mod certificate_signing_request;
pub(super) mod cluster_trust_bundle;
mod pem;
pub(super) mod pod_certificate_request;
