//! One scheduling cycle about the pods of a group that wait.
//!
//! # Theory
//!
//! The pods are tried one after the other, each in a [`Decision`] of its own, on one snapshot of
//! the cluster that gets each pod that was placed, with the devices of its claims, which those
//! after it may share. A pod that preemption would make room for is on its node for those after it,
//! too. If enough pods of the group have a node then, those that have one are bound; if room must
//! be made for one of them, all wait for that; if too few have one, none is bound, nobody leaves,
//! and each learns why.

use crate::cycle::{Cycle, Decision, Refused, Verdict};
use crate::group::GroupCondition;
use crate::placing::place_in;
use crate::plugins::{Affinity, Spreading};
use crate::pod::Pod;
use crate::preemption::Candidate;
use crate::view::View;
use rand::rngs::SmallRng;
use setpoint_runtime::Request;
use std::sync::Arc;

/// What kube-scheduler says of a group that cannot be placed.
const UNSCHEDULABLE: &str = "pod group is unschedulable";
/// What it adds for pods that fit while others of their gang do not.
const TOO_FEW: &str = "waiting for minCount pods from a gang to be scheduled, one or more plugins asked to wait and no plugin rejected pod";
/// What it adds while room is made.
const PREEMPTING: &str = "pod group is waiting for preemption to complete";

/// What a cycle about a group starts from.
#[derive(Debug)]
pub(crate) struct Begun {
    /// The pods that wait, in the order in which they are tried.
    pub(crate) pods: Vec<Pod>,
    /// How many have a place already.
    pub(crate) n_placed: usize,
    /// How many must have one.
    pub(crate) quorum: usize,
    /// The claims of pods that have a place and are not bound yet: their devices may be shared.
    pub(crate) claims: Vec<Request>,
}

/// A pod, and the node that was chosen for it.
#[derive(Debug)]
pub(crate) struct Place {
    /// The cycle, without what it computed from other nodes.
    pub(crate) cycle: Box<Cycle>,
    pub(crate) node: Arc<str>,
}

/// The end of a cycle about a group.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The pods that are to be bound.
    pub(crate) places: Vec<Place>,
    /// Those that go on waiting.
    pub(crate) refused: Vec<(Pod, Refused)>,
    pub(crate) condition: GroupCondition,
}

/// What a pod of the group got.
#[derive(Debug)]
enum Outcome {
    Place(Place),
    Refuse(Pod, Box<Refused>),
}

/// A cycle about a group, in progress.
#[derive(Debug)]
pub(crate) struct GroupDecision {
    /// The cluster with the pods that have been placed.
    view: View,
    pods: std::vec::IntoIter<Pod>,
    current: Option<Box<Decision>>,
    /// Where the next cycle begins among the nodes.
    first: Arc<str>,
    outcomes: Vec<Outcome>,
    n_placed: usize,
    quorum: usize,
    has_placed: bool,
    /// Room must be made for a pod.
    must_preempt: bool,
    fault: Option<String>,
}

impl GroupDecision {
    /// Starts a cycle, which examines nodes from `first` on.
    pub(crate) fn new(mut view: View, begun: Begun, first: Arc<str>) -> Self {
        let Begun { pods, n_placed, quorum, claims } = begun;
        view.inventory.share(&claims);
        Self {
            view,
            outcomes: Vec::with_capacity(pods.len()),
            pods: pods.into_iter(),
            current: None,
            first,
            n_placed,
            quorum,
            has_placed: false,
            must_preempt: false,
            fault: None,
        }
    }

    /// The node that the next cycle should begin at.
    pub(crate) fn next_first(&self) -> Arc<str> {
        self.first.clone()
    }

    /// Whether the next piece of work takes long, so that it needs a thread of its own.
    pub(crate) fn is_costly(&self) -> bool {
        self.current.as_ref().is_some_and(|decision| decision.is_costly())
    }

    /// Does a bounded piece of work. Returns whether the cycle is over.
    pub(crate) fn step(&mut self, rng: &mut SmallRng) -> bool {
        let Some(decision) = &mut self.current else {
            let Some(pod) = self.pods.next().filter(|_| self.fault.is_none()) else { return true };
            let decision = Decision::new(self.view.clone(), pod, self.first.clone());
            self.current = Some(Box::new(decision));
            return false;
        };
        if let Some(verdict) = decision.step(rng)
            && let Some(decision) = self.current.take()
        {
            self.first = decision.next_first();
            self.take_in(decision.into_cycle(), verdict);
        }
        false
    }

