//! Kinds of `scheduling.k8s.io`.
pub(super) mod pod_group;
mod policy;
pub(super) mod priority_class;
pub(super) mod workload;
