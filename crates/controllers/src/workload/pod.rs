//! Pods as workload controllers see them: the view, its predicates, and the index by controller.

use super::view::view;
use k8s_openapi::api::core::v1 as core;
use kube_core::Resource;
use serde::Deserialize;
use setpoint_object::label::Selector;
use setpoint_object::pod_phase;
use setpoint_object::time::Timestamp;
use setpoint_runtime::owner::controller_of;
use std::time::Duration;

/// The name of the index of pods by their controller: its values are [`controller_key`]s. Each
/// controller that reads it declares it: `pods()`.
pub(crate) const BY_CONTROLLER: &str = "controller";

view! {
    /// A pod.
    Pod of core::Pod {
        /// The spec.
        spec: PodSpec,
        /// The observed state.
        status: PodStatus,
    }
}

/// `spec` of a pod.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodSpec {
    /// Empty before the pod is scheduled.
    pub(crate) node_name: String,
    /// The affinity, as JSON.
    pub(crate) affinity: serde_json::Value,
}

/// `status` of a pod.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodStatus {
    /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    pub(crate) phase: String,
    /// The conditions.
    pub(crate) conditions: Vec<PodCondition>,
    /// The containers.
    pub(crate) container_statuses: Vec<ContainerStatus>,
}

/// A condition of a pod.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodCondition {
    /// `Ready`, for example.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// `True`, `False` or `Unknown`.
    pub(crate) status: String,
    /// RFC 3339; empty if unknown.
    #[serde(deserialize_with = "crate::workload::view::or_default")]
    pub(crate) last_transition_time: String,
}

/// A container's status.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ContainerStatus {
    /// How often it was restarted.
    pub(crate) restart_count: i64,
}

/// Whether the condition `Ready` of a whole pod is true.
pub(crate) fn is_ready(pod: &core::Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

impl Pod {
    /// The value of a label; empty if it is absent.
    pub(crate) fn label(&self, key: &str) -> &str {
        let labels = self.metadata.labels.as_ref();
        labels.and_then(|labels| labels.get(key)).map_or("", String::as_str)
    }

    /// Whether its containers have ended for good.
    pub(crate) fn is_finished(&self) -> bool {
        pod_phase::is_terminal(&self.status.phase)
    }

    /// Whether it counts as a replica: it has not finished and is not being deleted.
    pub(crate) fn is_active(&self) -> bool {
        !self.is_finished() && !self.is_being_deleted()
    }

    /// Whether it is being deleted and its containers may still run.
    pub(crate) fn is_terminating(&self) -> bool {
        !self.is_finished() && self.is_being_deleted()
    }

    fn ready_condition(&self) -> Option<&PodCondition> {
        self.status.conditions.iter().find(|condition| condition.kind == "Ready")
    }

    /// Whether its condition `Ready` is true.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready_condition().is_some_and(|condition| condition.status == "True")
    }

    /// Since when it is ready; `None` if it is not, or if the time is unknown.
    pub(crate) fn ready_since(&self) -> Option<Timestamp> {
        let condition = self.ready_condition().filter(|condition| condition.status == "True")?;
        Timestamp::parse(&condition.last_transition_time)
    }

    /// Whether it has been ready for `min_ready_seconds`.
    pub(crate) fn is_available(&self, min_ready_seconds: i32, now: Timestamp) -> bool {
        self.is_ready() && self.available_in(min_ready_seconds, now) == Some(Duration::ZERO)
    }

    /// How long until it is available if it stays ready; `None` if it is not ready.
    pub(crate) fn available_in(&self, min_ready_seconds: i32, now: Timestamp) -> Option<Duration> {
        if !self.is_ready() {
            return None;
        }
        let min = Duration::from_secs(u64::try_from(min_ready_seconds).unwrap_or_default());
        if min.is_zero() {
            return Some(Duration::ZERO);
        }
        let since = self.ready_since()?;
        Some((since.0 + min).saturating_sub(now.0))
    }

    /// The greatest restart count of its containers.
    pub(crate) fn restarts_max(&self) -> i64 {
        self.status.container_statuses.iter().map(|status| status.restart_count).max().unwrap_or(0)
    }

    /// When it was created.
    pub(crate) fn created(&self) -> Timestamp {
        let created = self.metadata.creation_timestamp.as_ref();
        let secs = created.map_or(0, |time| time.0.as_second());
        Timestamp(Duration::from_secs(u64::try_from(secs).unwrap_or_default()))
    }

    /// Whether a selector matches its labels.
    pub(crate) fn is_selected(&self, selector: &Selector) -> bool {
        let labels = self.metadata.labels.as_ref();
        selector.matches(|label| labels?.get(label).map(String::as_str))
    }

    /// Whether its controller has this uid.
    pub(crate) fn is_controlled_by(&self, uid: &str) -> bool {
        controller_of(self).is_some_and(|controller| controller.uid == uid)
    }
}

/// The time until the next of these pods becomes available; `None` if none will without a change.
pub(crate) fn next_available<'a>(
    pods: impl IntoIterator<Item = &'a Pod>,
    min_ready_seconds: i32,
    now: Timestamp,
) -> Option<Duration> {
    let waits = pods.into_iter().filter_map(|pod| pod.available_in(min_ready_seconds, now));
    waits.filter(|wait| !wait.is_zero()).min()
}

/// The function of the index [`BY_CONTROLLER`].
pub(crate) fn by_controller(pod: &Pod) -> Vec<String> {
    vec![controller_key(pod)]
}

/// The value of an index by controller: the controller's uid, or [`orphan_key`].
pub(crate) fn controller_key<K: Resource>(object: &K) -> String {
    match controller_of(object) {
        Some(controller) => controller.uid.clone(),
        None => orphan_key(object.meta().namespace.as_deref().unwrap_or_default()),
    }
}

/// The value of the index for pods of a namespace without a controller. The value for pods with a
/// controller is its uid, which has no slash.
pub(crate) fn orphan_key(namespace: &str) -> String {
    format!("{namespace}/")
}