    fn take_in(&mut self, mut cycle: Cycle, verdict: Verdict) {
        let outcome = match verdict {
            Verdict::Place(node) => {
                self.view.withdraw(&cycle.pod);
                // It was found to fit, and nothing has changed in this snapshot.
                if let Some(binding) = place_in(&mut self.view, &cycle, &node, false) {
                    let claims = binding.grants.iter().map(|grant| &grant.claim);
                    self.view.inventory.share(claims);
                    self.n_placed += 1;
                    self.has_placed = true;
                }
                (cycle.affinity, cycle.company) = (Affinity::default(), None);
                cycle.spreading = Spreading::default();
                cycle.claims.keep_only(&node);
                Outcome::Place(Place { cycle: Box::new(cycle), node })
            }
            Verdict::Refuse(refused) => {
                if let Some(candidate) = &refused.preempted {
                    self.view.withdraw(&cycle.pod);
                    self.view.put_pod(Arc::new(cycle.pod.on(&candidate.node)));
                    self.n_placed += 1;
                    (self.has_placed, self.must_preempt) = (true, true);
                }
                if refused.is_fault {
                    self.fault = Some(refused.message.clone());
                }
                Outcome::Refuse(cycle.pod, refused)
            }
        };
        self.outcomes.push(outcome);
    }

    /// What follows from what all pods got.
    pub(crate) fn end(mut self) -> Ended {
        let unschedulable = |why: &str| match why {
            "" => UNSCHEDULABLE.to_owned(),
            why => format!("{UNSCHEDULABLE}, {why}"),
        };
        if let Some(fault) = self.fault.take() {
            return self.end_with_fault(&fault);
        }
        let is_enough = self.has_placed && self.n_placed >= self.quorum;
        let (mut places, mut refused) = (Vec::new(), Vec::new());
        for outcome in self.outcomes {
            match outcome {
                Outcome::Place(place) if is_enough && !self.must_preempt => places.push(place),
                Outcome::Place(Place { cycle, node }) => {
                    let pod = cycle.pod;
                    let preempted = is_enough.then(|| Candidate::without_victims(node));
                    refused.push((pod, waiting(unschedulable, preempted)));
                }
                // Nobody leaves for a group that does not fit even then.
                Outcome::Refuse(pod, why) if why.preempted.is_some() && !is_enough => {
                    refused.push((pod, waiting(unschedulable, None)));
                }
                Outcome::Refuse(pod, why) => refused.push((pod, *why)),
            }
        }
        let condition = match (is_enough, self.must_preempt) {
            (true, false) => {
                GroupCondition { is_true: true, reason: "Scheduled", message: String::new() }
            }
            (true, true) => condition("Unschedulable", unschedulable(PREEMPTING)),
            (false, _) => condition("Unschedulable", unschedulable("")),
        };
        Ended { places, refused, condition }
    }

    /// Something is wrong with one pod: none is placed.
    fn end_with_fault(self, fault: &str) -> Ended {
        let message = format!("failed to schedule other pod from a pod group: {fault}");
        let refuse = |pod: Pod| {
            let message = message.clone();
            let clears_nomination = !pod.nominated.is_empty();
            let is_fault = true;
            (pod, Refused { message, is_fault, clears_nomination, ..Refused::default() })
        };
        let tried = self.outcomes.into_iter().map(|outcome| match outcome {
            Outcome::Refuse(pod, why) if why.is_fault => (pod, *why),
            Outcome::Refuse(pod, _) => refuse(pod),
            Outcome::Place(place) => refuse(place.cycle.pod),
        });
        let refused = tried.chain(self.pods.map(refuse)).collect();
        Ended {
            places: Vec::new(),
            refused,
            condition: condition("SchedulerError", message.clone()),
        }
    }
}

fn condition(reason: &'static str, message: String) -> GroupCondition {
    GroupCondition { is_true: false, reason, message }
}

/// The refusal of a pod that fits, or would if others left, while its group does not. With a node:
/// it waits there until room is made for others.
fn waiting(unschedulable: impl Fn(&str) -> String, preempted: Option<Candidate>) -> Refused {
    let message = unschedulable(if preempted.is_some() { PREEMPTING } else { TOO_FEW });
    let clears_nomination = preempted.is_none();
    Refused { message, preempted, clears_nomination, ..Refused::default() }
}

#[cfg(test)]
mod tests;
