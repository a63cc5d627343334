//! Kinds of `node.k8s.io`.
pub(super) mod runtime_class;
