//! The filters of every request, in order.

pub(crate) mod audit_id;
pub(crate) mod authenticate;
pub(crate) mod cors;
pub(crate) mod deadline;
pub(crate) mod fairness;
pub(crate) mod goaway;
pub(crate) mod hsts;
pub(crate) mod impersonate;
pub(crate) mod in_flight;
pub(crate) mod large;
pub(crate) mod panics;
pub(crate) mod readiness;
pub(crate) mod storage_versions;
pub(crate) mod watches;
