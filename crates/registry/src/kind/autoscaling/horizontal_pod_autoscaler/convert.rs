//! HorizontalPodAutoscalers: `autoscaling/v1` has one number for CPU. Other contents of `v2` are
//! stored in annotations.
//!
//! | `v2`                                            | `v1`                                                  |
//! |-------------------------------------------------|-------------------------------------------------------|
//! | first CPU utilization metric                    | `spec.targetCPUUtilizationPercentage`                 |
//! | the other metrics                               | annotation `autoscaling.alpha.kubernetes.io/metrics`   |
//! | `spec.behavior`                                 | annotation `autoscaling.alpha.kubernetes.io/behavior`  |
//! | current CPU utilization                         | `status.currentCPUUtilizationPercentage`              |
//! | all current metrics                             | annotation `.../current-metrics`                      |
//! | `status.conditions`                             | annotation `.../conditions`                           |
use super::CPU_PERCENT;
use super::annotations::{self, add_zeros};
use serde_json::{Map, Value, json};
use setpoint_object::meta::ObjectExt as _;

/// The annotation of metrics that `v1` has no field for.
pub(super) const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
/// All annotations that are fields of `v2`.
pub(super) const ANNOTATIONS: [&str; 4] = [BEHAVIOR, CONDITIONS, CURRENT_METRICS, METRICS];

/// The metric types and the member that describes the source of each.
const SOURCES: [(&str, &str); 5] = [
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
    ("Pods", "pods"),
    ("Object", "object"),
    ("External", "external"),
];

/// The values of a metric, and the suffixes of their names in annotations.
const VALUES: [(&str, &str); 3] = [
    ("value", "Value"),
    ("averageValue", "AverageValue"),
    ("averageUtilization", "AverageUtilization"),
];

/// See [`Convert`](crate::kind::Convert).
pub(super) fn convert(autoscaler: &mut Value, from: &str, to: &str) -> bool {
    match (from, to) {
        ("autoscaling/v2", "autoscaling/v1") => to_v1(autoscaler),
        ("autoscaling/v1", "autoscaling/v2") => to_v2(autoscaler),
        _ => return false,
    }
    true
}
/// Removes annotations with the names of those that are fields of `v2`.
pub(super) fn drop_annotations(metadata: &mut Map<String, Value>) {
    let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) else {
        return;
    };
    let n = annotations.len();
    annotations.retain(|name, _| !ANNOTATIONS.contains(&name.as_str()));
    if annotations.is_empty() && n > 0 {
        metadata.remove("annotations");
    }
}
fn to_v1(autoscaler: &mut Value) {
    // What else has these names is lost.
    if let Some(metadata) = autoscaler.get_mut("metadata").and_then(Value::as_object_mut) {
        drop_annotations(metadata);
    }
    let mut annotations = Vec::new();
    if let Some(spec) = autoscaler.get_mut("spec").and_then(Value::as_object_mut) {
        let (cpu, rest): (Vec<_>, Vec<_>) = take_list(spec, "metrics")
            .into_iter()
            .partition(|metric| utilization(metric, "target").is_some());
        if let Some(cpu) = cpu.first().and_then(|metric| utilization(metric, "target")) {
            spec.insert("targetCPUUtilizationPercentage".to_owned(), cpu.clone());
        }
        let rest: Value = rest.iter().map(|metric| flatten(metric, "target", "target")).collect();
        annotations.push((METRICS, (rest != json!([])).then(|| annotations::text(&rest))));
        let behavior = spec.remove("behavior");
        annotations.push((BEHAVIOR, behavior.as_ref().map(annotations::behavior_text)));
    }
    if let Some(status) = autoscaler.get_mut("status").and_then(Value::as_object_mut) {
        let metrics = take_list(status, "currentMetrics");
        let cpu = metrics.iter().rev().find_map(|metric| utilization(metric, "current"));
        if let Some(cpu) = cpu {
            status.insert("currentCPUUtilizationPercentage".to_owned(), cpu.clone());
        }
        // Also those of CPU, whose values are more than a percentage.
        let all: Value =
            metrics.iter().map(|metric| flatten(metric, "current", "current")).collect();
        annotations.push((CURRENT_METRICS, (all != json!([])).then(|| annotations::text(&all))));
        // `v1` always has this number.
        status.entry("currentReplicas").or_insert_with(|| 0.into());
        let conditions = Value::from(take_list(status, "conditions"));
        let has_conditions = conditions != json!([]);
        annotations.push((CONDITIONS, has_conditions.then(|| annotations::text(&conditions))));
    }
    for (name, text) in annotations {
        if let Some(text) = text {
            annotations_mut(autoscaler).insert(name.to_owned(), text.into());
        }
    }
}

