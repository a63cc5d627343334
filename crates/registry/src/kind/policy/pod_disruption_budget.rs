//! PodDisruptionBudgets: exactly one of two bounds.
pub(crate) mod charge;

use crate::kind::{Kind, StatusMeta, not_negative, validate_label_selector};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::field;
use setpoint_object::time::Timestamp;

/// PodDisruptionBudget.
pub(in crate::kind) static KIND: Kind = Kind {
    unconditional_update: false,
    validate,
    cells: Some(cells),
    ..Kind::with_status(
        "policy",
        "PodDisruptionBudget",
        StatusMeta::All,
        r#"{"currentHealthy":0,"desiredHealthy":0,"disruptionsAllowed":0,"expectedPods":0}"#,
    )
};

/// Validates a budget: one of two bounds.
fn validate(budget: &Value, _old: Option<&Value>, errors: &mut field::Errors) {
    let path = field::Path::new("spec");
    let spec = &budget["spec"];
    if spec.get("minAvailable").is_some() && spec.get("maxUnavailable").is_some() {
        errors.push(field::Error::invalid(
            path.clone(),
            spec,
            "minAvailable and maxUnavailable cannot be both set",
        ));
    }
    for member in ["minAvailable", "maxUnavailable"] {
        not_negative(spec, member, &path, errors);
    }
    if let Some(selector) = spec.get("selector") {
        validate_label_selector(selector, &path.child("selector"), errors);
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let limit = |path: &str| match cell::scalar(object, path) {
        text if text.is_empty() => "N/A".to_owned(),
        text => text.into_owned(),
    };
    vec![
        cell::name(object),
        limit("spec.minAvailable").into(),
        limit("spec.maxUnavailable").into(),
        cell::int(object, "status.disruptionsAllowed").into(),
        cell::age(object, now),
    ]
}
