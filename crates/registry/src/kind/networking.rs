//! Kinds of `networking.k8s.io`.
pub(super) mod ingress;
pub(super) mod ingress_class;
pub(crate) mod ip_address;
pub(super) mod network_policy;
pub(crate) mod service_cidr;
