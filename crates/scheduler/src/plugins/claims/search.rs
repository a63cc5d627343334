//! The search for devices on one node.
//!
//! # Theory
//!
//! Claims are served one after the other, their requests in order, device by device: the first
//! device in the order of pools, slices and devices that is free and fits. If a later request
//! finds none, the last choice is undone and the next device is tried; of alternatives, the next
//! one. Within a request only increasing sequences are tried, because their order does not matter.
//! So the first solution is found, and the same one each time.
//!
//! The search is a state machine that its caller advances by steps. A step looks at one device; an
//! expression counts for as many steps as its cost says, and a device that is given for as many as
//! it has capacities, counters, taints and constraints. Before it, the pools are [looked at](Look),
//! which takes steps too, but not of those that a search may take. An expression that takes longer
//! than a thread may be held waits until the search
//! [has a thread of its own](Search::is_costly).

use super::amount::{Amounts, add, consumption, subtract};
use super::claim::{Claim, Rule, Wanted};
use super::device::{Class, Device, Nodes, Slice};
use super::inventory::{Inventory, Uses};
use super::look::{Look, Place, Seen};
use super::pool::{Pool, PoolState};
use super::selector::{Thread, Unknown};
use crate::node::Node;
use setpoint_cel::device::Attribute;
use setpoint_runtime::Request;
use std::collections::BTreeMap;
use std::sync::Arc;

mod state;

pub(super) use state::Picked;
use state::{Dead, Frame, Phase, Plan, Position, Undo, plans};

/// The most devices of a claim: 32, a limit of the API.
const RESULTS_MAX: usize = 32;
/// How many steps an amount takes that is added, compared and copied.
const STEPS_PER_AMOUNT: u64 = 4;
/// Devices that are listed, and slices and amounts that are looked at, in the time of a step.
const PLACES_PER_STEP: u64 = 16;

/// The claims that need devices, with their keys.
pub(super) type Claims = Arc<[(Request, Arc<Claim>)]>;

/// A search in progress.
#[derive(Debug)]
pub(super) struct Search {
    inventory: Inventory,
    pub(super) node: Arc<Node>,
    pub(super) claims: Claims,
    /// The look at the pools, until it is over.
    look: Option<Look>,
    pools: Vec<Pool>,
    /// The devices of pools that are ready, in the order in which they are tried.
    places: Vec<Place>,
    /// By claim, request and alternative.
    plans: Vec<Vec<Vec<Plan>>>,
    phase: Phase,
    stack: Vec<Frame>,
    /// What each claim gets so far.
    pub(super) picked: Vec<Vec<Picked>>,
    /// The claims that get a device for themselves.
    owners: BTreeMap<usize, Vec<usize>>,
    /// How many shares of a device are given, and what they consume.
    shares: BTreeMap<usize, (usize, Amounts)>,
    /// The attributes of devices that a constraint compares, by claim and constraint.
    compared: Vec<Vec<Vec<Attribute>>>,
    /// Where the next steps may be taken.
    thread: Thread,
}

/// The end of a search.
#[derive(Debug)]
pub(super) enum End {
    Found,
    /// No combination fits.
    Nothing,
    /// No combination fits, and some pools are not used because of what they say.
    Invalid,
    /// Something is wrong with a claim, a class or a device: no node will do.
    Fault(String),
    /// The steps do not suffice.
    Spent,
}

impl Search {
    pub(super) fn new(inventory: &Inventory, node: &Arc<Node>, claims: &Claims) -> Self {
        let compared = |(_, claim): &(Request, Arc<Claim>)| {
            claim.spec.constraints.iter().map(|_| Vec::new()).collect()
        };
        Self {
            inventory: inventory.clone(),
            node: node.clone(),
            look: Some(Look::new()),
            pools: Vec::new(),
            places: Vec::new(),
            plans: claims.iter().map(|(_, claim)| plans(inventory, claim)).collect(),
            phase: Phase::List(Position::default()),
            stack: Vec::new(),
            picked: vec![Vec::new(); claims.len()],
            owners: BTreeMap::new(),
            shares: BTreeMap::new(),
            compared: claims.iter().map(compared).collect(),
            claims: claims.clone(),
            thread: Thread::Shared,
        }
    }

