//! Kinds of `policy`.
pub(super) mod pod_disruption_budget;
