//! Kinds of `coordination.k8s.io`.
pub(super) mod lease;
