//! Kinds that say how many Pods there shall be.

use super::cell::{self, NONE, UNSET, at, has, int, list, scalar, some_of, text};
use serde_json::{Value, json};
use setpoint_object::time::Timestamp;

/// How many metrics a cell names before it counts the rest.
const METRICS_MAX: usize = 2;
const UNKNOWN: &str = "<unknown>";

pub(super) fn autoscaler(object: &Value, now: Timestamp) -> Vec<Value> {
    let targets = metrics(list(object, "spec.metrics"), list(object, "status.currentMetrics"));
    autoscaler_row(object, targets, now)
}

/// autoscaling/v1 knows one metric, the CPU's utilization.
pub(super) fn autoscaler_v1(object: &Value, now: Timestamp) -> Vec<Value> {
    let metric = |member: &str, path: &str| match at(object, path) {
        Value::Null => Vec::new(),
        percent => vec![json!({
            "type": "Resource",
            "resource": {"name": "cpu", (member): {"averageUtilization": percent}},
        })],
    };
    let wanted = metric("target", "spec.targetCPUUtilizationPercentage");
    let current = metric("current", "status.currentCPUUtilizationPercentage");
    autoscaler_row(object, metrics(&wanted, &current), now)
}

fn autoscaler_row(object: &Value, targets: String, now: Timestamp) -> Vec<Value> {
    let reference = at(object, "spec.scaleTargetRef");
    let least = match has(object, "spec.minReplicas") {
        true => scalar(object, "spec.minReplicas").into_owned(),
        false => UNSET.to_owned(),
    };
    vec![
        cell::name(object),
        format!("{}/{}", text(reference, "kind"), text(reference, "name")).into(),
        targets.into(),
        least.into(),
        int(object, "spec.maxReplicas").into(),
        int(object, "status.currentReplicas").into(),
        cell::age(object, now),
    ]
}

/// Current and wanted value of each metric; they correspond by place.
fn metrics(wanted: &[Value], current: &[Value]) -> String {
    let shown: Vec<String> = wanted
        .iter()
        .enumerate()
        .map(|(place, metric)| {
            let (member, named) = match text(metric, "type") {
                "External" => ("external", false),
                "Pods" => ("pods", false),
                "Object" => ("object", false),
                "Resource" => ("resource", true),
                "ContainerResource" => ("containerResource", true),
                _ => return "<unknown type>".to_owned(),
            };
            let source = at(metric, member);
            let now = current.get(place).map_or(&Value::Null, |now| at(at(now, member), "current"));
            let pair = one_metric(at(source, "target"), now, member);
            if named { format!("{}: {pair}", text(source, "name")) } else { pair }
        })
        .collect();
    some_of(&shown, METRICS_MAX, ", ", NONE)
}

fn one_metric(target: &Value, now: &Value, member: &str) -> String {
    let current = |path: &str| match scalar(now, path) {
        text if text.is_empty() => UNKNOWN.to_owned(),
        text => text.into_owned(),
    };
    let is_resource = matches!(member, "resource" | "containerResource");
    if has(target, "averageValue") {
        let average = if matches!(member, "external" | "object") { " (avg)" } else { "" };
        return format!("{}/{}{average}", current("averageValue"), scalar(target, "averageValue"));
    }
    if !is_resource {
        return format!("{}/{}", current("value"), scalar(target, "value"));
    }
    let percent = |value: &Value, or: &str| match at(value, "averageUtilization").as_i64() {
        Some(percent) => format!("{percent}%"),
        None => or.to_owned(),
    };
    format!("{}/{}", percent(now, UNKNOWN), percent(target, "<auto>"))
}

pub(super) fn disruption_budget(object: &Value, now: Timestamp) -> Vec<Value> {
    let limit = |path: &str| match scalar(object, path) {
        text if text.is_empty() => "N/A".to_owned(),
        text => text.into_owned(),
    };
    vec![
        cell::name(object),
        limit("spec.minAvailable").into(),
        limit("spec.maxUnavailable").into(),
        int(object, "status.disruptionsAllowed").into(),
        cell::age(object, now),
    ]
}