    /// Looks at the pools. Takes what that costs from `steps`, until none are left. Returns how
    /// many steps of the search that counts for, once it is over.
    pub(super) fn look(&mut self, steps: &mut u64) -> Option<u64> {
        let Some(look) = &mut self.look else { return Some(0) };
        let seen = look.run(&self.inventory, &self.node, steps)?;
        let Seen { pools, places, n_looked } = seen;
        (self.look, self.pools, self.places) = (None, pools, places);
        Some((self.places.len() as u64 + n_looked) / PLACES_PER_STEP)
    }

    /// Whether the next steps take a thread of their own: an expression takes long.
    pub(super) fn is_costly(&self) -> bool {
        self.thread == Thread::Own
    }

    /// Takes about `steps_max` steps, of `steps_left`, unless the search ends before or is
    /// [costly](Self::is_costly). Returns how many steps were taken: the last one may have been
    /// several.
    pub(super) fn run(&mut self, steps_max: u64, steps_left: u64) -> (Option<End>, u64) {
        let thread = std::mem::replace(&mut self.thread, Thread::Shared);
        let mut taken = 0u64;
        while taken < steps_max {
            let limits = (thread, steps_left.saturating_sub(taken));
            let mut steps = 1;
            let end = match self.phase {
                Phase::List(at) => self.list(at, limits, &mut steps),
                Phase::Forward(at) => self.forward(at, limits, &mut steps),
                Phase::Back(dead) => Ok(self.back(dead, &mut steps)),
            };
            taken = taken.saturating_add(steps);
            match end {
                Ok(None) => {}
                Ok(end) => return (end, taken),
                Err(Unknown::Fault(fault)) => return (Some(End::Fault(fault)), taken),
                Err(Unknown::Spent) => return (Some(End::Spent), taken),
                Err(Unknown::Costly) => {
                    self.thread = Thread::Own;
                    break;
                }
            }
        }
        (None, taken)
    }

    /// The device of a place.
    pub(super) fn device(&self, picked: &Picked) -> (&Slice, &Device) {
        self.at(picked.place)
    }

    /// The class of an alternative.
    pub(super) fn class(&self, claim: usize, request: usize, alternative: usize) -> &Arc<Class> {
        &self.plans[claim][request][alternative].class
    }

    /// The alternatives that were chosen for the requests of a claim.
    pub(super) fn chosen(&self, claim: usize) -> Vec<usize> {
        let mut chosen = vec![0; self.plans[claim].len()];
        for frame in &self.stack {
            if let Frame::Choice { at, .. } = frame
                && at.claim == claim
            {
                chosen[at.request] = at.alternative.unwrap_or_default();
            }
        }
        chosen
    }

    fn wanted(&self, claim: usize, request: usize, alternative: usize) -> &Wanted {
        &self.claims[claim].1.spec.requests[request].alternatives[alternative]
    }

    /// `claim default/x, request y`
    fn whose(&self, at: Position) -> String {
        let (key, claim) = &self.claims[at.claim];
        let request = &claim.spec.requests[at.request];
        let alternative = &request.alternatives[at.alternative.unwrap_or_default()];
        let name = if request.is_choice { &alternative.name } else { &request.name };
        format!("claim {key}, request {name}")
    }

    /// Looks for the devices of requests for all, one device at a time.
    fn list(
        &mut self,
        at: Position,
        limits: (Thread, u64),
        steps: &mut u64,
    ) -> Result<Option<End>, Unknown> {
        let (claim, request) = (at.claim, at.request);
        let alternative = at.alternative.unwrap_or_default();
        let Some(requests) = self.plans.get(claim) else {
            self.phase = Phase::Forward(Position::default());
            return Ok(None);
        };
        let Some(alternatives) = requests.get(request) else {
            self.check_number(claim).map_err(Unknown::Fault)?;
            self.phase = Phase::List(Position { claim: claim + 1, ..Position::default() });
            return Ok(None);
        };
        let next = Position { claim, request, alternative: Some(alternative + 1), ..at };
        let Some(plan) = alternatives.get(alternative) else {
            self.phase =
                Phase::List(Position { claim, request: request + 1, ..Position::default() });
            return Ok(None);
        };
        if plan.all.is_none() {
            self.phase = Phase::List(Position { place: 0, ..next });
            return Ok(None);
        }
        let at = Position { alternative: Some(alternative), ..at };
        if at.place == 0 {
            self.check_pools(at).map_err(Unknown::Fault)?;
        }
        if at.place >= self.places.len() {
            let plan = &mut self.plans[claim][request][alternative];
            plan.n = plan.all.as_ref().map_or(0, Vec::len);
            self.phase = Phase::List(Position { place: 0, ..next });
            return Ok(None);
        }
        self.phase = Phase::List(at);
        let fits = self.selects(at, at.place, limits, steps)? && {
            let (_, device) = self.at(at.place);
            *steps += STEPS_PER_AMOUNT * device.capacity.len() as u64;
            let wanted = self.wanted(claim, request, alternative);
            self.consumption(wanted, at.place, device).is_some()
        };
        if fits {
            self.plans[claim][request][alternative].all.get_or_insert_default().push(at.place);
        }
        self.phase = Phase::List(Position { place: at.place + 1, ..at });
        Ok(None)
    }

