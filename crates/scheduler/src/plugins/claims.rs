//! Claims of devices.
//!
//! # Theory
//!
//! | module | what it is |
//! |---|---|
//! | `device`, `claim`, `amount`, `taint` | slices, classes, claims and taint rules as the scheduler needs them |
//! | `inventory` | a snapshot of them, and which devices are in use |
//! | `selector` | expressions, compiled once |
//! | `pool`, `look` | the devices that a node can use, found by a state machine |
//! | `search` | the search among them: another one |
//! | `outcome` | what is written to the status of claims |
//!
//! Before the filters, [`check`] looks at the claims of the pod: a claim that does not exist, or is
//! being allocated for another pod, holds the pod. Claims that have devices limit the nodes, as do
//! those that get devices with another pod of the group in the same cycle. For
//! the others the search runs on each node that the other filters accept, in steps of bounded work
//! between the filters; the filter reads what it has found. When the pod is assumed, the devices
//! are in use at once, before the claims are written.

use super::Refusal;
use crate::cycle::Cycle;
use crate::node::{Node, NodeInfo};
use crate::pod::{ClaimName, Pod};
use crate::view::View;
use rand::rngs::SmallRng;
use serde_json::Value;
use setpoint_runtime::Request;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

mod amount;
mod claim;
mod device;
mod inventory;
mod look;
mod outcome;
mod pool;
mod search;
mod selector;
mod taint;

pub(crate) use claim::Claim;
pub(crate) use device::{Class, Slice};
pub(crate) use inventory::{Grant, Inventory};
pub(crate) use taint::TaintRule;

use claim::{Allocation, Mode};
use search::{End, Search};

/// The most steps of the searches for one node and for one pod. A step takes about a tenth of a
/// microsecond, so that a search that finds nothing ends within some tenths of a second.
const NODE_STEPS_MAX: u64 = 500_000;
const POD_STEPS_MAX: u64 = 4_000_000;
/// How much more the first alternative of a request is worth than the one behind the last: the most
/// alternatives, a limit of the API.
const ALTERNATIVES_MAX: usize = 8;

/// The reasons of refused nodes.
const UNAVAILABLE: &str = "resourceclaim not available on the node";
const NOTHING: &str = "cannot allocate all claims";
const INVALID: &str = "invalid resource pools were encountered";
const TOO_LONG: &str = "search for devices took too many steps";

/// The claims of the pod of a cycle.
#[derive(Debug, Clone, Default)]
pub(crate) struct Claims {
    /// Those that have devices.
    allocated: Vec<(Request, Arc<Claim>)>,
    /// Those that get some with another pod of the group.
    shared: Vec<Shared>,
    /// Those that need some.
    wanted: Option<search::Claims>,
    /// What the searches have found, by node.
    found: BTreeMap<Arc<str>, Result<Arc<Found>, &'static str>>,
    steps: u64,
    /// Which of those that have devices a node was refused for.
    unavailable: BTreeSet<usize>,
}

/// A claim that gets devices with another pod of the group.
#[derive(Debug, Clone)]
struct Shared {
    key: Request,
    claim: Arc<Claim>,
    allocation: Arc<Allocation>,
    /// The same as it is written.
    written: Arc<Value>,
}

/// The devices of a pod's claims on a node.
#[derive(Debug)]
struct Found {
    /// In the order of the claims, also as it is written.
    allocations: Vec<(Arc<Allocation>, Arc<Value>)>,
    /// Better if earlier alternatives were chosen.
    score: i64,
}

/// Why a pod does not go on, whatever the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Hold {
    /// A claim is not made yet: nobody has to do anything about it.
    Unmade,
    /// A claim or a class does not exist, or the claim is not the pod's: it may come at any time.
    Missing(String),
    /// Another pod has to come first, or the claim is not understood.
    Wait(String),
}

