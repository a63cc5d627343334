//! The metrics of an autoscaler in one cell.
use super::convert::to_v2;
use crate::table::cell;
use serde_json::Value;
use setpoint_object::time::Timestamp;

/// All metrics in every version. `autoscaling/v1` has most of them in annotations.
pub(super) fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    if cell::text(object, "apiVersion") == "autoscaling/v1" {
        return autoscaler_v1(object, now);
    }
    let targets =
        metrics(cell::list(object, "spec.metrics"), cell::list(object, "status.currentMetrics"));
    autoscaler_row(object, targets, now)
}

/// Maximum number of metrics in a cell; the rest is counted.
const METRICS_MAX: usize = 2;

const UNKNOWN: &str = "<unknown>";

/// The conversion puts the CPU utilization last. It is shown where its current value is.
fn autoscaler_v1(object: &Value, now: Timestamp) -> Vec<Value> {
    let mut stored = object.clone();
    to_v2(&mut stored);
    let current = cell::list(&stored, "status.currentMetrics");
    let mut wanted = cell::list(&stored, "spec.metrics").to_vec();
    let is_cpu = |metric: &Value| {
        cell::text(metric, "type") == "Resource" && cell::text(metric, "resource.name") == "cpu"
    };
    if let Some(place) = current.iter().position(is_cpu)
        && place < wanted.len()
        && let Some(cpu) = wanted.pop_if(|metric| is_cpu(metric))
    {
        wanted.insert(place, cpu);
    }
    autoscaler_row(object, metrics(&wanted, current), now)
}

fn autoscaler_row(object: &Value, targets: String, now: Timestamp) -> Vec<Value> {
    let reference = cell::at(object, "spec.scaleTargetRef");
    let least = match cell::has(object, "spec.minReplicas") {
        true => cell::scalar(object, "spec.minReplicas").into_owned(),
        false => cell::UNSET.to_owned(),
    };
    vec![
        cell::name(object),
        format!("{}/{}", cell::text(reference, "kind"), cell::text(reference, "name")).into(),
        targets.into(),
        least.into(),
        cell::int(object, "spec.maxReplicas").into(),
        cell::int(object, "status.currentReplicas").into(),
        cell::age(object, now),
    ]
}

/// Present and target value of each metric; both lists have the same order.
fn metrics(wanted: &[Value], current: &[Value]) -> String {
    let shown: Vec<String> = wanted
        .iter()
        .enumerate()
        .map(|(place, metric)| {
            let (member, named) = match cell::text(metric, "type") {
                "External" => ("external", false),
                "Pods" => ("pods", false),
                "Object" => ("object", false),
                "Resource" => ("resource", true),
                "ContainerResource" => ("containerResource", true),
                _ => return "<unknown type>".to_owned(),
            };
            let source = cell::at(metric, member);
            let now = current
                .get(place)
                .map_or(&Value::Null, |now| cell::at(cell::at(now, member), "current"));
            let pair = one_metric(cell::at(source, "target"), now, member);
            if named { format!("{}: {pair}", cell::text(source, "name")) } else { pair }
        })
        .collect();
    cell::some_of(&shown, METRICS_MAX, ", ", cell::NONE)
}

fn one_metric(target: &Value, now: &Value, member: &str) -> String {
    let current = |path: &str| match cell::scalar(now, path) {
        text if text.is_empty() => UNKNOWN.to_owned(),
        text => text.into_owned(),
    };
    let is_resource = matches!(member, "resource" | "containerResource");
    if cell::has(target, "averageValue") {
        let average = if matches!(member, "external" | "object") { " (avg)" } else { "" };
        return format!(
            "{}/{}{average}",
            current("averageValue"),
            cell::scalar(target, "averageValue")
        );
    }
    if !is_resource {
        return format!("{}/{}", current("value"), cell::scalar(target, "value"));
    }
    let percent = |value: &Value, or: &str| match cell::at(value, "averageUtilization").as_i64() {
        Some(percent) => format!("{percent}%"),
        None => or.to_owned(),
    };
    format!("{}/{}", percent(now, UNKNOWN), percent(target, "<auto>"))
}