    /// A request for all devices needs all pools.
    fn check_pools(&self, at: Position) -> Result<(), String> {
        for pool in &self.pools {
            let why = match pool.state {
                PoolState::Ready => continue,
                PoolState::Incomplete => "being updated",
                PoolState::Invalid => "invalid",
            };
            let (driver, name) = (&pool.id.driver, &pool.id.name);
            return Err(format!(
                "{}: asks for all devices, but resource pool {driver}/{name} is currently {why}",
                self.whose(at)
            ));
        }
        Ok(())
    }

    /// A claim must not need more devices than it can have.
    fn check_number(&self, claim: usize) -> Result<(), String> {
        let fewest = |alternatives: &Vec<Plan>| {
            alternatives.iter().map(|plan| plan.n).min().unwrap_or_default()
        };
        let n = self.plans[claim].iter().map(fewest).fold(0, usize::saturating_add);
        match n > RESULTS_MAX {
            true => Err(format!(
                "claim {}: number of requested devices {n} exceeds the claim limit of {RESULTS_MAX}",
                self.claims[claim].0
            )),
            false => Ok(()),
        }
    }

    fn forward(
        &mut self,
        at: Position,
        limits: (Thread, u64),
        steps: &mut u64,
    ) -> Result<Option<End>, Unknown> {
        let Position { claim, request, .. } = at;
        let Some(requests) = self.plans.get(claim) else { return Ok(Some(End::Found)) };
        let Some(alternatives) = requests.get(request) else {
            let next = Position { claim: claim + 1, ..Position::default() };
            self.phase = Phase::Forward(next);
            return Ok(None);
        };
        let Some(alternative) = at.alternative else {
            let at = Position { alternative: Some(0), ..at };
            if self.claims[claim].1.spec.requests[request].is_choice {
                self.stack.push(Frame::Choice { at, all_too_many: true });
            }
            self.phase = Phase::Forward(at);
            return Ok(None);
        };
        let plan = &alternatives[alternative];
        let all = plan.all.as_ref();
        if all.is_some_and(Vec::is_empty) {
            self.phase = Phase::Back(Dead::NoDevice);
            return Ok(None);
        }
        if at.n >= plan.n {
            let next = Position { claim, request: request + 1, ..Position::default() };
            self.phase = Phase::Forward(next);
            return Ok(None);
        }
        if self.picked[claim].len().saturating_add(plan.n - at.n) > RESULTS_MAX {
            self.phase = Phase::Back(Dead::TooMany(claim));
            return Ok(None);
        }
        if let Some(place) = all.map(|all| all[at.n]) {
            *steps += self.n_compared(at, place);
            self.phase = match self.give(at, place, true).map_err(Unknown::Fault)? {
                Some(undo) => {
                    self.stack.push(Frame::Pick { at, is_all: true, undo });
                    Phase::Forward(Position { n: at.n + 1, ..at })
                }
                None => Phase::Back(Dead::NoDevice),
            };
            return Ok(None);
        }
        if at.place >= self.places.len() {
            self.phase = Phase::Back(Dead::NoDevice);
            return Ok(None);
        }
        let next = Position { place: at.place + 1, ..at };
        let wanted = self.wanted(claim, request, alternative);
        let fits =
            self.is_free(claim, wanted, at.place) && self.selects(at, at.place, limits, steps)?;
        self.phase = Phase::Forward(next);
        if fits {
            *steps += self.n_compared(at, at.place);
        }
        if fits && let Some(undo) = self.give(at, at.place, false).map_err(Unknown::Fault)? {
            self.stack.push(Frame::Pick { at, is_all: false, undo });
            self.phase = Phase::Forward(Position { n: at.n + 1, ..next });
        }
        Ok(None)
    }

