//! Disruption budgets.
use super::pod::not_negative;
use super::workload::validate_label_selector;
use serde_json::Value;
use setpoint_object::field;

/// Budgets: one of two bounds.
pub(super) fn validate_budget(
    budget: &Value,
    _old: Option<&Value>,
    errors: &mut Vec<field::Error>,
) {
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
