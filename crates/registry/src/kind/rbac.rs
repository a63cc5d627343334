//! Kinds of `rbac.authorization.k8s.io`.
pub(super) mod role;
pub(super) mod role_binding;