pub(super) fn to_v2(autoscaler: &mut Value) {
    let metrics = take_annotation(autoscaler, METRICS);
    let behavior = take_annotation(autoscaler, BEHAVIOR);
    let current = take_annotation(autoscaler, CURRENT_METRICS);
    let conditions = take_annotation(autoscaler, CONDITIONS);
    if let Some(spec) = autoscaler.get_mut("spec").and_then(Value::as_object_mut) {
        let nested = elements(&metrics).map(|metric| nest(metric, "target", "target"));
        let mut list: Vec<_> = nested.collect();
        if let Some(cpu) = spec.remove("targetCPUUtilizationPercentage") {
            list.push(cpu_metric(
                "target",
                json!({"averageUtilization": cpu, "type": "Utilization"}),
            ));
        }
        // Without a metric in the number or in an annotation that can be read.
        if list.is_empty() {
            let target = json!({"averageUtilization": CPU_PERCENT, "type": "Utilization"});
            list.push(cpu_metric("target", target));
        }
        insert_list(spec, "metrics", list);
        if let Some(behavior) = behavior.and_then(annotations::behavior) {
            spec.insert("behavior".to_owned(), behavior);
        }
    }
    if let Some(status) = autoscaler.get_mut("status").and_then(Value::as_object_mut) {
        let nested = elements(&current).map(|metric| nest(metric, "current", "current"));
        let mut list: Vec<_> = nested.collect();
        let cpu = status.remove("currentCPUUtilizationPercentage");
        // The annotation has more.
        if let (None, Some(cpu)) = (&current, cpu) {
            list.push(cpu_metric("current", json!({"averageUtilization": cpu})));
        }
        // `v2` always has this list, and not always this number.
        status.insert("currentMetrics".to_owned(), Value::Null);
        insert_list(status, "currentMetrics", list);
        if status.get("currentReplicas") == Some(&0.into()) {
            status.remove("currentReplicas");
        }
        insert_list(status, "conditions", elements(&conditions).cloned().collect());
    }
}

