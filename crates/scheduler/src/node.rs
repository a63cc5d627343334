//! Nodes and the pods on them.

use crate::amounts::Amounts;
use crate::labels::{Labels, list_of, strings};
use crate::pod::{HostPort, Pod};
use serde_json::Value;
use setpoint_object::meta::ObjectExt;
use setpoint_object::taint::Taint;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The taint of a cordoned node.
pub(crate) const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// A node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) name: Arc<str>,
    pub(crate) labels: Labels,
    pub(crate) taints: Vec<Taint>,
    pub(crate) is_unschedulable: bool,
    pub(crate) allocatable: Amounts,
    pub(crate) pods_max: i64,
}

impl Node {
    /// Reads a node.
    pub(crate) fn read(node: &Value) -> Self {
        let quantities = setpoint_quota::pod::quantities(&node["status"]["allocatable"]);
        Self {
            name: node.name().into(),
            labels: strings(&node["metadata"]["labels"]),
            taints: list_of(&node["spec"]["taints"]),
            is_unschedulable: node["spec"]["unschedulable"] == true,
            pods_max: quantities.get("pods").map_or(0, |quantity| quantity.value()),
            allocatable: Amounts::of(&quantities),
        }
    }
}

/// A node with the pods on it. Pods may be known before their node is.
#[derive(Debug, Clone, Default)]
pub(crate) struct NodeInfo {
    pub(crate) node: Option<Arc<Node>>,
    pub(crate) pods: BTreeMap<Arc<str>, Arc<Pod>>,
    pub(crate) requested: Amounts,
    /// CPU and memory for scores.
    pub(crate) scored: (i64, i64),
    /// Ports in use, with the number of pods that use them.
    pub(crate) ports: BTreeMap<HostPort, u32>,
    /// Number of pods with required anti-affinity.
    pub(crate) n_anti_affine: usize,
    /// Number of pods with any affinity to pods.
    pub(crate) n_affine: usize,
}

impl NodeInfo {
    /// Adds a pod, by uid. Returns the same pod as it was before.
    pub(crate) fn add(&mut self, pod: Arc<Pod>) -> Option<Arc<Pod>> {
        let before = self.remove(&pod.uid);
        self.count(&pod, 1);
        self.pods.insert(pod.uid.clone(), pod);
        before
    }

    /// Removes a pod; returns it if it was there.
    pub(crate) fn remove(&mut self, uid: &str) -> Option<Arc<Pod>> {
        let pod = self.pods.remove(uid)?;
        self.count(&pod, -1);
        Some(pod)
    }

    fn count(&mut self, pod: &Pod, sign: i64) {
        let spec = &pod.spec;
        self.requested.add(&spec.requests, sign);
        // As `Amounts::add`.
        self.scored.0 = self.scored.0.wrapping_add(sign.wrapping_mul(spec.scored.0));
        self.scored.1 = self.scored.1.wrapping_add(sign.wrapping_mul(spec.scored.1));
        let step = |n: &mut usize| *n = if sign > 0 { *n + 1 } else { n.saturating_sub(1) };
        if !spec.anti_affinity.is_empty() {
            step(&mut self.n_anti_affine);
        }
        if is_affine(pod) {
            step(&mut self.n_affine);
        }
        for port in &spec.ports {
            if sign > 0 {
                *self.ports.entry(port.clone()).or_default() += 1;
            } else if let Some(n) = self.ports.get_mut(port) {
                *n -= 1;
                if *n == 0 {
                    self.ports.remove(port);
                }
            }
        }
    }

    /// Whether nothing is known of it any more.
    pub(crate) fn is_empty(&self) -> bool {
        self.node.is_none() && self.pods.is_empty()
    }

    /// Number of pods on it.
    pub(crate) fn n_pods(&self) -> i64 {
        i64::try_from(self.pods.len()).unwrap_or(i64::MAX)
    }
}

/// Whether a pod has terms that other pods must or should respect.
pub(crate) fn is_affine(pod: &Pod) -> bool {
    let spec = &pod.spec;
    !spec.anti_affinity.is_empty() || !spec.affinity.is_empty() || !spec.preferred_pods.is_empty()
}
