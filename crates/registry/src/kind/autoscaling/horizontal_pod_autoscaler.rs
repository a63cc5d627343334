//! Horizontal pod autoscalers, v1 and v2.
mod annotations;
mod cells;
mod convert;
mod rules;

use crate::features::Feature;
use crate::kind::{Fill, Kind, Members, StatusMeta};
use serde_json::{Value, json};

/// HorizontalPodAutoscaler.
pub(in crate::kind) static KIND: Kind = Kind {
    storage: Some(("autoscaling", "v2")),
    convert: Some(convert::convert),
    default,
    disabled: &[(
        Some(Feature::HPAConfigurableTolerance),
        &["spec.behavior.scaleDown.tolerance", "spec.behavior.scaleUp.tolerance"],
    )],
    validate: rules::validate,
    validate_status: rules::validate_status,
    cells: Some(cells::cells),
    hidden_annotations: &convert::ANNOTATIONS,
    rules: "bounds, target, metrics, behavior; `status`",
    ..Kind::with_status(
        "autoscaling",
        "HorizontalPodAutoscaler",
        StatusMeta::All,
        r#"{"currentMetrics":null,"desiredReplicas":0}"#,
    )
};

/// The target CPU utilization if no metric is given, in percent.
const CPU_PERCENT: i32 = 80;

/// HorizontalPodAutoscaler.
fn default(object: &mut Members, version: &str) {
    // v1 stores the other metrics of a newer version in an annotation.
    let has_metrics = object
        .get("metadata")
        .and_then(|metadata| metadata.get("annotations"))
        .is_some_and(|annotations| annotations.get(convert::METRICS).is_some());
    let Some(spec) = object.object("spec") else { return };
    spec.absent("minReplicas", 1);
    if version == "v1" {
        if !has_metrics {
            spec.absent("targetCPUUtilizationPercentage", CPU_PERCENT);
        }
        return;
    }
    spec.absent(
        "metrics",
        json!([{"type": "Resource", "resource": {"name": "cpu",
            "target": {"type": "Utilization", "averageUtilization": CPU_PERCENT}}}]),
    );
    if let Some(behavior) = spec.object("behavior") {
        complete(behavior);
    }
    // What has the names of `v1`'s annotations is lost, as there.
    if let Some(metadata) = object.object("metadata") {
        convert::drop_annotations(metadata);
    }
}

fn complete(behavior: &mut Members) {
    let pace = |kind: &str, value: i32| json!({"type": kind, "value": value, "periodSeconds": 15});
    rules(behavior, "scaleUp", Some(0), json!([pace("Pods", 4), pace("Percent", 100)]));
    rules(behavior, "scaleDown", None, json!([pace("Percent", 100)]));
}

fn rules(behavior: &mut Members, name: &str, window_seconds: Option<i32>, policies: Value) {
    let Some(rules) = behavior.object_or_new(name) else { return };
    rules.absent("selectPolicy", "Max");
    if let Some(seconds) = window_seconds {
        rules.absent("stabilizationWindowSeconds", seconds);
    }
    rules.absent("policies", policies);
}
