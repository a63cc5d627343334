//! Which nodes a DaemonSet's pods belong on.

use crate::workload::pod::Pod;
use crate::workload::view::view;
use k8s_openapi::api::core::v1 as core;
use serde::Deserialize;
use serde_json::{Value, json};
use setpoint_object::taint::{Taint, Toleration};

/// The tolerations of every daemon pod: key and effect.
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];
/// The toleration of daemon pods in the host's network.
const NO_NETWORK: (&str, &str) = ("node.kubernetes.io/network-unavailable", "NoSchedule");
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

view! {
    /// A node.
    Node of core::Node {
        /// The spec.
        spec: NodeSpec,
    }
}

/// `spec` of a node.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NodeSpec {
    /// The taints.
    pub(crate) taints: Vec<Taint>,
}

impl Node {
    /// Whether two states of a node may have different pods.
    pub(super) fn differs(&self, other: &Self) -> bool {
        self.metadata.labels != other.metadata.labels || self.spec != other.spec
    }
}

/// What a node is to a DaemonSet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    /// It gets a pod.
    Run,
    /// It gets none, but a pod that it has stays: it has a taint that only keeps new pods away.
    Continue,
    /// It has no pod.
    Away,
}

/// What `node` is to pods of a template, which has the default tolerations.
pub(super) fn fit(node: &Node, spec: &Value) -> Fit {
    let named = spec["nodeName"].as_str().unwrap_or_default();
    let is_chosen = (named.is_empty() || named == node.name()) && is_selected(node, spec);
    if !is_chosen {
        return Fit::Away;
    }
    let tolerations: Vec<Toleration> = spec["tolerations"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|toleration| Toleration::deserialize(toleration).ok())
        .collect();
    let untolerated = |effect: &str| {
        let mut taints = node.spec.taints.iter().filter(|taint| taint.effect == effect);
        taints.any(|taint| !tolerations.iter().any(|toleration| toleration.tolerates(taint)))
    };
    match (untolerated("NoExecute"), untolerated("NoSchedule")) {
        (true, _) => Fit::Away,
        (_, true) => Fit::Continue,
        _ => Fit::Run,
    }
}

/// Whether the node selector and the required node affinity match.
fn is_selected(node: &Node, spec: &Value) -> bool {
    let label = |key: &str| node.metadata.labels.as_ref()?.get(key).map(String::as_str);
    let mut selector = spec["nodeSelector"].as_object().into_iter().flatten();
    if !selector.all(|(key, value)| label(key) == value.as_str()) {
        return false;
    }
    let affinity = &spec["affinity"]["nodeAffinity"][REQUIRED];
    let Some(terms) = affinity["nodeSelectorTerms"].as_array() else { return affinity.is_null() };
    // A term without requirements matches nothing; of several terms, one is enough.
    terms.iter().any(|term| {
        let expressions = term["matchExpressions"].as_array().map_or(&[][..], Vec::as_slice);
        let fields = term["matchFields"].as_array().map_or(&[][..], Vec::as_slice);
        let of = |requirement: &&Value| requirement["key"].as_str().and_then(label);
        let is_named = |requirement: &Value| {
            requirement["key"] == "metadata.name" && holds(requirement, Some(node.name()))
        };
        !(expressions.is_empty() && fields.is_empty())
            && expressions.iter().all(|requirement| holds(requirement, of(&requirement)))
            && fields.iter().all(is_named)
    })
}