/// The names of the pod's claims.
///
/// # Errors
///
/// A claim is not made yet.
fn names(pod: &Pod) -> Result<Vec<(Request, bool)>, Hold> {
    let mut names: Vec<(Request, bool)> = Vec::new();
    for claim in &pod.spec.device_claims {
        let (name, is_own) = match &claim.name {
            ClaimName::Given(name) => (name, false),
            ClaimName::Generated => match pod.generated.get(&claim.of) {
                Some(Some(name)) => (name, true),
                // None is needed.
                Some(None) => continue,
                None => return Err(Hold::Unmade),
            },
        };
        let key = Request::new(pod.key.namespace.clone(), &**name);
        if !names.iter().any(|(known, _)| *known == key) {
            names.push((key, is_own));
        }
    }
    Ok(names)
}

/// The keys of the pod's claims, as far as they are known.
pub(crate) fn keys(pod: &Pod) -> Vec<Request> {
    let known = pod.spec.device_claims.iter().filter_map(|claim| match &claim.name {
        ClaimName::Given(name) => Some(name),
        ClaimName::Generated => pod.generated.get(&claim.of)?.as_ref(),
    });
    known.map(|name| Request::new(pod.key.namespace.clone(), &**name)).collect()
}

/// Looks at the claims of a pod.
///
/// # Errors
///
/// Why the pod has to wait, whatever the node.
pub(crate) fn check(view: &View, pod: &Pod) -> Result<Claims, Hold> {
    let mut claims = Claims::default();
    let mut found = Vec::new();
    for (key, is_own) in names(pod)? {
        let Some(claim) = view.inventory.claim(&key) else {
            if is_own {
                return Err(Hold::Unmade);
            }
            return Err(Hold::Missing(format!("could not find ResourceClaim \"{key}\"")));
        };
        if claim.is_deleting {
            let name = &key.name;
            return Err(Hold::Missing(format!("resourceclaim \"{name}\" is being deleted")));
        }
        if is_own && claim.controller != pod.uid {
            let pod = &pod.key;
            return Err(Hold::Missing(format!(
                "ResourceClaim {key} was not created for Pod {pod} (Pod is not owner)"
            )));
        }
        found.push((key, claim.clone()));
    }
    let mut wanted = Vec::new();
    for (key, claim) in found {
        if claim.allocation.is_some() {
            if !claim.has_room_for(&pod.uid) {
                return Err(Hold::Wait("resourceclaim in use".to_owned()));
            }
            claims.allocated.push((key, claim));
            continue;
        }
        if let Some((allocation, written)) = view.inventory.shared(&key, &pod.uid) {
            let (allocation, written) = (allocation.clone(), written.clone());
            claims.shared.push(Shared { key, claim, allocation, written });
            continue;
        }
        if view.inventory.is_pending(&key) {
            return Err(Hold::Wait(format!(
                "resource claim {key} is in the process of being allocated"
            )));
        }
        check_requests(&view.inventory, &key, &claim)?;
        wanted.push((key, claim));
    }
    claims.wanted = (!wanted.is_empty()).then(|| wanted.into());
    Ok(claims)
}

fn check_requests(inventory: &Inventory, key: &Request, claim: &Claim) -> Result<(), Hold> {
    for request in &claim.spec.requests {
        let name = &request.name;
        if request.alternatives.is_empty() {
            return Err(Hold::Wait(format!(
                "resource claim {key}, request {name}: unknown request type"
            )));
        }
        for wanted in &request.alternatives {
            let name = request.name_of(wanted);
            if !inventory.classes.contains_key(&wanted.class) {
                return Err(Hold::Missing(format!(
                    "request {name}: device class {} does not exist",
                    wanted.class
                )));
            }
            if let Mode::Unknown(mode) = &wanted.mode {
                return Err(Hold::Wait(format!(
                    "claim {key}, request {name}: unsupported count mode {mode}"
                )));
            }
        }
    }
    Ok(())
}

impl Claims {
    /// Whether the pod has no claims.
    pub(crate) fn is_empty(&self) -> bool {
        self.allocated.is_empty() && self.shared.is_empty() && self.wanted.is_none()
    }

    /// Whether a node has to be searched for devices.
    pub(crate) fn must_search(&self, node: &Node) -> bool {
        self.wanted.is_some() && !self.found.contains_key(&node.name)
    }

