//! Leases: positive durations.
use crate::kind::{Kind, not_negative};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::field;
use setpoint_object::time::Timestamp;

/// Lease.
pub(in crate::kind) static KIND: Kind = Kind {
    create_on_update: true,
    unconditional_update: false,
    validate,
    cells: Some(cells),
    ..Kind::plain("coordination.k8s.io", "Lease")
};

/// Leases: positive durations.
fn validate(lease: &Value, _old: Option<&Value>, errors: &mut field::Errors) {
    let path = field::Path::new("spec");
    let spec = &lease["spec"];
    if let Some(seconds) =
        spec.get("leaseDurationSeconds").and_then(Value::as_i64).filter(|s| *s <= 0)
    {
        errors.push(field::Error::invalid(
            path.child("leaseDurationSeconds"),
            &seconds.into(),
            "must be greater than 0",
        ));
    }
    not_negative(spec, "leaseTransitions", &path, errors);
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        cell::name(object),
        cell::text(object, "spec.holderIdentity").into(),
        cell::age(object, now),
    ]
}
