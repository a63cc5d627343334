//! Spreading of pods without constraints of their own: the pods of one Service or owner prefer
//! different nodes, and, less strongly, different zones, as kube-scheduler's built-in constraints
//! have it.

use crate::crowd::{Crowd, ZONE};
use crate::cycle::Cycle;
use crate::labels::{HOSTNAME, Labels};
use crate::node::Node;
use crate::pod::Pod;
use crate::view::View;
use imbl::OrdMap;
use setpoint_object::label::Selector;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The skews that hardly matter: of nodes and of zones.
const NODE_SKEW: i64 = 3;
const ZONE_SKEW: i64 = 5;

/// The pods that belong together with a pod, and where they are.
#[derive(Debug, Clone)]
pub(crate) struct Company {
    /// The labels that its Services select.
    services: Labels,
    /// What its owner selects.
    owner: Option<Arc<Selector>>,
    /// The labels that were counted last.
    after: Option<Arc<Labels>>,
    /// The numbers of the first crowd by node, shared with it, and of the others.
    first: OrdMap<Arc<str>, i64>,
    others: BTreeMap<Arc<str>, i64>,
    zones: BTreeMap<Arc<str>, i64>,
}

impl Company {
    /// The company of a pod; `None` if it has constraints of its own, or no Service and no owner.
    pub(crate) fn new(view: &View, pod: &Pod) -> Option<Self> {
        if !pod.spec.spread.is_empty() {
            return None;
        }
        let mut services = Labels::new();
        for selector in view.services_of(&pod.key.namespace) {
            if has_all(&pod.labels, selector) {
                services.extend(selector.iter().map(|(key, value)| (key.clone(), value.clone())));
            }
        }
        let owner = pod.owner.as_ref().and_then(|owner| view.owners.get(owner).cloned());
        if services.is_empty() && owner.is_none() {
            return None;
        }
        Some(Self {
            services,
            owner,
            after: None,
            first: OrdMap::new(),
            others: BTreeMap::new(),
            zones: BTreeMap::new(),
        })
    }

    /// Counts some crowds, about as many entries as are given. Returns whether that is all.
    pub(crate) fn count(&mut self, view: &View, pod: &Pod, n_entries: usize) -> bool {
        let after = self.after.take();
        let mut n_seen = 0;
        for (labels, crowd) in view.crowds.after(&pod.key.namespace, after.as_ref()) {
            n_seen += 1;
            if self.has(labels) {
                n_seen += self.add(view, pod, crowd);
            }
            if n_seen >= n_entries {
                self.after = Some(labels.clone());
                return false;
            }
        }
        true
    }

    fn has(&self, labels: &Labels) -> bool {
        has_all(labels, &self.services)
            && self
                .owner
                .as_ref()
                .is_none_or(|owner| owner.matches(|key| labels.get(key).map(String::as_str)))
    }

    /// Returns the number of entries.
    fn add(&mut self, view: &View, pod: &Pod, crowd: &Crowd) -> usize {
        let mut n_entries = crowd.zones.len();
        if self.first.is_empty() {
            self.first = crowd.nodes.clone();
        } else {
            n_entries += crowd.nodes.len();
            for (node, count) in &crowd.nodes {
                *self.others.entry(node.clone()).or_default() += count;
            }
        }
        if pod.spec.node_selector.is_empty() && pod.spec.node_affinity.is_none() {
            for (zone, count) in &crowd.zones {
                *self.zones.entry(zone.clone()).or_default() += count;
            }
            return n_entries;
        }
        // Nodes that the pod excludes do not count for their zones.
        for (name, count) in &crowd.nodes {
            let node = view.nodes.get(name).and_then(|info| info.node.as_deref());
            if let Some(node) = node.filter(|node| pod.spec.selects_node(name, &node.labels))
                && let Some(zone) = node.labels.get(ZONE)
            {
                *self.zones.entry(zone.as_str().into()).or_default() += count;
            }
        }
        n_entries + crowd.nodes.len()
    }
}

/// Whether labels have all entries of a selector.
fn has_all(labels: &Labels, selector: &Labels) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

/// The number of pods of the company on a node and in its zone, with weights that grow with the
/// numbers of nodes and zones.
pub(super) fn score(cycle: &Cycle, node: &Node) -> f64 {
    let Some(company) = &cycle.company else { return 0.0 };
    let of = |count: i64, n_domains: usize, skew: i64| {
        count as f64 * (n_domains as f64 + 2.0).ln() + (skew - 1) as f64
    };
    let mut score = 0.0;
    if node.labels.contains_key(HOSTNAME) {
        let count = company.first.get(&node.name).copied().unwrap_or_default()
            + company.others.get(&node.name).copied().unwrap_or_default();
        score += of(count, cycle.view.n_nodes, NODE_SKEW);
    }
    if let Some(zone) = node.labels.get(ZONE) {
        let count = company.zones.get(zone.as_str()).copied().unwrap_or_default();
        score += of(count, cycle.view.zones.len(), ZONE_SKEW);
    }
    score.round()
}
