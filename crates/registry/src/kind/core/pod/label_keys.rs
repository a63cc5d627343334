//! Keys of labels that become part of a selector when a pod is created, with the pod's own values.

use serde_json::{Value, json};

/// Adds to the selectors of affinity terms and spread constraints what their `matchLabelKeys` and
/// `mismatchLabelKeys` ask for. Keys that the pod has no label for are ignored, and so is an item
/// without a selector, which matches nothing. `merges_spread`: spread constraints, too.
pub(super) fn merge(pod: &mut Value, merges_spread: bool) {
    let Some(labels) = pod.pointer_mut("/metadata/labels").map(Value::take) else { return };
    if let Some(spec) = pod.get_mut("spec") {
        for member in ["podAffinity", "podAntiAffinity"] {
            let affinity = spec.get_mut("affinity").and_then(|affinity| affinity.get_mut(member));
            let Some(affinity) = affinity else { continue };
            for term in items(affinity, "requiredDuringSchedulingIgnoredDuringExecution") {
                merge_into(term, &labels);
            }
            for weighted in items(affinity, "preferredDuringSchedulingIgnoredDuringExecution") {
                if let Some(term) = weighted.get_mut("podAffinityTerm") {
                    merge_into(term, &labels);
                }
            }
        }
        for constraint in items(spec, "topologySpreadConstraints").filter(|_| merges_spread) {
            merge_into(constraint, &labels);
        }
    }
    pod["metadata"]["labels"] = labels;
}

fn items<'a>(value: &'a mut Value, member: &str) -> impl Iterator<Item = &'a mut Value> {
    value.get_mut(member).and_then(Value::as_array_mut).into_iter().flatten()
}

fn merge_into(item: &mut Value, labels: &Value) {
    let mut added = Vec::new();
    for (member, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        let keys = item.get(member).and_then(Value::as_array).into_iter().flatten();
        for key in keys.filter_map(Value::as_str) {
            if let Some(value) = labels.get(key) {
                added.push(json!({"key": key, "operator": operator, "values": [value]}));
            }
        }
    }
    let selector = item.get_mut("labelSelector").and_then(Value::as_object_mut);
    let Some(selector) = selector.filter(|_| !added.is_empty()) else { return };
    match selector.entry("matchExpressions").or_insert_with(|| json!([])) {
        Value::Array(expressions) => expressions.append(&mut added),
        expressions => *expressions = added.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::merge;
    use serde_json::{Value, json};

    fn term(keys: Value) -> Value {
        let mut term = json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}});
        for (member, keys) in keys.as_object().unwrap() {
            term[member] = keys.clone();
        }
        term
    }

    #[test]
    fn keys_become_expressions_with_the_values_of_the_pod() {
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
        let mut pod = json!({
            "metadata": {"labels": {"hash": "1", "tenant": "x"}},
            "spec": {
                "affinity": {
                    "podAffinity": {required: [term(json!({"matchLabelKeys": ["hash", "none"]}))]},
                    "podAntiAffinity": {preferred: [{"weight": 1, "podAffinityTerm":
                        term(json!({"matchLabelKeys": ["hash"], "mismatchLabelKeys": ["tenant"]}))}]},
                },
                "topologySpreadConstraints": [
                    term(json!({"matchLabelKeys": ["hash"]})),
                    {"matchLabelKeys": ["hash"]},
                ],
            },
        });
        let whole = pod.clone();
        merge(&mut pod, true);
        assert_eq!(pod["metadata"], whole["metadata"]);
        let hash = json!({"key": "hash", "operator": "In", "values": ["1"]});
        let tenant = json!({"key": "tenant", "operator": "NotIn", "values": ["x"]});
        let affinity = &pod["spec"]["affinity"];
        let of = |item: &Value| item["labelSelector"]["matchExpressions"].clone();
        assert_eq!(of(&affinity["podAffinity"][required][0]), json!([hash]));
        let anti = &affinity["podAntiAffinity"][preferred][0]["podAffinityTerm"];
        assert_eq!(of(anti), json!([hash, tenant]));
        let spread = &pod["spec"]["topologySpreadConstraints"];
        assert_eq!(of(&spread[0]), json!([hash]));
        assert_eq!(spread[1], json!({"matchLabelKeys": ["hash"]}));
    }

    #[test]
    fn pod_without_keys_stays_as_it_is() {
        let mut pod = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"affinity": {}}});
        let before = pod.clone();
        merge(&mut pod, true);
        assert_eq!(pod, before);
        let mut pod = json!({"metadata": {"name": "n"}, "spec": {}});
        merge(&mut pod, true);
        assert_eq!(pod["spec"], json!({}));
    }
}
