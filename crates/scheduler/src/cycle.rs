//! One scheduling cycle: from a pod and a snapshot to a decision.
//!
//! # Theory
//!
//! A cycle is a pure state machine, which its caller advances in steps of bounded work:
//!
//! | phase | per step | then |
//! |---|---|---|
//! | scan | counts pods on nodes for affinity and spread, if the pod or any pod on a node has such rules | filter |
//! | filter | asks the filters about nodes, from where the previous cycle ended, until enough fit; on a node that fits, searches devices for the pod's claims | decision, or preemption if none fits |
//! | preemption | tries nodes without their less important pods | decision |
//!
//! Scores are computed when the filter phase ends. Of several best nodes, the generator of random
//! numbers chooses one.

use crate::node::{Node, NodeInfo};
use crate::plugins::claims::{self, Claims, DeviceSearch, Hold};
use crate::plugins::{
    self, Affinity, Company, CsiVolume, Exclusive, LateClaim, PLUGINS, Refusal, Spreading, change,
};
use crate::pod::Pod;
use crate::preemption::{Candidate, Preemption};
use crate::view::View;
use rand::Rng;
use rand::rngs::SmallRng;
use setpoint_object::taint::Taint;
use setpoint_runtime::Request;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// Nodes per step: with all filters about 2 µs each, so that a step takes well under a
/// millisecond.
const STEP_NODES: usize = 128;
/// Volumes that cost about as much to compare with a node as the filters.
const STEP_VOLUMES: usize = 32;
/// How much longer the filters take where they count the volumes of a node: some hundred of them,
/// with two look-ups each.
const COUNTING: usize = 16;
/// Pods that are counted per step: about 0.3 µs each.
const STEP_PODS: usize = 4096;
/// Steps of searches for devices per step: about 0.1 µs each.
const STEP_SEARCHES: u64 = 4096;
/// Nodes that preemption tries per step: each asks the filters once per pod on it.
const STEP_CANDIDATES: usize = 4;

/// The pod, the snapshot, and what plug-ins computed before they filter.
#[derive(Debug, Clone)]
pub(crate) struct Cycle {
    pub(crate) view: View,
    pub(crate) pod: Pod,
    pub(crate) affinity: Affinity,
    pub(crate) spreading: Spreading,
    /// The pods that it should be spread with if it has no constraints.
    pub(crate) company: Option<Company>,
    pub(crate) exclusive: Exclusive,
    /// The pod's claims that wait for their first consumer.
    pub(crate) late: Vec<LateClaim>,
    /// The volumes of CSI drivers among the pod's claims.
    pub(crate) csi: Vec<CsiVolume>,
    /// The pod's claims of devices.
    pub(crate) claims: Claims,
}

impl Cycle {
    /// Whether the pod tolerates a taint.
    pub(crate) fn tolerates(&self, taint: &Taint) -> bool {
        self.pod.spec.tolerations.iter().any(|toleration| toleration.tolerates(taint))
    }

    /// Counts a pod as present on a node, or as gone.
    pub(crate) fn count(&mut self, other: &Pod, node: &Node, sign: i64) {
        self.affinity.add_pod(&self.view, &self.pod, other, node, sign);
        self.spreading.add_pod(&self.pod, other, node, sign);
        self.exclusive.add_pod(&self.pod, other, sign);
    }

    /// Asks every filter about a node, with these pods on it. If preemption makes room there for
    /// other pods that are as important, the pod must fit with them and, because they may never
    /// come, without them. The error has the changes to wait for.
    pub(crate) fn filter(&mut self, node: &Node, info: &NodeInfo) -> Result<(), (Refusal, u8)> {
        if let Some(nominated) = self.view.nominated.get(&node.name).cloned() {
            let is_counted = |other: &&Arc<Pod>| {
                other.uid != self.pod.uid
                    && !info.pods.contains_key(&other.uid)
                    && other.spec.priority >= self.pod.spec.priority
            };
            let nominated: Vec<&Arc<Pod>> = nominated.iter().filter(is_counted).collect();
            if !nominated.is_empty() {
                let mut with = info.clone();
                for other in &nominated {
                    with.add(Arc::clone(other));
                    self.count(other, node, 1);
                }
                let result = plugins::filter(self, node, &with);
                for other in &nominated {
                    self.count(other, node, -1);
                }
                result?;
            }
        }
        plugins::filter(self, node, info)
    }