    /// Undoes the last choice, and goes on with the next one.
    fn back(&mut self, dead: Dead, steps: &mut u64) -> Option<End> {
        let is_invalid = |pool: &Pool| pool.state == PoolState::Invalid;
        let Some(frame) = self.stack.pop() else {
            return Some(match self.pools.iter().any(is_invalid) {
                true => End::Invalid,
                false => End::Nothing,
            });
        };
        // Other choices for an earlier claim may leave a later one a smaller alternative.
        let too_many = |claim: usize| matches!(dead, Dead::TooMany(of) if of == claim);
        match frame {
            Frame::Choice { at, all_too_many } => {
                let all_too_many = all_too_many && too_many(at.claim);
                let alternative = at.alternative.unwrap_or_default() + 1;
                if alternative < self.plans[at.claim][at.request].len() {
                    let at = Position { alternative: Some(alternative), ..at };
                    self.stack.push(Frame::Choice { at, all_too_many });
                    self.phase = Phase::Forward(at);
                } else {
                    self.phase = Phase::Back(match all_too_many {
                        true => Dead::TooMany(at.claim),
                        false => Dead::NoDevice,
                    });
                }
            }
            Frame::Pick { at, is_all, undo } => {
                let picked = self.picked[at.claim].last().map(|picked| picked.place);
                *steps += picked.map_or(0, |place| self.n_amounts(place));
                self.take_back(at, undo);
                if !is_all && !too_many(at.claim) {
                    self.phase = Phase::Forward(Position { place: at.place + 1, ..at });
                } else if !too_many(at.claim) {
                    self.phase = Phase::Back(Dead::NoDevice);
                }
            }
        }
        None
    }

    fn at(&self, place: usize) -> (&Slice, &Device) {
        let Place { pool, slice, device } = self.places[place];
        let slice = &self.pools[pool].slices[slice];
        (slice, &slice.devices[device])
    }

    fn uses(&self, place: usize) -> Option<&Uses> {
        let (slice, device) = self.at(place);
        self.inventory.uses(&slice.pool)?.of(&device.name)
    }

    /// Whether nobody has a device for itself.
    fn is_free(&self, claim: usize, wanted: &Wanted, place: usize) -> bool {
        let owners = self.owners.get(&place).map_or(&[][..], Vec::as_slice);
        if wanted.is_admin {
            return !owners.contains(&claim);
        }
        let is_shared = self.at(place).1.is_shared;
        owners.is_empty() && self.uses(place).is_none_or(|uses| is_shared && !uses.is_owned())
    }

    /// Whether the expressions of a request and its class select a device, and the node has it.
    fn selects(
        &mut self,
        at: Position,
        place: usize,
        limits: (Thread, u64),
        steps: &mut u64,
    ) -> Result<bool, Unknown> {
        let (claim, request) = (at.claim, at.request);
        let alternative = at.alternative.unwrap_or_default();
        let plan = &self.plans[claim][request][alternative];
        if let Some(known) = plan.selects.get(&place) {
            return Ok(*known);
        }
        let (slice, device) = self.at(place);
        let is_here = match slice.nodes_of(device) {
            _ if device.has_conditions => false,
            nodes if matches!(slice.nodes, Nodes::PerDevice) => nodes.include(&self.node),
            _ => true,
        };
        let selectors = &self.inventory.selectors;
        let of_class = || format!("class {}", plan.class.name);
        let of_claim = || format!("claim {}", self.claims[claim].0);
        let own = &self.wanted(claim, request, alternative).selectors;
        let selects = is_here
            && selectors.select(&plan.class.selectors, device, of_class, limits, steps)?
            && selectors.select(own, device, of_claim, limits, steps)?;
        self.plans[claim][request][alternative].selects.insert(place, selects);
        Ok(selects)
    }

    /// How many steps the amounts of a device take, when it is given or taken back.
    fn n_amounts(&self, place: usize) -> u64 {
        let (_, device) = self.at(place);
        let n_counters: usize = device.consumes.iter().map(|(_, consumed)| consumed.len()).sum();
        STEPS_PER_AMOUNT * (device.capacity.len() + n_counters) as u64
    }

    /// How many steps it takes to find out whether a claim can have a device.
    fn n_compared(&self, at: Position, place: usize) -> u64 {
        let (_, device) = self.at(place);
        let alternative = at.alternative.unwrap_or_default();
        let n_tolerations = self.wanted(at.claim, at.request, alternative).tolerations.len();
        let n_attributes: usize = self.compared[at.claim].iter().map(|of| 1 + of.len()).sum();
        let n_rules = self.inventory.rules.len();
        let n_pairs = (device.taints.len() + n_rules) * n_tolerations + n_rules + n_attributes;
        self.n_amounts(place) + n_pairs as u64
    }