    /// Begins the search for devices on a node. If no more steps may be taken, the node is refused.
    pub(crate) fn search(&mut self, view: &View, node: &Arc<Node>) -> Option<DeviceSearch> {
        let wanted = self.wanted.as_ref().filter(|_| self.must_search(node))?;
        if self.steps >= POD_STEPS_MAX {
            self.found.insert(node.name.clone(), Err(TOO_LONG));
            return None;
        }
        let steps_left = NODE_STEPS_MAX.min(POD_STEPS_MAX - self.steps);
        Some(DeviceSearch { search: Search::new(&view.inventory, node, wanted), steps_left })
    }

    /// Takes in the end of a search.
    ///
    /// # Errors
    ///
    /// Something is wrong with a claim, a class or a device: no node will do.
    fn end(&mut self, search: &Search, end: Option<End>, rng: &mut SmallRng) -> Result<(), String> {
        let found = match end {
            Some(End::Found) => Ok(Arc::new(Found::of(search, rng))),
            Some(End::Nothing) => Err(NOTHING),
            Some(End::Invalid) => Err(INVALID),
            Some(End::Fault(fault)) => return Err(fault),
            Some(End::Spent) | None => Err(TOO_LONG),
        };
        self.found.insert(search.node.name.clone(), found);
        Ok(())
    }

    /// Forgets what was found for other nodes.
    pub(crate) fn keep_only(&mut self, node: &Arc<str>) {
        self.found.retain(|name, _| name == node);
    }

    /// Notes why a node was refused.
    pub(crate) fn note_refused(&mut self, refusal: &Refusal, node: &Node) {
        if !refusal.reasons.iter().any(|reason| reason == UNAVAILABLE) {
            return;
        }
        let claims = self.allocated.iter().enumerate();
        let elsewhere = claims.filter(|(_, (_, claim))| !is_usable(claim, node));
        self.unavailable.extend(elsewhere.map(|(idx, _)| idx));
    }

    /// A claim that a node was refused for, and nobody else uses: without its devices, the pod may
    /// fit.
    pub(crate) fn misplaced(&self, pod: &Pod) -> Option<Request> {
        let mut unavailable = self.unavailable.iter().filter_map(|idx| self.allocated.get(*idx));
        let found = unavailable.find(|(_, claim)| claim.is_idle_without(&pod.uid));
        found.map(|(key, _)| key.clone())
    }

    /// Gives the pod its claims' devices on a node, if they are as they were in the snapshot.
    pub(crate) fn grant(
        &self,
        now: &mut Inventory,
        snapshot: &Inventory,
        pod: &Pod,
        node: &str,
    ) -> Option<Vec<Grant>> {
        let is_kept = |(key, before): &(Request, Arc<Claim>)| {
            now.claim(key).is_some_and(|claim| claim.has_kept(before))
        };
        if !self.allocated.iter().all(is_kept) {
            return None;
        }
        let mut grants: Vec<Grant> = self
            .allocated
            .iter()
            .map(|(claim, of)| Grant {
                claim: claim.clone(),
                uid: of.uid.clone(),
                allocation: None,
                is_shared: false,
            })
            .collect();
        let may_share = |shared: &Shared| {
            now.claim(&shared.key).is_some_and(|claim| claim.has_kept(&shared.claim))
                && now.may_join(&shared.key, &shared.allocation, &pod.uid)
        };
        if !self.shared.iter().all(may_share) {
            return None;
        }
        let Some(wanted) = &self.wanted else {
            self.join(now, pod, &mut grants);
            return Some(grants);
        };
        let found = self.found.get(node)?.as_ref().ok()?;
        let is_free = |(allocation, _): &(Arc<Allocation>, _)| {
            let pools = allocation.devices.iter().map(|device| &device.pool);
            pools.into_iter().all(|pool| now.has_same_uses(snapshot, pool))
        };
        let is_open =
            |wanted: &(Request, Arc<Claim>)| is_kept(wanted) && !now.is_pending(&wanted.0);
        if !wanted.iter().all(is_open) || !found.allocations.iter().all(is_free) {
            return None;
        }
        for ((key, claim), (allocation, written)) in wanted.iter().zip(&found.allocations) {
            let devices = (allocation.clone(), written.clone());
            now.allocate(key, claim, devices, (&pod.key, &pod.uid));
            grants.push(Grant {
                claim: key.clone(),
                uid: claim.uid.clone(),
                allocation: Some(written.clone()),
                is_shared: pod.spec.group.is_some(),
            });
        }
        self.join(now, pod, &mut grants);
        Some(grants)
    }

