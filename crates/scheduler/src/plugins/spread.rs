//! Topology spread: pods of one kind in similar numbers per zone, or whatever a label names.

use super::{Refusal, company};
use crate::cycle::Cycle;
use crate::labels::HOSTNAME;
use crate::node::{Node, NodeInfo};
use crate::pod::{Pod, Spread};
use std::collections::BTreeMap;

const REFUSED: &str = "node(s) didn't match pod topology spread constraints";
const NO_LABEL: &str =
    "node(s) didn't match pod topology spread constraints (missing required label)";

/// The matching pods per topology value, for each constraint of the pod.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spreading {
    counts: Vec<BTreeMap<String, i64>>,
}

impl Spreading {
    pub(crate) fn new(pod: &Pod) -> Self {
        Self { counts: vec![BTreeMap::new(); pod.spec.spread.len()] }
    }

    /// Counts the pods of one node.
    pub(crate) fn add_node(&mut self, pod: &Pod, node: &Node, info: &NodeInfo) {
        for (idx, constraint) in pod.spec.spread.iter().enumerate() {
            if !includes(pod, constraint, node) {
                continue;
            }
            let value = &node.labels[&constraint.topology_key];
            let matching = info.pods.values().filter(|other| counts(pod, constraint, other));
            let matching = i64::try_from(matching.count()).unwrap_or(i64::MAX);
            // An entry of zero is a domain without pods.
            *self.counts[idx].entry(value.clone()).or_default() += matching;
        }
    }

    /// Adds or removes one pod on a node.
    pub(crate) fn add_pod(&mut self, pod: &Pod, other: &Pod, node: &Node, sign: i64) {
        for (idx, constraint) in pod.spec.spread.iter().enumerate() {
            if includes(pod, constraint, node) && counts(pod, constraint, other) {
                let value = &node.labels[&constraint.topology_key];
                *self.counts[idx].entry(value.clone()).or_default() += sign;
            }
        }
    }
}

/// Whether pods on a node count for a constraint.
fn includes(pod: &Pod, constraint: &Spread, node: &Node) -> bool {
    let is_same = |other: &&Spread| other.is_required == constraint.is_required;
    let mut keys = pod.spec.spread.iter().filter(is_same).map(|other| &other.topology_key);
    keys.all(|key| node.labels.contains_key(key))
        && (!constraint.honors_affinity || pod.spec.selects_node(&node.name, &node.labels))
        && (!constraint.honors_taints || {
            let tolerated = |taint| pod.spec.tolerations.iter().any(|t| t.tolerates(taint));
            node.taints.iter().all(|taint| !taint.forbids() || tolerated(taint))
        })
}

fn counts(pod: &Pod, constraint: &Spread, other: &Pod) -> bool {
    !other.is_deleting && other.key.namespace == pod.key.namespace && constraint.counts(other)
}

pub(super) fn filter(cycle: &Cycle, node: &Node, _: &NodeInfo) -> Result<(), Refusal> {
    let pod = &cycle.pod;
    for (constraint, counts) in pod.spec.spread.iter().zip(&cycle.spreading.counts) {
        if !constraint.is_required {
            continue;
        }
        let Some(value) = node.labels.get(&constraint.topology_key) else {
            return Err(Refusal::lasting(NO_LABEL));
        };
        let least = match counts.len() < constraint.min_domains {
            // Domains that do not exist yet have no pods.
            true => 0,
            false => counts.values().copied().min().unwrap_or_default(),
        };
        let own = i64::from(constraint.counts(pod));
        let skew = counts.get(value).copied().unwrap_or_default() + own - least;
        if skew > constraint.max_skew {
            return Err(Refusal::resolvable(REFUSED));
        }
    }
    Ok(())
}

/// The number of matching pods, with a weight that grows with the number of domains; no number
/// for a node that lacks a label of a preference, which is the worst.
pub(super) fn score(cycle: &Cycle, node: &Node, info: &NodeInfo) -> f64 {
    if cycle.pod.spec.spread.is_empty() {
        return company::score(cycle, node);
    }
    let mut score = 0.0;
    for (constraint, domains) in cycle.pod.spec.spread.iter().zip(&cycle.spreading.counts) {
        if constraint.is_required {
            continue;
        }
        let Some(value) = node.labels.get(&constraint.topology_key) else { return f64::NAN };
        let matching = match constraint.topology_key == HOSTNAME {
            true => {
                info.pods.values().filter(|other| counts(&cycle.pod, constraint, other)).count()
                    as i64
            }
            false => domains.get(value).copied().unwrap_or_default(),
        };
        let weight = (domains.len() as f64 + 2.0).ln();
        score += matching as f64 * weight + (constraint.max_skew - 1) as f64;
    }
    score.round()
}
