//! Nodes and their pods as the controllers of nodes see them.

use super::view::view;
use k8s_openapi::api::core::v1 as core;
use serde::Deserialize;
use setpoint_object::taint::{Taint, Toleration};

/// The name of the index of pods by their node.
pub(super) const BY_NODE: &str = "node";

view! {
    /// A pod on a node.
    NodePod of core::Pod {
        /// The spec.
        spec: NodePodSpec,
        /// The observed state.
        status: NodePodStatus,
    }
}

/// `spec` of a pod.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NodePodSpec {
    /// Empty before the pod is scheduled.
    pub(super) node_name: String,
    /// The taints that it stands.
    pub(super) tolerations: Vec<Toleration>,
}

/// `status` of a pod.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NodePodStatus {
    /// The conditions.
    pub(super) conditions: Vec<Condition>,
}

/// A condition of a pod or a node.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Condition {
    /// `Ready`, for example.
    #[serde(rename = "type")]
    pub(super) kind: String,
    /// `True`, `False` or `Unknown`.
    pub(super) status: String,
    /// RFC 3339.
    pub(super) last_heartbeat_time: Option<String>,
}

view! {
    /// A node.
    NodeView of core::Node {
        /// The spec.
        spec: NodeSpec,
        /// The observed state.
        status: NodeStatus,
    }
}

/// `spec` of a node.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NodeSpec {
    /// The taints.
    pub(super) taints: Vec<Taint>,
    /// It is cordoned.
    pub(super) unschedulable: bool,
}

/// `status` of a node.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NodeStatus {
    /// The conditions.
    pub(super) conditions: Vec<Condition>,
}

impl NodeView {
    /// The status of a condition; empty if there is none.
    pub(super) fn condition(&self, kind: &str) -> &str {
        let found = self.status.conditions.iter().find(|condition| condition.kind == kind);
        found.map_or("", |condition| &condition.status)
    }
}

/// The function of the index [`BY_NODE`].
pub(super) fn by_node(pod: &NodePod) -> Vec<String> {
    let node = &pod.spec.node_name;
    if node.is_empty() { Vec::new() } else { vec![node.clone()] }
}