    /// Whether the filters have to count the volumes of nodes.
    fn counts_volumes(&self) -> bool {
        !self.csi.is_empty() && !self.view.volume_limits.is_empty()
    }
}

/// The end of a cycle.
#[derive(Debug, Clone)]
pub(crate) enum Verdict {
    /// The pod goes to this node.
    Place(Arc<str>),
    /// No node fits.
    Refuse(Box<Refused>),
}

/// Why no node fits, and what follows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Refused {
    /// As kube-scheduler words it; empty: nothing has to be said.
    pub(crate) message: String,
    /// Something is wrong: the pod is not merely unschedulable.
    pub(crate) is_fault: bool,
    /// The pod is not ready to be placed, and need not wait once it is.
    pub(crate) is_early: bool,
    /// The changes after which another cycle may end differently.
    pub(crate) awaits: u8,
    /// Pods that should leave a node, so that the pod fits there.
    pub(crate) preempted: Option<Candidate>,
    /// An earlier nomination no longer helps.
    pub(crate) clears_nomination: bool,
    /// A claim whose devices are of no use to the pod.
    pub(crate) deallocates: Option<Request>,
}

/// A cycle in progress.
#[derive(Debug)]
pub(crate) struct Decision {
    cycle: Cycle,
    /// The company has not been looked for.
    is_new: bool,
    /// The company, until all of it is counted.
    uncounted: Option<Company>,
    phase: Phase,
    cursor: Cursor,
    feasible: Vec<Arc<Node>>,
    wanted: usize,
    n_seen: usize,
    reasons: BTreeMap<Cow<'static, str>, usize>,
    awaits: u8,
    /// Nodes that might fit if pods left them.
    resolvable: Vec<Arc<Node>>,
    /// The search for devices on the node that is examined.
    search: Option<DeviceSearch>,
}

#[derive(Debug)]
enum Phase {
    Scan,
    Filter,
    Preempt(Preemption),
}

impl Decision {
    /// Starts a cycle, which examines nodes from `first` on.
    pub(crate) fn new(view: View, pod: Pod, first: Arc<str>) -> Self {
        let exclusive = Exclusive::new(&view, &pod);
        let has_rules = !pod.spec.spread.is_empty()
            || view.n_affine > 0
            || has_terms(&pod)
            || !exclusive.is_empty();
        let wanted = feasible_wanted(view.n_nodes);
        let (affinity, spreading) = (Affinity::default(), Spreading::new(&pod));
        Self {
            cycle: Cycle {
                view,
                pod,
                affinity,
                spreading,
                company: None,
                exclusive,
                late: Vec::new(),
                csi: Vec::new(),
                claims: Claims::default(),
            },
            is_new: true,
            uncounted: None,
            phase: if has_rules { Phase::Scan } else { Phase::Filter },
            cursor: Cursor::new(first),
            feasible: Vec::new(),
            wanted,
            n_seen: 0,
            reasons: BTreeMap::new(),
            awaits: 0,
            resolvable: Vec::new(),
            search: None,
        }
    }

    /// The node that the next cycle should begin at.
    pub(crate) fn next_first(&self) -> Arc<str> {
        self.cursor.last.clone().unwrap_or_default()
    }

    /// The pod and the snapshot.
    pub(crate) fn into_cycle(self) -> Cycle {
        self.cycle
    }

    /// Whether the next piece of work takes long, so that it needs a thread of its own: an
    /// expression about devices.
    pub(crate) fn is_costly(&self) -> bool {
        self.search.as_ref().is_some_and(DeviceSearch::is_costly)
    }

    /// Does a bounded piece of work; returns the decision when there is one.
    pub(crate) fn step(&mut self, rng: &mut SmallRng) -> Option<Verdict> {
        if !self.count_company() {
            return None;
        }
        match &self.phase {
            Phase::Scan => {
                self.scan();
                None
            }
            Phase::Filter => self.filter(rng),
            Phase::Preempt(_) => self.try_candidates(rng),
        }
    }

    /// Counts some of the pods that the pod should be spread with. Returns whether all are counted.
    fn count_company(&mut self) -> bool {
        let Cycle { view, pod, .. } = &self.cycle;
        if std::mem::take(&mut self.is_new) {
            self.uncounted = Company::new(view, pod);
        }
        if let Some(mut company) = self.uncounted.take() {
            if !company.count(view, pod, STEP_PODS) {
                self.uncounted = Some(company);
                return false;
            }
            self.cycle.company = Some(company);
        }
        true
    }

