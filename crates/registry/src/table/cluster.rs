//! Kinds the cluster itself is made of.

use super::cell::{self, NONE, at, condition, int, list, text, text_or};
use serde_json::Value;
use setpoint_object::time::Timestamp;

/// What node information that a kubelet has not reported reads as.
const UNKNOWN: &str = "<unknown>";
const ROLE_PREFIX: &str = "node-role.kubernetes.io/";
const ROLE_LABEL: &str = "kubernetes.io/role";

pub(super) fn namespace(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![cell::name(object), text(object, "status.phase").into(), cell::age(object, now)]
}

pub(super) fn node(object: &Value, now: Timestamp) -> Vec<Value> {
    let mut status = match condition(object, "status.conditions", "Ready") {
        Some(ready) if text(ready, "status") == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if at(object, "spec.unschedulable") == true {
        status.push_str(",SchedulingDisabled");
    }
    let info = at(object, "status.nodeInfo");
    let address = |ty: &str| {
        list(object, "status.addresses")
            .iter()
            .find(|address| text(address, "type") == ty)
            .map_or(NONE, |address| text(address, "address"))
    };
    vec![
        cell::name(object),
        status.into(),
        roles(object).into(),
        cell::age(object, now),
        text(info, "kubeletVersion").into(),
        address("InternalIP").into(),
        address("ExternalIP").into(),
        text_or(info, "osImage", UNKNOWN).into(),
        text_or(info, "kernelVersion", UNKNOWN).into(),
        text_or(info, "containerRuntimeVersion", UNKNOWN).into(),
    ]
}

/// Roles by label, sorted, once each.
fn roles(object: &Value) -> String {
    let mut roles: Vec<&str> = at(object, "metadata.labels")
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| match key.strip_prefix(ROLE_PREFIX) {
            Some(role) => Some(role),
            None if key == ROLE_LABEL => value.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    roles.dedup();
    if roles.is_empty() { NONE.to_owned() } else { roles.join(",") }
}

pub(super) fn component_status(object: &Value, _now: Timestamp) -> Vec<Value> {
    let (mut status, mut message, mut error) = ("Unknown", "", "");
    if let Some(healthy) = condition(object, "conditions", "Healthy") {
        status = if text(healthy, "status") == "True" { "Healthy" } else { "Unhealthy" };
        (message, error) = (text(healthy, "message"), text(healthy, "error"));
    }
    vec![cell::name(object), status.into(), message.into(), error.into()]
}

pub(super) fn api_service(object: &Value, now: Timestamp) -> Vec<Value> {
    let service = at(object, "spec.service");
    let service = match service.is_null() {
        true => "Local".to_owned(),
        false => format!("{}/{}", text(service, "namespace"), text(service, "name")),
    };
    let available = match condition(object, "status.conditions", "Available") {
        None => "Unknown".to_owned(),
        Some(found) if text(found, "status") == "True" => "True".to_owned(),
        Some(found) => format!("{} ({})", text(found, "status"), text(found, "reason")),
    };
    vec![cell::name(object), service.into(), available.into(), cell::age(object, now)]
}

pub(super) fn runtime_class(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![cell::name(object), text(object, "handler").into(), cell::age(object, now)]
}

pub(super) fn priority_class(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        cell::name(object),
        int(object, "value").into(),
        (at(object, "globalDefault") == true).into(),
        cell::age(object, now),
        text_or(object, "preemptionPolicy", "PreemptLowerPriority").into(),
    ]
}

pub(super) fn flow_schema(object: &Value, now: Timestamp) -> Vec<Value> {
    let dangling = condition(object, "status.conditions", "Dangling");
    vec![
        cell::name(object),
        text(object, "spec.priorityLevelConfiguration.name").into(),
        int(object, "spec.matchingPrecedence").into(),
        text_or(object, "spec.distinguisherMethod.type", NONE).into(),
        cell::age(object, now),
        dangling.map_or("?", |found| text(found, "status")).into(),
    ]
}

pub(super) fn priority_level(object: &Value, now: Timestamp) -> Vec<Value> {
    let number = |path: &str| match at(object, path).as_i64() {
        Some(number) => Value::from(number),
        None => Value::from(NONE),
    };
    vec![
        cell::name(object),
        text(object, "spec.type").into(),
        number("spec.limited.nominalConcurrencyShares"),
        number("spec.limited.limitResponse.queuing.queues"),
        number("spec.limited.limitResponse.queuing.handSize"),
        number("spec.limited.limitResponse.queuing.queueLengthLimit"),
        cell::age(object, now),
    ]
}

pub(super) fn resource_claim(object: &Value, now: Timestamp) -> Vec<Value> {
    let mut states = Vec::new();
    if cell::deleting(object) {
        states.push("deleted");
    }
    if cell::has(object, "status.allocation") {
        states.push("allocated");
        if cell::len(object, "status.reservedFor") > 0 {
            states.push("reserved");
        }
    } else if states.is_empty() {
        states.push("pending");
    }
    vec![cell::name(object), states.join(",").into(), cell::age(object, now)]
}

pub(super) fn resource_slice(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        cell::name(object),
        text(object, "spec.nodeName").into(),
        text(object, "spec.driver").into(),
        text(object, "spec.pool.name").into(),
        cell::age(object, now),
    ]
}
