//! The status of ReplicaSets and ReplicationControllers.

use super::{Pod, Replicated};
use crate::workload::difference::replacement;
use crate::workload::pod_control::message;
use kube_core::params::Patch;
use serde::{Deserialize, Serialize};
use serde_json::json;
use setpoint_object::label::Selector;
use setpoint_object::time::Timestamp;
use setpoint_runtime::client::ignore_not_found;
use setpoint_runtime::{Api, ClientError, Request};

/// The condition of a pass that could not create or delete pods.
const REPLICA_FAILURE: &str = "ReplicaFailure";

/// `status` of both kinds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ReplicaStatus {
    /// Pods that are neither finished nor being deleted.
    pub(crate) replicas: i32,
    /// Those that have all labels of the template.
    pub(crate) fully_labeled_replicas: i32,
    /// Those that are ready.
    pub(crate) ready_replicas: i32,
    /// Those that have been ready for `minReadySeconds`.
    pub(crate) available_replicas: i32,
    /// Pods that are being deleted; `None` is not reported.
    pub(crate) terminating_replicas: Option<i32>,
    /// The generation whose spec the last pass used.
    pub(crate) observed_generation: i64,
    /// The conditions.
    pub(crate) conditions: Vec<Condition>,
}

/// A condition.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Condition {
    /// Its type.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// `True`, `False` or `Unknown`.
    pub(crate) status: String,
    /// When the status changed last, in RFC 3339.
    #[serde(with = "crate::workload::view::time")]
    pub(crate) last_transition_time: String,
    /// One word.
    pub(crate) reason: String,
    /// A sentence.
    pub(crate) message: String,
}

/// The status of an owner with these active pods. `failure` is the error of a pass that could not
/// create or delete pods. An earlier failure keeps its text, as in the reference.
pub(super) fn of<O: Replicated>(
    owner: &O,
    active: &[&Pod],
    n_terminating: usize,
    failure: Option<&ClientError>,
    now: Timestamp,
) -> ReplicaStatus {
    let spec = owner.spec();
    let labels = spec.template["metadata"]["labels"].as_object();
    let labels = labels.into_iter().flatten().map(|(k, v)| (&**k, v.as_str().unwrap_or_default()));
    let template = Selector::from_labels(labels).unwrap_or_default();
    let count =
        |counts: &dyn Fn(&Pod) -> bool| number(active.iter().filter(|pod| counts(pod)).count());
    let mut conditions = owner.status().conditions.clone();
    let has_failure = conditions.iter().any(|condition| condition.kind == REPLICA_FAILURE);
    match failure {
        None => conditions.retain(|condition| condition.kind != REPLICA_FAILURE),
        Some(error) if !has_failure => {
            let is_creating = active.len() < usize::try_from(spec.replicas()).unwrap_or_default();
            conditions.push(Condition {
                kind: REPLICA_FAILURE.into(),
                status: "True".into(),
                last_transition_time: now.rfc3339(),
                reason: if is_creating { "FailedCreate" } else { "FailedDelete" }.into(),
                message: message(error),
            });
        }
        Some(_) => {}
    }
    ReplicaStatus {
        replicas: number(active.len()),
        fully_labeled_replicas: count(&|pod| pod.is_selected(&template)),
        ready_replicas: count(&Pod::is_ready),
        available_replicas: count(&|pod| pod.is_available(spec.min_ready_seconds, now)),
        terminating_replicas: O::COUNTS_TERMINATING.then(|| number(n_terminating)),
        observed_generation: owner.meta().generation.unwrap_or_default(),
        conditions,
    }
}

fn number(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

/// Writes a status if it differs from the owner's.
pub(super) async fn write<O: Replicated>(
    owners: &Api<O>,
    owner: &O,
    status: &ReplicaStatus,
) -> Result<(), ClientError> {
    if owner.status() == status {
        return Ok(());
    }
    let meta = owner.meta();
    let key = Request::new(
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default(),
    );
    let body = replacement(status, &["replicas", "terminatingReplicas"]);
    let patch = json!({"metadata": {"uid": meta.uid}, "status": body});
    ignore_not_found(owners.patch_status(&key, &Patch::Merge(patch)).await).map(drop)
}
