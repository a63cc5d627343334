//! Kinds of `discovery.k8s.io`.
pub(super) mod endpoint_slice;