    /// Tries some nodes without their less important pods.
    fn try_candidates(&mut self, rng: &mut SmallRng) -> Option<Verdict> {
        let n = if self.cycle.counts_volumes() { 1 } else { STEP_CANDIDATES };
        let mut steps = STEP_SEARCHES;
        for _ in 0..n {
            let Phase::Preempt(preemption) = &self.phase else { return None };
            if let Some(node) = preemption.next_node(&self.cycle).cloned() {
                match self.search(&node, &mut steps, rng) {
                    Ok(true) => {}
                    Ok(false) => return None,
                    Err(fault) => return Some(faulty(&fault)),
                }
            }
            let Phase::Preempt(preemption) = &mut self.phase else { return None };
            if !preemption.try_next(&self.cycle) {
                let (tried, found) = preemption.finish();
                return Some(self.refuse(tried, found));
            }
        }
        None
    }

    /// Searches devices on a node, if the pod's claims need some. Returns whether that is done.
    fn search(
        &mut self,
        node: &Arc<Node>,
        steps: &mut u64,
        rng: &mut SmallRng,
    ) -> Result<bool, String> {
        let Cycle { view, claims, .. } = &mut self.cycle;
        if self.search.is_none() {
            self.search = claims.search(view, node);
        }
        let Some(search) = &mut self.search else { return Ok(true) };
        let is_over = search.run(claims, steps, rng)?;
        if is_over {
            self.search = None;
        }
        Ok(is_over)
    }

    fn scan(&mut self) {
        let all = has_terms(&self.cycle.pod);
        let (mut n_pods, view) = (0, self.cycle.view.clone());
        while n_pods < STEP_PODS {
            let Some((node, info)) = self.cursor.next(&view) else {
                self.cursor.restart();
                self.phase = Phase::Filter;
                return;
            };
            n_pods += 1 + info.pods.len();
            let Cycle { pod, affinity, spreading, exclusive, .. } = &mut self.cycle;
            affinity.add_node(&view, pod, node, info, all);
            spreading.add_node(pod, node, info);
            exclusive.add_node(pod, info);
        }
    }

    /// What holds for all nodes: the claims of volumes and of devices.
    fn check(&mut self) -> Result<(), Refused> {
        let held = match claims::check(&self.cycle.view, &self.cycle.pod) {
            Ok(claims) => {
                self.cycle.claims = claims;
                None
            }
            Err(hold) => Some(hold),
        };
        let n = self.cycle.view.n_nodes;
        let awaits = change::CLASS | change::CLAIM;
        let everywhere =
            |why: String, rest: &str| format!("0/{n} nodes are available: {why}. {rest}");
        let unhelpful = format!("{NO_CLAIMS}, {}", not_helpful(n));
        if held == Some(Hold::Unmade) {
            return Err(Refused { awaits, is_early: true, ..Refused::default() });
        }
        if n == 0 {
            let message = "no nodes available to schedule pods".to_owned();
            return Err(Refused { message, awaits: change::NODE, ..Refused::default() });
        }
        if let Some(Hold::Missing(why)) = held {
            let message = everywhere(why, &unhelpful);
            return Err(Refused { message, awaits, is_early: true, ..Refused::default() });
        }
        match plugins::check_claims(&self.cycle.view, &self.cycle.pod) {
            Ok(late) => {
                let Cycle { view, pod, .. } = &self.cycle;
                self.cycle.csi = plugins::csi_volumes(view, pod);
                self.cycle.late = late;
            }
            Err(why) => {
                // kube-scheduler does not come to the claims of devices then, and says that.
                let message = everywhere(why, "not found");
                return Err(Refused { message, awaits: change::VOLUME, ..Refused::default() });
            }
        }
        match held {
            Some(Hold::Wait(why)) => {
                let message = everywhere(why, &unhelpful);
                Err(Refused { message, awaits, ..Refused::default() })
            }
            _ => Ok(()),
        }
    }

