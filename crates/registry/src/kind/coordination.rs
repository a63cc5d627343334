//! Kinds of `coordination.k8s.io`.
pub(super) mod lease;
pub(super) mod lease_candidate;
