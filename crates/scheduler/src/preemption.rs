//! Preemption: which less important pods leave a node so that a pod fits.
//!
//! # Theory
//!
//! A node is tried in this order: without all its pods of lower priority the pod must fit. Then
//! they come back one by one as long as the pod still fits: first those whose disruption budget
//! would be broken, and of each half the most important first. What does not come back is the
//! victims. Of the nodes tried, the best is the first by: fewest broken budgets, lowest priority of
//! the most important victim, smallest sum of priorities, fewest victims, latest start of the most
//! important victim.

use crate::cycle::{Cycle, histogram};
use crate::node::{Node, NodeInfo};
use crate::pod::Pod;
use setpoint_object::time::Timestamp;
use setpoint_runtime::Request;
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// At least so many nodes are tried, if there are as many; or a tenth of all.
const CANDIDATES_MIN: usize = 100;

/// A node and the pods that should leave it.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    pub(crate) node: Arc<str>,
    pub(crate) victims: Vec<Arc<Pod>>,
    n_broken_budgets: usize,
}

impl Candidate {
    /// A node that a pod waits for, with nobody to leave it.
    pub(crate) fn without_victims(node: Arc<str>) -> Self {
        Self { node, victims: Vec::new(), n_broken_budgets: 0 }
    }

    /// Smaller is better.
    fn rank(&self) -> (usize, i32, i64, usize, Reverse<Option<Timestamp>>) {
        let highest = self.victims.iter().map(|pod| pod.spec.priority).max().unwrap_or(i32::MIN);
        // Shifted, so that more victims of negative priority do not make a smaller sum.
        let shifted = |pod: &Arc<Pod>| i64::from(pod.spec.priority) + i64::from(i32::MAX) + 1;
        let starts = self.victims.iter().filter(|pod| pod.spec.priority == highest);
        let earliest = starts.filter_map(|pod| pod.started).min();
        let sum = self.victims.iter().map(shifted).sum();
        (self.n_broken_budgets, highest, sum, self.victims.len(), Reverse(earliest))
    }
}

/// The search for a node.
#[derive(Debug)]
pub(crate) struct Preemption {
    nodes: std::vec::IntoIter<Arc<Node>>,
    n_nodes: usize,
    candidates_max: usize,
    n_found: usize,
    best: Option<Candidate>,
    reasons: BTreeMap<Cow<'static, str>, usize>,
}

impl Preemption {
    /// Will try `nodes`, out of `n_nodes` in all.
    pub(crate) fn new(n_nodes: usize, nodes: Vec<Arc<Node>>) -> Self {
        let mut reasons = BTreeMap::new();
        let n_hopeless = n_nodes.saturating_sub(nodes.len());
        if n_hopeless > 0 {
            reasons.insert("Preemption is not helpful for scheduling".into(), n_hopeless);
        }
        Self {
            candidates_max: (n_nodes / 10).max(CANDIDATES_MIN),
            nodes: nodes.into_iter(),
            n_nodes,
            n_found: 0,
            best: None,
            reasons,
        }
    }

    /// The node that is tried next, if one of its pods could be a victim.
    pub(crate) fn next_node(&self, cycle: &Cycle) -> Option<&Arc<Node>> {
        let node = self.nodes.as_slice().first()?;
        let info = cycle.view.nodes.get(&node.name)?;
        let is_less = |pod: &Arc<Pod>| pod.spec.priority < cycle.pod.spec.priority;
        info.pods.values().any(is_less).then_some(node)
    }

    /// Tries one node; false if there are no more, or enough were found.
    pub(crate) fn try_next(&mut self, cycle: &Cycle) -> bool {
        if self.n_found >= self.candidates_max {
            return false;
        }
        let Some(node) = self.nodes.next() else { return false };
        match candidate(cycle, &node) {
            Ok(candidate) => {
                self.n_found += 1;
                let is_better =
                    self.best.as_ref().is_none_or(|best| candidate.rank() < best.rank());
                if is_better {
                    self.best = Some(candidate);
                }
            }
            Err(reasons) => {
                for reason in reasons {
                    *self.reasons.entry(reason).or_default() += 1;
                }
            }
        }
        true
    }

    /// What was found, and the message if nothing was.
    pub(crate) fn finish(&mut self) -> (String, Option<Candidate>) {
        let (n, reasons) = (self.n_nodes, histogram(&self.reasons));
        (format!("0/{n} nodes are available: {reasons}."), self.best.take())
    }
}

/// The smallest set of victims on a node; otherwise the reasons.
fn candidate(cycle: &Cycle, node: &Arc<Node>) -> Result<Candidate, Vec<Cow<'static, str>>> {
    let no_victims = || vec![Cow::Borrowed("No preemption victims found for incoming pod")];
    let info = cycle.view.nodes.get(&node.name).ok_or_else(no_victims)?;
    let priority = cycle.pod.spec.priority;
    let mut less: Vec<Arc<Pod>> =
        info.pods.values().filter(|pod| pod.spec.priority < priority).cloned().collect();
    if less.is_empty() {
        return Err(no_victims());
    }
    let mut cycle = cycle.clone();
    let mut info = NodeInfo::clone(info);
    for pod in &less {
        info.remove(&pod.uid);
        cycle.count(pod, node, -1);
    }
    if let Err((refusal, _)) = cycle.filter(node, &info) {
        return Err(refusal.reasons.into_vec());
    }
    // The most important first; of equals, the one that has run longest.
    less.sort_by_key(|pod| (Reverse(pod.spec.priority), pod.started, pod.uid.clone()));
    let (broken, intact) = by_budget(&cycle, less);
    let (mut victims, mut n_broken_budgets) = (Vec::new(), 0);
    for (pod, breaks) in
        broken.into_iter().map(|pod| (pod, true)).chain(intact.into_iter().map(|pod| (pod, false)))
    {
        info.add(pod.clone());
        cycle.count(&pod, node, 1);
        if cycle.filter(node, &info).is_err() {
            info.remove(&pod.uid);
            cycle.count(&pod, node, -1);
            n_broken_budgets += usize::from(breaks);
            victims.push(pod);
        }
    }
    if victims.is_empty() {
        return Err(no_victims());
    }
    Ok(Candidate { node: node.name.clone(), victims, n_broken_budgets })
}

/// Divides pods by whether their removal would break a disruption budget.
fn by_budget(cycle: &Cycle, pods: Vec<Arc<Pod>>) -> (Vec<Arc<Pod>>, Vec<Arc<Pod>>) {
    let mut allowed: BTreeMap<&Request, i64> = BTreeMap::new();
    pods.into_iter().partition(|pod| {
        let mut breaks = false;
        let here = cycle.view.budgets.iter().filter(|(key, _)| key.namespace == pod.key.namespace);
        for (key, budget) in here.filter(|(_, budget)| budget.covers(pod)) {
            let left = allowed.entry(key).or_insert(budget.allowed);
            *left -= 1;
            breaks |= *left < 0;
        }
        breaks
    })
}