    fn filter(&mut self, rng: &mut SmallRng) -> Option<Verdict> {
        if self.n_seen == 0
            && let Err(refused) = self.check()
        {
            return Some(Verdict::Refuse(Box::new(refused)));
        }
        let view = self.cycle.view.clone();
        let mut n_nodes = STEP_NODES / (1 + plugins::comparisons(&self.cycle.late) / STEP_VOLUMES);
        if self.cycle.counts_volumes() {
            n_nodes /= COUNTING;
        }
        let mut steps = STEP_SEARCHES;
        for _ in 0..n_nodes.max(1) {
            if self.feasible.len() >= self.wanted {
                return Some(self.choose(rng));
            }
            // The node whose search goes on, or the next one.
            let searched = self.search.as_ref().map(|search| search.node().clone());
            let found = match &searched {
                Some(node) => view.nodes.get(&node.name).map(|info| (node, info)),
                None => {
                    self.n_seen += 1;
                    self.cursor.next(&view)
                }
            };
            let Some((node, info)) = found else {
                return match self.feasible.is_empty() {
                    true => self.preempt(),
                    false => Some(self.choose(rng)),
                };
            };
            match self.examine(node, info, &mut steps, rng) {
                Ok(true) => {}
                Ok(false) => return None,
                Err(fault) => return Some(faulty(&fault)),
            }
        }
        None
    }

    /// Asks the filters about a node, and searches devices there if they accept it. Returns whether
    /// that is done.
    fn examine(
        &mut self,
        node: &Arc<Node>,
        info: &NodeInfo,
        steps: &mut u64,
        rng: &mut SmallRng,
    ) -> Result<bool, String> {
        let mut result = self.cycle.filter(node, info);
        if result.is_ok() && self.cycle.claims.must_search(node) {
            if !self.search(node, steps, rng)? {
                return Ok(false);
            }
            result = self.cycle.filter(node, info);
        }
        match result {
            Ok(()) => self.feasible.push(node.clone()),
            Err((refusal, awaits)) => {
                self.awaits |= awaits;
                self.cycle.claims.note_refused(&refusal, node);
                self.note(refusal, node);
            }
        }
        Ok(true)
    }

    fn note(&mut self, refusal: Refusal, node: &Arc<Node>) {
        if refusal.is_resolvable {
            self.resolvable.push(node.clone());
        }
        for reason in refusal.reasons {
            *self.reasons.entry(reason).or_default() += 1;
        }
    }

    /// The best node that fits.
    fn choose(&self, rng: &mut SmallRng) -> Verdict {
        let (cycle, nodes) = (&self.cycle, &self.feasible);
        // A nominated node goes first: room was made there.
        if let Some(node) = nodes.iter().find(|node| node.name == cycle.pod.nominated) {
            return Verdict::Place(node.name.clone());
        }
        let mut totals = vec![0.0; nodes.len()];
        let infos: Vec<&Arc<NodeInfo>> =
            nodes.iter().filter_map(|node| cycle.view.nodes.get(&node.name)).collect();
        let scores = PLUGINS.iter().filter_map(|plugin| plugin.score);
        for (weight, score, normalize) in scores.filter(|_| nodes.len() > 1) {
            let each = nodes.iter().zip(&infos);
            let mut of_nodes: Vec<f64> =
                each.map(|(node, info)| score(cycle, node, info)).collect();
            normalize.apply(&mut of_nodes);
            for (total, score) in totals.iter_mut().zip(of_nodes) {
                // Whole points, as in kube-scheduler, so that rounding makes equals.
                *total += score.floor() * weight as f64;
            }
        }
        let best = totals.iter().copied().fold(f64::MIN, f64::max);
        let equals: Vec<usize> = (0..nodes.len()).filter(|idx| totals[*idx] >= best).collect();
        Verdict::Place(nodes[equals[rng.random_range(0..equals.len())]].name.clone())
    }

    fn preempt(&mut self) -> Option<Verdict> {
        let (pod, view) = (&self.cycle.pod, &self.cycle.view);
        if pod.spec.never_preempts {
            return Some(self.refuse("not eligible due to preemptionPolicy=Never.".into(), None));
        }
        // A node that no longer fits even without its pods is not waited for.
        let may_fit = self.resolvable.iter().any(|node| node.name == pod.nominated);
        let nominated = view.nodes.get(&pod.nominated).filter(|_| may_fit);
        let is_waited_for = nominated.is_some_and(|info| {
            let lower = |other: &&Arc<Pod>| other.spec.priority < pod.spec.priority;
            info.pods.values().filter(lower).any(|other| other.is_deleting)
        });
        if is_waited_for {
            let why = "not eligible due to a terminating pod on the nominated node.";
            return Some(self.refuse(why.into(), None));
        }
        let nodes = std::mem::take(&mut self.resolvable);
        self.phase = Phase::Preempt(Preemption::new(view.n_nodes, nodes));
        None
    }

