//! What runs pods continuously.
use super::fill::{Fill, Object};
use super::{pod, storage};
use serde_json::{Value, json};

/// How many old revisions a workload keeps.
const REVISIONS: i32 = 10;

/// Deployment.
pub(super) fn deployment(object: &mut Object) {
    let Some(spec) = object.object("spec") else { return };
    spec.absent("replicas", 1);
    if let Some(strategy) = spec.object_or_new("strategy") {
        strategy.absent("type", "RollingUpdate");
        if strategy.text("type") == "RollingUpdate"
            && let Some(rolling) = strategy.object_or_new("rollingUpdate")
        {
            rolling.absent("maxUnavailable", "25%");
            rolling.absent("maxSurge", "25%");
        }
    }
    spec.absent("revisionHistoryLimit", REVISIONS);
    spec.absent("progressDeadlineSeconds", 600);
    pod::template(spec);
}

/// ReplicaSet.
pub(super) fn replica_set(object: &mut Object) {
    let Some(spec) = object.object("spec") else { return };
    spec.absent("replicas", 1);
    pod::template(spec);
}

/// ReplicationController: labels and selector come from the template.
pub(super) fn replication_controller(object: &mut Object) {
    let labels = object
        .get("spec")
        .and_then(|spec| spec.pointer("/template/metadata/labels"))
        .filter(|labels| labels.as_object().is_some_and(|labels| !labels.is_empty()))
        .cloned();
    if let Some(labels) = labels {
        if let Some(spec) = object.object("spec") {
            spec.absent("selector", labels.clone());
        }
        if let Some(metadata) = object.object_or_new("metadata") {
            metadata.absent("labels", labels);
        }
    }
    let Some(spec) = object.object("spec") else { return };
    spec.absent("replicas", 1);
    pod::template(spec);
}

/// StatefulSet.
pub(super) fn stateful_set(object: &mut Object) {
    let Some(spec) = object.object("spec") else { return };
    spec.absent("podManagementPolicy", "OrderedReady");
    if let Some(strategy) = spec.object_or_new("updateStrategy") {
        strategy.absent("type", "RollingUpdate");
        if strategy.text("type") == "RollingUpdate"
            && let Some(rolling) = strategy.object_or_new("rollingUpdate")
        {
            rolling.absent("partition", 0);
        }
    }
    if let Some(policy) = spec.object_or_new("persistentVolumeClaimRetentionPolicy") {
        policy.absent("whenDeleted", "Retain");
        policy.absent("whenScaled", "Retain");
    }
    spec.absent("replicas", 1);
    spec.absent("revisionHistoryLimit", REVISIONS);
    for claim in spec.each("volumeClaimTemplates") {
        claim.insert("apiVersion".to_owned(), Value::from("v1"));
        claim.insert("kind".to_owned(), Value::from("PersistentVolumeClaim"));
        storage::claim(claim);
    }
    pod::template(spec);
}

/// DaemonSet.
pub(super) fn daemon_set(object: &mut Object) {
    if let Some(metadata) = object.object_or_new("metadata")
        && let Some(annotations) = metadata.object_or_new("annotations")
    {
        annotations.absent("deprecated.daemonset.template.generation", "1");
    }
    let Some(spec) = object.object("spec") else { return };
    if let Some(strategy) = spec.object_or_new("updateStrategy") {
        strategy.absent("type", "RollingUpdate");
        if strategy.text("type") == "RollingUpdate" {
            strategy.absent("rollingUpdate", json!({}));
            if let Some(rolling) = strategy.object("rollingUpdate") {
                rolling.absent("maxUnavailable", 1);
                rolling.absent("maxSurge", 0);
            }
        }
    }
    spec.absent("revisionHistoryLimit", REVISIONS);
    pod::template(spec);
}