    /// What a request consumes of a device; `None` if not as much is left.
    fn consumption(&self, wanted: &Wanted, place: usize, device: &Device) -> Option<Amounts> {
        let none = Amounts::new();
        let before = self.uses(place).map_or(&none, |uses| &uses.consumed);
        let now = self.shares.get(&place).map_or(&none, |(_, consumed)| consumed);
        consumption(&device.capacity, &wanted.amounts, [before, now])
    }

    /// Gives a claim a device that its request selects, if it can have it. `must`: without it,
    /// there is no solution.
    fn give(&mut self, at: Position, place: usize, must: bool) -> Result<Option<Undo>, String> {
        let (claim, request) = (at.claim, at.request);
        let alternative = at.alternative.unwrap_or_default();
        let wanted = self.wanted(claim, request, alternative);
        let (slice, device) = self.at(place);
        let tolerates = |taint| wanted.tolerations.iter().any(|one| one.tolerates(taint));
        let own = device.taints.iter().filter(|taint| taint.forbids());
        let rules = self.inventory.rules.values().filter(|rule| rule.taints(&slice.pool, device));
        let mut taints = own.chain(rules.map(|rule| &rule.taint));
        if !self.is_free(claim, wanted, place) || taints.any(|taint| !tolerates(taint)) {
            return Ok(None);
        }
        let Some(consumed) = self.consumption(wanted, place, device) else { return Ok(None) };
        // The first share of a device consumes its counters.
        let is_counted =
            device.is_shared && (self.shares.contains_key(&place) || self.uses(place).is_some());
        let counts = !(device.consumes.is_empty() || is_counted);
        let pool = self.places[place].pool;
        if counts && !self.pools[pool].has_counters(device) {
            return Ok(None);
        }
        let mut found = Vec::new();
        for (idx, constraint) in self.claims[claim].1.spec.constraints.iter().enumerate() {
            let of = &self.claims[claim].1.spec.requests[request];
            let name = of.name_of(&of.alternatives[alternative]);
            if !constraint.applies_to(&of.name, &name) {
                continue;
            }
            let compared = &self.compared[claim][idx];
            let attribute = |name: &str| device.attribute(&slice.pool.driver, name);
            let fitting = match &constraint.rule {
                Rule::Same(name) => attribute(name)
                    .filter(|value| compared.first().is_none_or(|first| first == *value)),
                Rule::Distinct(name) => attribute(name).filter(|value| !compared.contains(value)),
                Rule::Unknown => None,
            };
            match fitting {
                Some(value) => found.push((idx, value.clone())),
                None if must => {
                    let (driver, pool) = (&slice.pool.driver, &slice.pool.name);
                    return Err(format!(
                        "{}: cannot add device {driver}/{pool}/{} because a claim constraint would not be satisfied",
                        self.whose(at),
                        device.name
                    ));
                }
                None => return Ok(None),
            }
        }
        let share = device.is_shared.then_some(consumed);
        if counts {
            let consumes = device.consumes.clone();
            self.pools[pool].consume(&consumes);
        }
        let constraints = found.iter().map(|(idx, _)| *idx).collect();
        for (idx, value) in found {
            self.compared[claim][idx].push(value);
        }
        match &share {
            Some(share) => {
                let (n, consumed) = self.shares.entry(place).or_default();
                *n += 1;
                add(consumed, share);
            }
            None => self.owners.entry(place).or_default().push(claim),
        }
        self.picked[claim].push(Picked { place, request, alternative, share: share.clone() });
        Ok(Some(Undo { constraints, counts, share }))
    }

    /// Undoes the gift of a claim's last device.
    fn take_back(&mut self, at: Position, undo: Undo) {
        let Some(picked) = self.picked[at.claim].pop() else { return };
        for idx in undo.constraints {
            self.compared[at.claim][idx].pop();
        }
        if undo.counts {
            let consumes = self.at(picked.place).1.consumes.clone();
            self.pools[self.places[picked.place].pool].release(&consumes);
        }
        match &undo.share {
            Some(share) => {
                if let Some((n, consumed)) = self.shares.get_mut(&picked.place) {
                    *n -= 1;
                    subtract(consumed, share);
                    if *n == 0 {
                        self.shares.remove(&picked.place);
                    }
                }
            }
            None => {
                if let Some(owners) = self.owners.get_mut(&picked.place) {
                    owners.pop();
                }
            }
        }
    }
}
