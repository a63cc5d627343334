//! Affinity between pods, both ways: what the pod asks for, and what pods on nodes ask for.

use super::Refusal;
use crate::cycle::Cycle;
use crate::node::{Node, NodeInfo, is_affine};
use crate::pod::{Pod, PodTerm};
use crate::view::View;
use std::collections::BTreeMap;

const OWN_AFFINITY: &str = "node(s) didn't match pod affinity rules";
const OWN_ANTI_AFFINITY: &str = "node(s) didn't match pod anti-affinity rules";
const OTHERS: &str = "node(s) didn't satisfy existing pods anti-affinity rules";
/// What a required term of another pod adds to the score, as kube-scheduler's
/// `hardPodAffinityWeight`.
const REQUIRED_WEIGHT: i64 = 1;

/// Numbers by a label's key and value.
type Counts = BTreeMap<String, BTreeMap<String, i64>>;

/// What pods on nodes mean for a pod.
#[derive(Debug, Clone, Default)]
pub(crate) struct Affinity {
    /// Pods that match all required terms of the pod, per topology value.
    wanted: Counts,
    /// Pods that match a required anti-affinity term.
    unwanted: Counts,
    /// Pods whose anti-affinity excludes the pod.
    excluded: Counts,
    /// Sum of the weights of preferred terms.
    preferred: Counts,
}

impl Affinity {
    /// Counts the pods of one node. With `all` false, only those with terms of their own.
    pub(crate) fn add_node(
        &mut self,
        view: &View,
        pod: &Pod,
        node: &Node,
        info: &NodeInfo,
        all: bool,
    ) {
        if !all && info.n_affine == 0 {
            return;
        }
        for other in info.pods.values().filter(|other| all || is_affine(other)) {
            self.add_pod(view, pod, other, node, 1);
        }
    }

    /// Adds or removes one pod on a node.
    pub(crate) fn add_pod(&mut self, view: &View, pod: &Pod, other: &Pod, node: &Node, sign: i64) {
        let labels_of = |namespace: &str| view.labels_of(namespace);
        let add = |counts: &mut Counts, term: &PodTerm, n: i64| {
            if let Some(value) = node.labels.get(&term.topology_key) {
                let values = counts.entry(term.topology_key.clone()).or_default();
                let count = values.entry(value.clone()).or_default();
                *count += n * sign;
                if *count == 0 {
                    values.remove(value);
                }
            }
        };
        let spec = &pod.spec;
        if !spec.affinity.is_empty()
            && spec.affinity.iter().all(|term| term.matches(other, labels_of))
        {
            spec.affinity.iter().for_each(|term| add(&mut self.wanted, term, 1));
        }
        for term in spec.anti_affinity.iter().filter(|term| term.matches(other, labels_of)) {
            add(&mut self.unwanted, term, 1);
        }
        for (weight, term) in &spec.preferred_pods {
            if term.matches(other, labels_of) {
                add(&mut self.preferred, term, *weight);
            }
        }
        let theirs = &other.spec;
        for term in theirs.anti_affinity.iter().filter(|term| term.matches(pod, labels_of)) {
            add(&mut self.excluded, term, 1);
        }
        for term in theirs.affinity.iter().filter(|term| term.matches(pod, labels_of)) {
            add(&mut self.preferred, term, REQUIRED_WEIGHT);
        }
        for (weight, term) in &theirs.preferred_pods {
            if term.matches(pod, labels_of) {
                add(&mut self.preferred, term, *weight);
            }
        }
    }
}

/// The number at a node's label.
fn at(counts: &Counts, node: &Node, key: &str) -> i64 {
    let value = node.labels.get(key).and_then(|value| counts.get(key)?.get(value));
    value.copied().unwrap_or_default()
}

pub(super) fn filter(cycle: &Cycle, node: &Node, _: &NodeInfo) -> Result<(), Refusal> {
    let (spec, counts) = (&cycle.pod.spec, &cycle.affinity);
    let has_label = |term: &PodTerm| node.labels.contains_key(&term.topology_key);
    if !spec.affinity.iter().all(has_label) {
        return Err(Refusal::lasting(OWN_AFFINITY));
    }
    let is_wanted = |term: &PodTerm| at(&counts.wanted, node, &term.topology_key) > 0;
    if !spec.affinity.iter().all(is_wanted) {
        // The first pod of a group with affinity to itself may be placed on any node.
        let labels_of = |namespace: &str| cycle.view.labels_of(namespace);
        let is_first = counts.wanted.values().all(BTreeMap::is_empty)
            && spec.affinity.iter().all(|term| term.matches(&cycle.pod, labels_of));
        if !is_first {
            return Err(Refusal::lasting(OWN_AFFINITY));
        }
    }
    let is_unwanted = |term: &PodTerm| at(&counts.unwanted, node, &term.topology_key) > 0;
    if spec.anti_affinity.iter().any(is_unwanted) {
        return Err(Refusal::resolvable(OWN_ANTI_AFFINITY));
    }
    if counts.excluded.keys().any(|key| at(&counts.excluded, node, key) > 0) {
        return Err(Refusal::resolvable(OTHERS));
    }
    Ok(())
}

pub(super) fn score(cycle: &Cycle, node: &Node, _: &NodeInfo) -> f64 {
    let preferred = &cycle.affinity.preferred;
    preferred.keys().map(|key| at(preferred, node, key) as f64).sum()
}
