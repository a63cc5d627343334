//! Nodes, and limits on what namespaces and requests may take.
use super::fill::{Fill, Object};
use serde_json::Value;

/// Node: all its capacity is allocatable unless it says otherwise.
pub(super) fn node(object: &mut Object) {
    let Some(status) = object.object("status") else { return };
    if let Some(capacity) = status.get("capacity").cloned() {
        status.absent("allocatable", capacity);
    }
}

/// LimitRange: of a container the maximum is the default limit, default limit and minimum the default request.
pub(super) fn limit_range(object: &mut Object) {
    let Some(spec) = object.object("spec") else { return };
    for item in spec.each("limits") {
        if item.text("type") == "Container" {
            inherit(item, "max", "default");
            inherit(item, "default", "defaultRequest");
            inherit(item, "min", "defaultRequest");
        }
    }
}

fn inherit(item: &mut Object, from: &str, to: &str) {
    let Some(Value::Object(source)) = item.get(from).cloned() else { return };
    if let Some(target) = item.object_or_new(to) {
        for (name, quantity) in source {
            target.absent(&name, quantity);
        }
    }
}

/// FlowSchema. Zero counts as absent.
pub(super) fn flow_schema(object: &mut Object) {
    let Some(spec) = object.object("spec") else { return };
    if spec.get("matchingPrecedence").and_then(Value::as_i64).unwrap_or(0) == 0 {
        spec.insert("matchingPrecedence".to_owned(), 1000.into());
    }
}

/// PriorityLevelConfiguration.
pub(super) fn priority_level(object: &mut Object) {
    let Some(spec) = object.object("spec") else { return };
    if let Some(exempt) = spec.object("exempt") {
        exempt.absent("nominalConcurrencyShares", 0);
        exempt.absent("lendablePercent", 0);
    }
    let Some(limited) = spec.object("limited") else { return };
    limited.absent("nominalConcurrencyShares", 30);
    limited.absent("lendablePercent", 0);
    if let Some(queuing) = limited.object("limitResponse").and_then(|r| r.object("queuing")) {
        // Zero is absent here: a queue of nothing makes no sense.
        for (name, value) in [("queues", 64), ("handSize", 8), ("queueLengthLimit", 50)] {
            if queuing.get(name).and_then(Value::as_i64).unwrap_or(0) == 0 {
                queuing.insert(name.to_owned(), value.into());
            }
        }
    }
}
