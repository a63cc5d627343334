//! What a scheduling cycle sees of the cluster.

use crate::labels::{Labels, NodeSelector, strings, text};
use crate::node::{Node, NodeInfo};
use crate::pod::Pod;
use imbl::OrdMap;
use serde_json::Value;
use setpoint_object::label::Selector;
use setpoint_object::meta::ObjectExt;
use setpoint_runtime::Request;
use std::sync::Arc;

/// The cluster. A clone is a snapshot: it shares everything with the original until one of them
/// changes, and then only what changed is copied.
#[derive(Debug, Clone, Default)]
pub(crate) struct View {
    pub(crate) nodes: OrdMap<Arc<str>, Arc<NodeInfo>>,
    /// Pods that wait for room on a node that preemption makes.
    pub(crate) nominated: OrdMap<Arc<str>, Arc<Vec<Arc<Pod>>>>,
    pub(crate) namespaces: OrdMap<Arc<str>, Arc<Labels>>,
    pub(crate) claims: OrdMap<Request, Arc<Claim>>,
    pub(crate) volumes: OrdMap<Arc<str>, Arc<Volume>>,
    /// The storage classes that wait for the first consumer of a claim.
    pub(crate) late_classes: OrdMap<Arc<str>, ()>,
    pub(crate) budgets: OrdMap<Request, Arc<Budget>>,
    /// Number of nodes that exist.
    pub(crate) n_nodes: usize,
    /// Number of assigned pods with affinity to pods.
    pub(crate) n_affine: usize,
}

impl View {
    /// Changes one node, and removes it if nothing is left of it.
    pub(crate) fn change<T>(
        &mut self,
        name: &Arc<str>,
        change: impl FnOnce(&mut NodeInfo) -> T,
    ) -> T {
        let mut info = self.nodes.remove(name).unwrap_or_default();
        let before = (usize::from(info.node.is_some()), info.n_affine);
        let answer = change(Arc::make_mut(&mut info));
        self.n_nodes = self.n_nodes + usize::from(info.node.is_some()) - before.0;
        self.n_affine = self.n_affine + info.n_affine - before.1;
        if !info.is_empty() {
            self.nodes.insert(name.clone(), info);
        }
        answer
    }

    /// The labels of a namespace.
    pub(crate) fn labels_of(&self, namespace: &str) -> Option<Arc<Labels>> {
        self.namespaces.get(namespace).cloned()
    }
}

/// A PersistentVolumeClaim.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) is_deleting: bool,
    /// Empty until it is bound.
    pub(crate) volume: Arc<str>,
    pub(crate) class: Arc<str>,
}

impl Claim {
    pub(crate) fn read(claim: &Value) -> Self {
        let is_bound = !claim["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"]
            .is_null()
            || claim["status"]["phase"] == "Bound";
        let volume = text(&claim["spec"]["volumeName"]);
        Self {
            is_deleting: !claim.deletion_timestamp().is_empty(),
            volume: if is_bound { volume.into() } else { Arc::default() },
            class: text(&claim["spec"]["storageClassName"]).into(),
        }
    }
}

/// The labels of volumes that limit them to nodes.
const TOPOLOGY: [&str; 4] = [
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
];

/// A PersistentVolume.
#[derive(Debug)]
pub(crate) struct Volume {
    affinity: Option<NodeSelector>,
    /// Labels of zones and regions, each with the values that fit.
    topology: Vec<(String, Vec<String>)>,
}

impl Volume {
    pub(crate) fn read(volume: &Value) -> Self {
        let labels = strings(&volume["metadata"]["labels"]);
        let topology = labels.into_iter().filter(|(key, _)| TOPOLOGY.contains(&key.as_str()));
        let values = |value: String| value.split("__").map(str::to_owned).collect();
        Self {
            affinity: NodeSelector::read(&volume["spec"]["nodeAffinity"]["required"]),
            topology: topology.map(|(key, value)| (key, values(value))).collect(),
        }
    }

    /// Whether its node affinity includes a node.
    pub(crate) fn has_affinity(&self, node: &Node) -> bool {
        self.affinity.as_ref().is_none_or(|selector| selector.matches(&node.name, &node.labels))
    }

    /// Whether it is in the node's zone. A node without such labels is everywhere.
    pub(crate) fn is_in_zone(&self, node: &Node) -> bool {
        let is_anywhere = !TOPOLOGY.iter().any(|key| node.labels.contains_key(*key));
        is_anywhere
            || self.topology.iter().all(|(key, values)| {
                node.labels.get(key).is_some_and(|value| values.contains(value))
            })
    }
}

/// A PodDisruptionBudget.
#[derive(Debug)]
pub(crate) struct Budget {
    pub(crate) allowed: i64,
    /// Pods whose disruption has been counted already.
    disrupted: Labels,
    selector: Option<Selector>,
}

impl Budget {
    pub(crate) fn read(budget: &Value) -> Self {
        let selector = &budget["spec"]["selector"];
        Self {
            allowed: budget["status"]["disruptionsAllowed"].as_i64().unwrap_or_default(),
            disrupted: strings(&budget["status"]["disruptedPods"]),
            selector: Selector::from_object(selector).ok().flatten(),
        }
    }

    /// Whether a pod of its namespace counts.
    pub(crate) fn covers(&self, pod: &Pod) -> bool {
        !pod.labels.is_empty()
            && self.selector.as_ref().is_some_and(|selector| pod.is_selected(selector))
            && !self.disrupted.contains_key(&*pod.key.name)
    }
}