    /// Gives the pod what its shared claims get.
    fn join(&self, now: &mut Inventory, pod: &Pod, grants: &mut Vec<Grant>) {
        for shared in &self.shared {
            now.join(&shared.key, (&pod.key, &pod.uid));
            grants.push(Grant {
                claim: shared.key.clone(),
                uid: shared.claim.uid.clone(),
                allocation: Some(shared.written.clone()),
                is_shared: true,
            });
        }
    }
}

impl Found {
    fn of(search: &Search, rng: &mut SmallRng) -> Self {
        let written = outcome::allocations(search, rng).into_iter();
        let allocations = written
            .filter_map(|written| Some((Arc::new(Allocation::read(&written)?), Arc::new(written))));
        let score = |claim: usize| -> i64 {
            let chosen = search.chosen(claim);
            let spec = &search.claims[claim].1.spec;
            let choices = spec.requests.iter().zip(chosen).filter(|(request, _)| request.is_choice);
            choices.map(|(_, idx)| (ALTERNATIVES_MAX.saturating_sub(idx)) as i64).sum()
        };
        Self {
            allocations: allocations.collect(),
            score: (0..search.claims.len()).map(score).sum(),
        }
    }
}

/// A search for devices on one node.
#[derive(Debug)]
pub(crate) struct DeviceSearch {
    search: Search,
    steps_left: u64,
}

impl DeviceSearch {
    /// The node.
    pub(crate) fn node(&self) -> &Arc<Node> {
        &self.search.node
    }

    /// Whether the next steps take a thread of their own.
    pub(crate) fn is_costly(&self) -> bool {
        self.search.is_costly()
    }

    /// Takes steps. Returns whether the search is over; then the filter knows its result.
    ///
    /// # Errors
    ///
    /// Something is wrong with a claim, a class or a device: no node will do.
    pub(crate) fn run(
        &mut self,
        claims: &mut Claims,
        steps: &mut u64,
        rng: &mut SmallRng,
    ) -> Result<bool, String> {
        let Some(looked) = self.search.look(steps) else { return Ok(false) };
        claims.steps = claims.steps.saturating_add(looked);
        let steps_max = self.steps_left.min(*steps);
        let (end, taken) = self.search.run(steps_max, self.steps_left);
        // More than there were, if the last one was an expression.
        claims.steps = claims.steps.saturating_add(taken);
        *steps = steps.saturating_sub(taken);
        self.steps_left = self.steps_left.saturating_sub(taken);
        if end.is_none() && self.steps_left > 0 {
            return Ok(false);
        }
        claims.end(&self.search, end, rng)?;
        Ok(true)
    }
}

/// Whether a node can use what a claim has.
fn is_usable(claim: &Claim, node: &Node) -> bool {
    claim.allocation.as_ref().is_none_or(|has| has.is_usable_on(node))
}

pub(super) fn filter(cycle: &Cycle, node: &Node, _: &NodeInfo) -> Result<(), Refusal> {
    let Claims { allocated, shared, .. } = &cycle.claims;
    let is_usable = allocated.iter().all(|(_, claim)| is_usable(claim, node))
        && shared.iter().all(|shared| shared.allocation.is_usable_on(node));
    if !is_usable {
        return Err(Refusal::lasting(UNAVAILABLE));
    }
    match cycle.claims.found.get(&node.name) {
        Some(Err(reason)) => Err(Refusal::lasting(reason)),
        // What is still to be searched is refused after the search.
        Some(Ok(_)) | None => Ok(()),
    }
}

pub(super) fn score(cycle: &Cycle, node: &Node, _: &NodeInfo) -> f64 {
    let found = cycle.claims.found.get(&node.name).and_then(|found| found.as_ref().ok());
    found.map_or(0.0, |found| found.score as f64)
}
