//! PodDisruptionBudgets: exactly one of two bounds.
pub(crate) mod charge;

use crate::kind::at::check;
use crate::kind::condition::conditions;
use crate::kind::format::{at_most_all, count_or_percent};
use crate::kind::{FormerVersion, Kind, MetadataChecks, NameRule, Report, StatusMeta, StatusRule};
use crate::table::cell;
use serde_json::{Value, json};
use setpoint_object::time::Timestamp;

/// PodDisruptionBudget.
pub(in crate::kind) static KIND: Kind = Kind {
    changed_metadata: MetadataChecks::NONE,
    metadata_last: true,
    names: NameRule::Segment,
    unconditional_update: false,
    qualified_finalizers: false,
    validate,
    validate_status,
    cells: Some(cells),
    rules: "one of two bounds, selector; `status`",
    status: Some(StatusRule {
        checks: MetadataChecks::NONE,
        ..StatusRule::new(
            StatusMeta::All,
            r#"{"currentHealthy":0,"desiredHealthy":0,"disruptionsAllowed":0,"expectedPods":0}"#,
        )
    }),
    formers: &[FormerVersion { convert: from_v1beta1, ..FormerVersion::retired("v1beta1") }],
    ..Kind::plain("policy", "PodDisruptionBudget")
};

/// The label by which `v1beta1` selects all pods, and by which `v1` selects none.
const V1BETA1_LABEL: &str = "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match";

/// Converts a budget that was stored in `v1beta1`, where an empty selector selects no pods and a
/// label takes the place of the one that selects all.
fn from_v1beta1(budget: &mut Value) {
    let Some(selector) = budget.pointer_mut("/spec/selector").filter(|s| s.is_object()) else {
        return;
    };
    let is_empty = |selector: &Value| {
        ["matchLabels", "matchExpressions"].iter().all(|member| match &selector[*member] {
            Value::Object(labels) => labels.is_empty(),
            Value::Array(expressions) => expressions.is_empty(),
            _ => true,
        })
    };
    if is_empty(selector) {
        let none = json!([{"key": V1BETA1_LABEL, "operator": "Exists"}]);
        *selector = json!({"matchExpressions": none});
        return;
    }
    if let Some(expressions) = selector.get_mut("matchExpressions").and_then(Value::as_array_mut) {
        expressions.retain(|expression| expression["key"] != V1BETA1_LABEL);
    }
    if is_empty(selector) {
        *selector = json!({});
    }
}

/// Validates a budget: one of two bounds.
fn validate(budget: &Value, old: Option<&Value>, errors: &mut Report) {
    check(budget, old, errors, |at| {
        let spec = at.get("spec");
        if spec.has("minAvailable") && spec.has("maxUnavailable") {
            spec.invalid("minAvailable and maxUnavailable cannot be both set");
        }
        for member in ["minAvailable", "maxUnavailable"] {
            count_or_percent(&spec.get(member));
            at_most_all(&spec.get(member));
        }
        spec.get("selector").selector();
        spec.get("unhealthyPodEvictionPolicy").one_of_if_set(&["AlwaysAllow", "IfHealthyBudget"]);
    });
}

fn validate_status(budget: &Value, old: Option<&Value>, errors: &mut Report) {
    check(budget, old, errors, |at| {
        let status = at.get("status");
        conditions(&status.get("conditions"));
        for member in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
            status.get(member).not_negative();
        }
    });
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