    /// The refusal, with what preemption found or why it did not help.
    fn refuse(&self, tried: String, preempted: Option<Candidate>) -> Verdict {
        let n = self.cycle.view.n_nodes;
        let mut message = format!("0/{n} nodes are available: {}.", histogram(&self.reasons));
        let deallocates = self.cycle.claims.misplaced(&self.cycle.pod);
        if preempted.is_none() {
            let claims = match deallocates {
                _ if self.cycle.claims.is_empty() => NO_CLAIMS,
                Some(_) => "deallocation of ResourceClaim completed",
                None => "still not schedulable",
            };
            message = format!("{message} {claims}, preemption: {tried}");
        }
        let is_waiting = tried.contains("terminating pod");
        Verdict::Refuse(Box::new(Refused {
            message,
            // Room on a node with nominated pods appears when one of those is gone.
            awaits: self.awaits,
            clears_nomination: preempted.is_none()
                && !is_waiting
                && !self.cycle.pod.nominated.is_empty(),
            preempted,
            deallocates,
            ..Refused::default()
        }))
    }
}

/// What kube-scheduler says after the reasons if a pod's claims hold no devices back.
const NO_CLAIMS: &str = "no new claims to deallocate";

/// The refusal of a pod whose devices cannot be searched.
fn faulty(fault: &str) -> Verdict {
    Verdict::Refuse(Box::new(Refused {
        message: format!("running \"DynamicResources\" filter plugin: {fault}"),
        is_fault: true,
        awaits: change::DEVICES,
        ..Refused::default()
    }))
}

/// Whether a pod has rules about other pods.
fn has_terms(pod: &Pod) -> bool {
    crate::node::is_affine(pod)
}

/// The message of preemption without candidates.
pub(crate) fn not_helpful(n_nodes: usize) -> String {
    format!(
        "preemption: 0/{n_nodes} nodes are available: {n_nodes} Preemption is not helpful for scheduling."
    )
}

/// `2 Insufficient cpu, 1 Too many pods`, sorted as texts.
pub(crate) fn histogram(reasons: &BTreeMap<Cow<'static, str>, usize>) -> String {
    let mut texts: Vec<String> =
        reasons.iter().map(|(reason, n)| format!("{n} {reason}")).collect();
    texts.sort();
    texts.join(", ")
}

/// How many nodes that fit are enough: all of a hundred; of more, a part that shrinks from 50 % to
/// 5 %, but at least a hundred. As kube-scheduler.
fn feasible_wanted(n_nodes: usize) -> usize {
    const ENOUGH: usize = 100;
    let percent = 50_usize.saturating_sub(n_nodes / 125).max(5);
    (n_nodes * percent / 100).max(ENOUGH)
}

/// A position among the nodes, which goes round once.
#[derive(Debug)]
struct Cursor {
    first: Arc<str>,
    last: Option<Arc<str>>,
    has_wrapped: bool,
}

impl Cursor {
    /// Starts behind `first`.
    fn new(first: Arc<str>) -> Self {
        Self { first, last: None, has_wrapped: false }
    }

    fn restart(&mut self) {
        (self.last, self.has_wrapped) = (None, false);
    }

    /// The next node that exists.
    fn next<'a>(&mut self, view: &'a View) -> Option<(&'a Arc<Node>, &'a Arc<NodeInfo>)> {
        loop {
            let after = self.last.as_ref().unwrap_or(&self.first);
            let start = match self.has_wrapped && self.last.is_none() {
                true => Bound::Unbounded,
                false => Bound::Excluded(after.clone()),
            };
            let next = view.nodes.range((start, Bound::Unbounded)).next();
            match next.filter(|(name, _)| !self.has_wrapped || **name <= self.first) {
                Some((name, info)) => {
                    self.last = Some(name.clone());
                    if let Some(node) = &info.node {
                        return Some((node, info));
                    }
                }
                None if self.has_wrapped => return None,
                None => (self.has_wrapped, self.last) = (true, None),
            }
        }
    }
}

#[cfg(test)]
mod tests;
