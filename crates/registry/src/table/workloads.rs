//! Kinds that keep Pods running.

use super::cell::{self, NONE, at, containers, int, labels, list, selector, text};
use serde_json::Value;
use setpoint_object::time::Timestamp;

const TEMPLATE_CONTAINERS: &str = "spec.template.spec.containers";

pub(super) fn deployment(object: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(object, TEMPLATE_CONTAINERS);
    vec![
        cell::name(object),
        format!("{}/{}", int(object, "status.readyReplicas"), int(object, "spec.replicas")).into(),
        int(object, "status.updatedReplicas").into(),
        int(object, "status.availableReplicas").into(),
        cell::age(object, now),
        names,
        images,
        selector(object, "spec.selector").into(),
    ]
}

pub(super) fn replica_set(object: &Value, now: Timestamp) -> Vec<Value> {
    replicas(object, now, selector(object, "spec.selector"))
}

pub(super) fn replication_controller(object: &Value, now: Timestamp) -> Vec<Value> {
    replicas(object, now, labels(object, "spec.selector"))
}

fn replicas(object: &Value, now: Timestamp, selector: String) -> Vec<Value> {
    let [names, images] = containers(object, TEMPLATE_CONTAINERS);
    vec![
        cell::name(object),
        int(object, "spec.replicas").into(),
        int(object, "status.replicas").into(),
        int(object, "status.readyReplicas").into(),
        cell::age(object, now),
        names,
        images,
        selector.into(),
    ]
}

pub(super) fn stateful_set(object: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(object, TEMPLATE_CONTAINERS);
    vec![
        cell::name(object),
        format!("{}/{}", int(object, "status.readyReplicas"), int(object, "spec.replicas")).into(),
        cell::age(object, now),
        names,
        images,
    ]
}

pub(super) fn daemon_set(object: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(object, TEMPLATE_CONTAINERS);
    vec![
        cell::name(object),
        int(object, "status.desiredNumberScheduled").into(),
        int(object, "status.currentNumberScheduled").into(),
        int(object, "status.numberReady").into(),
        int(object, "status.updatedNumberScheduled").into(),
        int(object, "status.numberAvailable").into(),
        labels(object, "spec.template.spec.nodeSelector").into(),
        cell::age(object, now),
        names,
        images,
        selector(object, "spec.selector").into(),
    ]
}

pub(super) fn pod_template(object: &Value, _now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(object, "template.spec.containers");
    vec![cell::name(object), names, images, labels(object, "template.metadata.labels").into()]
}

pub(super) fn controller_revision(object: &Value, now: Timestamp) -> Vec<Value> {
    let owner = list(object, "metadata.ownerReferences")
        .iter()
        .find(|owner| at(owner, "controller") == true)
        .map_or_else(
            || NONE.to_owned(),
            |owner| {
                let kind = text(owner, "kind").to_lowercase();
                match text(owner, "apiVersion").split_once('/') {
                    Some((group, _)) => format!("{kind}.{group}/{}", text(owner, "name")),
                    None => format!("{kind}/{}", text(owner, "name")),
                }
            },
        );
    vec![cell::name(object), owner.into(), int(object, "revision").into(), cell::age(object, now)]
}
