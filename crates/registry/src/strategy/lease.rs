//! Leases.
use super::pod::not_negative;
use serde_json::Value;
use setpoint_object::field;

/// Leases: positive durations.
pub(super) fn validate_lease(lease: &Value, _old: Option<&Value>, errors: &mut Vec<field::Error>) {
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
