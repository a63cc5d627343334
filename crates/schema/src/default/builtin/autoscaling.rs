//! Horizontal pod autoscalers, v1 and v2.
use super::fill::{Fill, Object};
use serde_json::{Value, json};

/// Where `autoscaling/v1` keeps metrics it has no field for.
const METRICS_ANNOTATION: &str = "autoscaling.alpha.kubernetes.io/metrics";
/// The processor utilization aimed at when no metric is given, in percent.
const CPU_PERCENT: i32 = 80;

/// HorizontalPodAutoscaler.
pub(super) fn autoscaler(object: &mut Object, version: &str) {
    // v1 carries other metrics of a newer version in an annotation.
    let has_metrics = object
        .get("metadata")
        .and_then(|metadata| metadata.get("annotations"))
        .is_some_and(|annotations| annotations.get(METRICS_ANNOTATION).is_some());
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
    let Some(behavior) = spec.object("behavior") else { return };
    let pace = |kind: &str, value: i32| json!({"type": kind, "value": value, "periodSeconds": 15});
    rules(behavior, "scaleUp", Some(0), json!([pace("Pods", 4), pace("Percent", 100)]));
    rules(behavior, "scaleDown", None, json!([pace("Percent", 100)]));
}

fn rules(behavior: &mut Object, name: &str, window_seconds: Option<i32>, policies: Value) {
    let Some(rules) = behavior.object_or_new(name) else { return };
    rules.absent("selectPolicy", "Max");
    if let Some(seconds) = window_seconds {
        rules.absent("stabilizationWindowSeconds", seconds);
    }
    rules.absent("policies", policies);
}
