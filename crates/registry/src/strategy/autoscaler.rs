//! Horizontal autoscalers.
use super::pod::text;
use serde_json::Value;
use setpoint_object::field;

/// Autoscalers: bounds and a target.
pub(super) fn validate_autoscaler(
    autoscaler: &Value,
    _old: Option<&Value>,
    errors: &mut Vec<field::Error>,
) {
    let path = field::Path::new("spec");
    let spec = &autoscaler["spec"];
    let (min, max) =
        (spec["minReplicas"].as_i64().unwrap_or(1), spec["maxReplicas"].as_i64().unwrap_or(0));
    if min < 1 {
        errors.push(field::Error::invalid(
            path.child("minReplicas"),
            &min.into(),
            "must be greater than or equal to 1",
        ));
    }
    if max < 1 {
        errors.push(field::Error::invalid(
            path.child("maxReplicas"),
            &max.into(),
            "must be greater than 0",
        ));
    }
    if max < min {
        errors.push(field::Error::invalid(
            path.child("maxReplicas"),
            &max.into(),
            "must be greater than or equal to `minReplicas`",
        ));
    }
    let target = &spec["scaleTargetRef"];
    for member in ["kind", "name"] {
        if text(target, member).is_empty() {
            errors.push(field::Error::required(path.child("scaleTargetRef").child(member), ""));
        }
    }
}
