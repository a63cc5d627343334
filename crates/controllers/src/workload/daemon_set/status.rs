//! The status of DaemonSets.

use super::DaemonSet;
use super::node::Fit;
use super::sync::Sync;
use crate::workload::difference::replacement;
use kube_core::params::Patch;
use serde::{Deserialize, Serialize};
use serde_json::json;
use setpoint_runtime::client::ignore_not_found;
use setpoint_runtime::{ClientError, Request};

/// Numbers that are written also if they are 0.
const ALWAYS: [&str; 4] =
    ["currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"];

/// `status` of a DaemonSet: numbers of nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DaemonSetStatus {
    pub(crate) observed_generation: i64,
    pub(crate) desired_number_scheduled: i32,
    pub(crate) current_number_scheduled: i32,
    pub(crate) number_misscheduled: i32,
    pub(crate) number_ready: i32,
    pub(crate) number_available: i32,
    pub(crate) number_unavailable: i32,
    pub(crate) updated_number_scheduled: i32,
    pub(crate) collision_count: Option<i32>,
}

impl Sync<'_> {
    /// The status, with the pods as they were at the start of the pass.
    fn status(&self, n_collisions: Option<i32>) -> DaemonSetStatus {
        let mut status = DaemonSetStatus {
            observed_generation: self.set.metadata.generation.unwrap_or_default(),
            collision_count: n_collisions,
            ..DaemonSetStatus::default()
        };
        for (node, fit) in &self.nodes {
            // The oldest one is the node's pod.
            let pod = self.pods_of(node).first();
            if *fit != Fit::Run {
                status.number_misscheduled += i32::from(pod.is_some());
                continue;
            }
            status.desired_number_scheduled += 1;
            let Some(pod) = pod else { continue };
            status.current_number_scheduled += 1;
            status.number_ready += i32::from(pod.is_ready());
            let min = self.set.spec.min_ready_seconds;
            status.number_available += i32::from(pod.is_available(min, self.now));
            status.updated_number_scheduled += i32::from(self.set.is_updated(pod, self.hash));
        }
        status.number_unavailable = status.desired_number_scheduled - status.number_available;
        status
    }

    /// Writes the status if it differs.
    pub(super) async fn write_status(&self, n_collisions: Option<i32>) -> Result<(), ClientError> {
        let status = self.status(n_collisions);
        if self.set.status == status {
            return Ok(());
        }
        let body = replacement(&status, &ALWAYS);
        let patch = json!({"metadata": {"uid": self.set.metadata.uid}, "status": body});
        let namespace = self.set.metadata.namespace.as_deref().unwrap_or_default();
        let key = Request::new(namespace, self.set.name());
        ignore_not_found(
            self.client.api::<DaemonSet>().patch_status(&key, &Patch::Merge(patch)).await,
        )
        .map(drop)
    }
}
