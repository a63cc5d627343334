//! Actions on pods: a binding assigns it to a node, an eviction adds a condition (spec: api-server
//! §5.6).
use crate::features::{Feature, FeatureGates};
use crate::kind::at::check;
use crate::kind::{Report, set_condition};
use serde_json::{Value, json};
use setpoint_object::field;
use setpoint_object::meta::ObjectExt;
use setpoint_object::pod_phase;
use setpoint_object::time::Timestamp;

/// What is wrong with a binding: its target is a node with a name.
pub(crate) fn binding_fault(binding: &Value) -> Option<String> {
    let mut errors = Report::new(FeatureGates::default());
    check(binding, None, &mut errors, |at| {
        let kind = at.get("target.kind");
        if !matches!(kind.text(), "" | "Node") {
            kind.unsupported(&["Node", "<empty>"]);
        }
        at.get("target.name").need();
    });
    (!errors.is_empty()).then(|| field::aggregate(&errors))
}

/// The pod assigned to the node of a binding, with the binding's annotations, and its labels if a
/// feature says so.
///
/// # Errors
/// Why it cannot be assigned.
pub(crate) fn place(
    pod: &Value,
    binding: &Value,
    now: Timestamp,
    features: FeatureGates,
) -> Result<Value, String> {
    let name = pod.name();
    if !pod.deletion_timestamp().is_empty() {
        return Err(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    if let Some(assigned) = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) {
        return Err(format!("pod {name} is already assigned to node {assigned:?}"));
    }
    if pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
        return Err(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    let mut placed = pod.clone();
    placed["spec"]["nodeName"] = binding["target"]["name"].clone();
    // A node that was to become its own is out of date.
    if features.is_on(Feature::ClearingNominatedNodeNameAfterBinding)
        && let Some(status) = placed["status"].as_object_mut()
    {
        status.remove("nominatedNodeName");
    }
    let condition = json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null});
    set_condition(&mut placed, condition, now);
    let annotations = binding.meta().and_then(|meta| meta.get("annotations"));
    for (key, value) in annotations.and_then(Value::as_object).into_iter().flatten() {
        placed["metadata"]["annotations"][key] = value.clone();
    }
    let has_labels = features.is_on(Feature::PodTopologyLabelsAdmission);
    let labels = binding.meta().filter(|_| has_labels).and_then(|meta| meta.get("labels"));
    for (key, value) in labels.and_then(Value::as_object).into_iter().flatten() {
        placed["metadata"]["labels"][key] = value.clone();
    }
    Ok(placed)
}

/// Whether its eviction disrupts nothing: it has ended, or is terminating.
pub(crate) fn is_over(pod: &Value) -> bool {
    let phase = pod["status"]["phase"].as_str();
    !pod.deletion_timestamp().is_empty() || phase.is_some_and(pod_phase::is_terminal)
}

/// The pod with the reason of its eviction in its status.
pub(crate) fn note_eviction(pod: &Value, now: Timestamp) -> Value {
    let mut noted = pod.clone();
    let condition = json!({
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
        "lastProbeTime": null,
    });
    set_condition(&mut noted, condition, now);
    noted
}
