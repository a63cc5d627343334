//! Leases: positive durations.
use crate::features::Feature;
use crate::kind::at::check;
use crate::kind::{Kind, Report};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::time::Timestamp;

/// Lease.
pub(in crate::kind) static KIND: Kind = Kind {
    create_on_update: true,
    unconditional_update: false,
    qualified_finalizers: false,
    validate,
    disabled: &[
        (Some(Feature::CoordinatedLeaderElection), &["spec.preferredHolder"]),
        (Some(Feature::CoordinatedLeaderElection), &["spec.strategy"]),
    ],
    cells: Some(cells),
    rules: "durations, strategy",
    ..Kind::plain("coordination.k8s.io", "Lease")
};

/// Leases: positive durations.
fn validate(lease: &Value, old: Option<&Value>, errors: &mut Report) {
    check(lease, old, errors, |at| {
        let spec = at.get("spec");
        spec.get("leaseDurationSeconds").positive("must be greater than 0");
        spec.get("leaseTransitions").not_negative();
        let strategy = spec.get("strategy");
        if strategy.is_set() {
            super::known_strategy(&strategy);
        }
        if !spec.text_of("preferredHolder").is_empty() && strategy.text().is_empty() {
            spec.get("preferredHolder").forbidden("may only be specified if `strategy` is defined");
        }
    });
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        cell::name(object),
        cell::text(object, "spec.holderIdentity").into(),
        cell::age(object, now),
    ]
}
