//! Kinds of `flowcontrol.apiserver.k8s.io`.
pub(super) mod flow_schema;
pub(super) mod priority_level_configuration;
