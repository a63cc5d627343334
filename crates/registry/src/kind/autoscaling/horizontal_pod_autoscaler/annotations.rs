//! The texts of `autoscaling/v1`'s annotations, as Go encodes them: members in the order of their
//! structs, and numbers that are always written.
//!
//! The behavior is encoded in Go's internal form: names begin with a capital letter, and what is
//! missing is null.
use serde_json::{Map, Value, json};
use setpoint_object::encode;

/// The members of all structs. No two structs have them in different orders.
const ORDER: [&str; 30] = [
    "type",
    "status",
    "lastTransitionTime",
    "reason",
    "message",
    "object",
    "pods",
    "resource",
    "containerResource",
    "external",
    "kind",
    "name",
    "apiVersion",
    "target",
    "metricName",
    "metricSelector",
    "targetValue",
    "currentValue",
    "targetAverageUtilization",
    "currentAverageUtilization",
    "targetAverageValue",
    "currentAverageValue",
    "selector",
    "averageValue",
    "container",
    "matchLabels",
    "matchExpressions",
    "key",
    "operator",
    "values",
];
/// The same of the internal form of a behavior.
const BEHAVIOR_ORDER: [&str; 9] = [
    "ScaleUp",
    "ScaleDown",
    "StabilizationWindowSeconds",
    "SelectPolicy",
    "Policies",
    "Tolerance",
    "Type",
    "Value",
    "PeriodSeconds",
];

/// The text of metrics or conditions.
pub(super) fn text(value: &Value) -> String {
    in_order(value, &ORDER)
}

/// The text of a behavior.
pub(super) fn behavior_text(behavior: &Value) -> String {
    let rules = |name: &str| match behavior.get(name).filter(|rules| rules.is_object()) {
        None => Value::Null,
        Some(rules) => {
            let policies = rules["policies"].as_array().map(|policies| -> Value {
                let policy = |policy: &Value| {
                    json!({
                        "Type": policy["type"], "Value": policy["value"],
                        "PeriodSeconds": policy["periodSeconds"],
                    })
                };
                policies.iter().map(policy).collect()
            });
            json!({
                "StabilizationWindowSeconds": rules["stabilizationWindowSeconds"],
                "SelectPolicy": rules["selectPolicy"], "Policies": policies,
                "Tolerance": rules["tolerance"],
            })
        }
    };
    let internal = json!({"ScaleUp": rules("scaleUp"), "ScaleDown": rules("scaleDown")});
    in_order(&internal, &BEHAVIOR_ORDER)
}

/// The behavior of an annotation, whose names may begin with either letter. `None`: it is empty.
pub(super) fn behavior(annotation: Value) -> Option<Value> {
    let served = uncapitalized(annotation);
    served.as_object().is_some_and(|members| !members.is_empty()).then_some(served)
}

fn uncapitalized(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let members = members.into_iter().filter(|(_, value)| !value.is_null());
            let members = members.map(|(name, value)| {
                let mut letters = name.chars();
                let first = letters.next().map(|first| first.to_ascii_lowercase());
                (first.into_iter().chain(letters).collect(), uncapitalized(value))
            });
            Value::Object(members.collect())
        }
        Value::Array(items) => items.into_iter().map(uncapitalized).collect(),
        value => value,
    }
}

/// Adds the quantities that `v1` always has to the source of a metric, in the form of annotations.
pub(super) fn add_zeros(kind: &str, side: &str, source: &mut Map<String, Value>) {
    let name = match (kind, side) {
        ("Object", _) | ("External", "current") => format!("{side}Value"),
        ("Pods", _) | ("Resource" | "ContainerResource", "current") => {
            format!("{side}AverageValue")
        }
        _ => return,
    };
    source.entry(name).or_insert_with(|| "0".into());
}

fn in_order(value: &Value, order: &[&str]) -> String {
    let mut out = Vec::new();
    push(&mut out, value, order);
    String::from_utf8_lossy(&out).into_owned()
}

fn push(out: &mut Vec<u8>, value: &Value, order: &[&str]) {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            let rank = |name: &str| order.iter().position(|one| *one == name);
            members.sort_by_key(|(name, _)| (rank(name).unwrap_or(usize::MAX), name.as_str()));
            out.push(b'{');
            for (at, (name, value)) in members.into_iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                encode::push_text(out, name);
                out.push(b':');
                match &**name {
                    // A map.
                    "matchLabels" => encode::push(out, value),
                    _ => push(out, value, order),
                }
            }
            out.push(b'}');
        }
        Value::Array(items) => {
            out.push(b'[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                push(out, item, order);
            }
            out.push(b']');
        }
        value => encode::push(out, value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_behavior_has_gos_internal_form() {
        let served = json!({
            "scaleUp": {"stabilizationWindowSeconds": 0, "selectPolicy": "Max",
                "policies": [{"type": "Pods", "value": 4, "periodSeconds": 60}]},
        });
        let text = behavior_text(&served);
        assert_eq!(
            text,
            concat!(
                r#"{"ScaleUp":{"StabilizationWindowSeconds":0,"SelectPolicy":"Max","#,
                r#""Policies":[{"Type":"Pods","Value":4,"PeriodSeconds":60}],"Tolerance":null},"#,
                r#""ScaleDown":null}"#
            )
        );
        assert_eq!(behavior(serde_json::from_str(&text).unwrap()), Some(served.clone()));
        assert_eq!(behavior(served.clone()), Some(served), "as others have written it");
        assert_eq!(behavior(json!({"ScaleUp": null})), None);
    }

    #[test]
    fn members_have_the_order_of_their_structs() {
        let metric = concat!(
            r#"[{"type":"Object","object":{"target":{"kind":"Ingress","name":"i","apiVersion":"v1"},"#,
            r#""metricName":"r","targetValue":"2k","selector":{"matchLabels":{"name":"1","kind":"2"}}}}]"#
        );
        let sorted = metric.replace(r#""name":"1","kind":"2""#, r#""kind":"2","name":"1""#);
        assert_eq!(text(&serde_json::from_str(metric).unwrap()), sorted);
    }
}
