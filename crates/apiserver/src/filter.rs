//! What every request passes, in the order it meets them.

pub(crate) mod audit_id;
pub(crate) mod authenticate;
pub(crate) mod deadline;
pub(crate) mod in_flight;
pub(crate) mod large;
pub(crate) mod panics;
pub(crate) mod readiness;
