//! NetworkPolicies.
use crate::kind::{Fill, Kind, Members};
use crate::table::cell;
use serde_json::{Value, json};
use setpoint_object::time::Timestamp;

/// NetworkPolicy.
pub(in crate::kind) static KIND: Kind =
    Kind { default, cells: Some(cells), ..Kind::plain("networking.k8s.io", "NetworkPolicy") };

fn default(object: &mut Members, _version: &str) {
    let Some(spec) = object.object("spec") else { return };
    for direction in ["ingress", "egress"] {
        for rule in spec.each(direction) {
            rule.each("ports").for_each(|port| port.absent("protocol", "TCP"));
        }
    }
    let egress = spec.get("egress").and_then(Value::as_array).is_some_and(|e| !e.is_empty());
    let types = if egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
    spec.absent("policyTypes", types);
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        cell::name(object),
        cell::selector(object, "spec.podSelector").into(),
        cell::age(object, now),
    ]
}