/// Whether a requirement of a node selector holds for a value.
fn holds(requirement: &Value, value: Option<&str>) -> bool {
    let values = requirement["values"].as_array().map_or(&[][..], Vec::as_slice);
    let is_listed = || value.is_some_and(|value| values.iter().any(|listed| listed == value));
    let numbers = || {
        let listed = values.first()?.as_str()?.parse::<i64>().ok()?;
        Some((value?.parse::<i64>().ok()?, listed))
    };
    match requirement["operator"].as_str().unwrap_or_default() {
        "In" => is_listed(),
        "NotIn" => !is_listed(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => numbers().is_some_and(|(value, listed)| value > listed),
        "Lt" => numbers().is_some_and(|(value, listed)| value < listed),
        _ => false,
    }
}

/// Adds the default tolerations to the spec of a template.
pub(super) fn add_tolerations(spec: &mut Value) {
    let mut tolerations = spec["tolerations"].as_array().cloned().unwrap_or_default();
    let network = (spec["hostNetwork"] == true).then_some(NO_NETWORK);
    for (key, effect) in TOLERATED.into_iter().chain(network) {
        let toleration = json!({"key": key, "operator": "Exists", "effect": effect});
        if !tolerations.contains(&toleration) {
            tolerations.push(toleration);
        }
    }
    spec["tolerations"] = Value::Array(tolerations);
}

/// Ties the spec of a pod to a node, by a field in place of its required affinity, which the node
/// has.
pub(super) fn tie(spec: &mut Value, node: &str) {
    let field = json!([{"key": "metadata.name", "operator": "In", "values": [node]}]);
    spec["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"] =
        json!([{"matchFields": field}]);
}

/// The node that a pod is on, or that it is tied to.
pub(super) fn node_of(pod: &Pod) -> &str {
    if !pod.spec.node_name.is_empty() {
        return &pod.spec.node_name;
    }
    let terms = &pod.spec.affinity["nodeAffinity"][REQUIRED]["nodeSelectorTerms"];
    let fields =
        terms.as_array().into_iter().flatten().filter_map(|term| term["matchFields"].as_array());
    let mut named = fields
        .flatten()
        .filter(|field| field["key"] == "metadata.name" && field["operator"] == "In");
    named.next().and_then(|field| field["values"][0].as_str()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(labels: &Value, taints: &Value) -> Node {
        let node = json!({"metadata": {"name": "n", "labels": labels}, "spec": {"taints": taints}});
        serde_json::from_value(node).unwrap()
    }

    #[test]
    fn taints_keep_new_pods_away_or_all() {
        let taint = |effect: &str| json!([{"key": "k", "value": "v", "effect": effect}]);
        let fit_of = |effect: &str, spec: &Value| fit(&node(&json!({}), &taint(effect)), spec);
        let mut spec = json!({});
        assert_eq!(fit_of("NoSchedule", &spec), Fit::Continue);
        assert_eq!(fit_of("NoExecute", &spec), Fit::Away);
        assert_eq!(fit_of("PreferNoSchedule", &spec), Fit::Run);
        spec = json!({"tolerations": [{"key": "k", "operator": "Equal", "value": "v"}]});
        assert_eq!(fit_of("NoExecute", &spec), Fit::Run);
        spec = json!({"tolerations": [{"key": "k", "value": "other"}]});
        assert_eq!(fit_of("NoExecute", &spec), Fit::Away);
        let numbered = json!([{"key": "k", "value": "5", "effect": "NoExecute"}]);
        spec = json!({"tolerations": [{"key": "k", "operator": "Gt", "value": "4"}]});
        assert_eq!(fit(&node(&json!({}), &numbered), &spec), Fit::Run);
        let cordoned = json!([{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]);
        spec = json!({});
        add_tolerations(&mut spec);
        assert_eq!(fit(&node(&json!({}), &cordoned), &spec), Fit::Run);
    }

    #[test]
    fn selectors_and_affinity_choose_nodes() {
        let node = node(&json!({"zone": "a", "cores": "8"}), &json!([]));
        let affine = |terms: Value| {
            fit(
                &node,
                &json!({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}}),
            )
        };
        assert_eq!(fit(&node, &json!({"nodeSelector": {"zone": "a"}})), Fit::Run);
        assert_eq!(fit(&node, &json!({"nodeSelector": {"zone": "b"}})), Fit::Away);
        let more =
            json!([{"matchExpressions": [{"key": "cores", "operator": "Gt", "values": ["4"]}]}]);
        assert_eq!(affine(more), Fit::Run);
        assert_eq!(affine(json!([{}])), Fit::Away);
        let other = json!({"key": "metadata.name", "operator": "NotIn", "values": ["n"]});
        assert_eq!(affine(json!([{"matchFields": [other]}])), Fit::Away);
    }

    #[test]
    fn pod_is_tied_to_its_node() {
        let mut spec = json!({});
        tie(&mut spec, "n7");
        let pod: Pod = serde_json::from_value(json!({"spec": spec})).unwrap();
        assert_eq!(node_of(&pod), "n7");
    }
}