fn cpu_metric(side: &str, value: Value) -> Value {
    json!({"type": "Resource", "resource": {"name": "cpu", side: value}})
}
/// The utilization of a CPU metric.
fn utilization<'m>(metric: &'m Value, side: &str) -> Option<&'m Value> {
    let resource = metric.get("resource").filter(|r| r.get("name") == Some(&"cpu".into()))?;
    let is_plain = metric.get("type") == Some(&"Resource".into());
    resource.get(side)?.get("averageUtilization").filter(|v| is_plain && !v.is_null())
}
/// The name of a value in annotations. The average of an Object metric has no prefix.
fn flat_name(kind: &str, name: &str, prefix: &str, flat: &str) -> String {
    if kind == "Object" && name == "averageValue" {
        name.to_owned()
    } else {
        format!("{prefix}{flat}")
    }
}
/// A metric in the form of `v1`'s annotations: names and values side by side.
fn flatten(metric: &Value, side: &str, prefix: &str) -> Value {
    map_source(metric, |kind, source| {
        if let Some(Value::Object(values)) = source.remove(side) {
            for (name, value) in values {
                if let Some((_, flat)) = VALUES.iter().find(|(nested, _)| *nested == name) {
                    source.insert(flat_name(kind, &name, prefix, flat), value);
                }
            }
        }
        if let Some(Value::Object(mut named)) = source.remove("metric") {
            let selector = if kind == "External" { "metricSelector" } else { "selector" };
            source.extend(named.remove("name").map(|name| ("metricName".to_owned(), name)));
            source.extend(named.remove("selector").map(|s| (selector.to_owned(), s)));
        }
        rename(source, "describedObject", "target");
        add_zeros(kind, side, source);
    })
}
/// The reverse of [`flatten`].
fn nest(metric: &Value, side: &str, prefix: &str) -> Value {
    map_source(metric, |kind, source| {
        rename(source, "target", "describedObject");
        let mut named = Map::new();
        named.extend(source.remove("metricName").map(|name| ("name".to_owned(), name)));
        let selector = if kind == "External" { "metricSelector" } else { "selector" };
        named.extend(source.remove(selector).map(|s| ("selector".to_owned(), s)));
        if !named.is_empty() {
            source.insert("metric".to_owned(), named.into());
        }
        let mut values = Map::new();
        // `v1` cannot leave it out.
        let is_average = kind == "Object" && source.contains_key("averageValue");
        if side == "target" && is_average && source.get("targetValue") == Some(&"0".into()) {
            source.remove("targetValue");
        }
        for (name, flat) in VALUES {
            let flat = flat_name(kind, name, prefix, flat);
            values.extend(source.remove(&flat).map(|value| (name.to_owned(), value)));
        }
        if side == "target" {
            let kinds = [
                ("averageUtilization", "Utilization"),
                ("averageValue", "AverageValue"),
                ("value", "Value"),
            ];
            let found = kinds.iter().find(|(name, _)| values.contains_key(*name));
            values.extend(found.map(|(_, kind)| ("type".to_owned(), Value::from(*kind))));
        }
        source.insert(side.to_owned(), values.into());
    })
}
fn map_source(metric: &Value, change: impl Fn(&str, &mut Map<String, Value>)) -> Value {
    let mut metric = metric.clone();
    let kind = metric.get("type").and_then(Value::as_str).unwrap_or("").to_owned();
    let member = SOURCES.iter().find(|(name, _)| *name == kind).map_or("", |(_, member)| member);
    if let Some(source) = metric.get_mut(member).and_then(Value::as_object_mut) {
        change(&kind, source);
    }
    metric
}
fn rename(members: &mut Map<String, Value>, from: &str, to: &str) {
    if let Some(value) = members.remove(from) {
        members.insert(to.to_owned(), value);
    }
}
fn take_list(members: &mut Map<String, Value>, name: &str) -> Vec<Value> {
    match members.remove(name) {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    }
}
fn insert_list(members: &mut Map<String, Value>, name: &str, list: Vec<Value>) {
    if !list.is_empty() {
        members.insert(name.to_owned(), list.into());
    }
}
fn elements(list: &Option<Value>) -> impl Iterator<Item = &Value> {
    list.as_ref().and_then(Value::as_array).into_iter().flatten()
}
fn annotations_mut(autoscaler: &mut Value) -> &mut Map<String, Value> {
    let annotations = autoscaler.meta_mut().entry("annotations").or_insert_with(|| json!({}));
    if !annotations.is_object() {
        *annotations = json!({});
    }
    match annotations {
        Value::Object(members) => members,
        _ => unreachable!("it was made an object above"),
    }
}
/// Removes an annotation and returns its JSON; `None` if it has none.
fn take_annotation(autoscaler: &mut Value, name: &str) -> Option<Value> {
    autoscaler.meta()?.get("annotations")?;
    let annotations = annotations_mut(autoscaler);
    let value = serde_json::from_str(annotations.remove(name)?.as_str()?).ok();
    if annotations.is_empty() {
        autoscaler.set_meta("annotations", Value::Null);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_v1_lacks_survive_a_round_trip() {
        let v2 = json!({
            "metadata": {"name": "a"},
            "spec": {"maxReplicas": 3, "behavior": {"scaleUp": {"stabilizationWindowSeconds": 0}}, "metrics": [
                {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}},
                {"type": "Pods", "pods": {"metric": {"name": "p"}, "target": {"type": "AverageValue", "averageValue": "1"}}},
                {"type": "Object", "object": {"describedObject": {"kind": "Ingress", "name": "i"},
                    "metric": {"name": "r"}, "target": {"type": "Value", "value": "2k"}}},
                {"type": "External", "external": {"metric": {"name": "q", "selector": {"matchLabels": {"a": "b"}}},
                    "target": {"type": "AverageValue", "averageValue": "30"}}},
                // This one comes last when it comes back.
                {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}},
            ]},
            "status": {"currentReplicas": 1, "desiredReplicas": 2,
                "conditions": [{"type": "AbleToScale", "status": "True"}], "currentMetrics": [
                {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 5, "averageValue": "7m"}}},
            ]},
        });
        let mut tree = v2.clone();
        to_v1(&mut tree);
        assert_eq!(tree["spec"], json!({"maxReplicas": 3, "targetCPUUtilizationPercentage": 80}));
        assert_eq!(tree["status"]["currentCPUUtilizationPercentage"], 5);
        let metrics: Value =
            serde_json::from_str(tree["metadata"]["annotations"][METRICS].as_str().unwrap())
                .unwrap();
        assert_eq!(metrics[0]["resource"], json!({"name": "memory", "targetAverageValue": "1Gi"}));
        to_v2(&mut tree);
        assert_eq!(tree, v2);
    }
}
