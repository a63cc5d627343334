//! Pools of devices: what holds for a pool whatever the node, and a pool as a node sees it.

use super::amount::{Amounts, add, subtract};
use super::device::{Device, PoolId, Slice};
use super::inventory::PoolSlices;
use imbl::OrdMap;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::ops::Bound;
use std::sync::Arc;

/// A pool as a node sees it: its newest generation.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) id: PoolId,
    pub(super) state: PoolState,
    /// The slices that concern the node, by name. Empty unless the pool is ready.
    pub(super) slices: Vec<Arc<Slice>>,
    all: PoolSlices,
    /// What devices in use consume of the counters, by set and name.
    used: BTreeMap<String, Amounts>,
}

/// Whether devices of a pool can be allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PoolState {
    Ready,
    /// Its driver has not written all slices yet.
    Incomplete,
    /// Its slices contradict each other.
    Invalid,
}

impl Pool {
    /// A pool of which no slices are known to concern the node, and no devices to be in use.
    pub(super) fn new(id: PoolId, all: PoolSlices) -> Self {
        Self { id, state: PoolState::Ready, slices: Vec::new(), all, used: BTreeMap::new() }
    }

    /// What holds whatever the node, if it is known.
    pub(super) fn facts(&self) -> Option<&Facts> {
        self.all.facts()
    }

    /// Whether the counters suffice for a device.
    pub(super) fn has_counters(&self, device: &Device) -> bool {
        device.consumes.iter().all(|(set, consumed)| {
            let whole = self.facts().and_then(|facts| facts.counters(set));
            let used = self.used.get(set);
            consumed.iter().all(|(name, amount)| {
                let Some(whole) = whole.and_then(|whole| whole.get(name)) else { return false };
                match used.and_then(|used| used.get(name)) {
                    Some(used) => amount.compare(&(whole - used)).is_le(),
                    None => amount.compare(whole).is_le(),
                }
            })
        })
    }

    /// Takes what a device consumes from the counters.
    pub(super) fn consume(&mut self, consumes: &[(String, Amounts)]) {
        for (set, consumed) in consumes {
            add(self.used.entry(set.clone()).or_default(), consumed);
        }
    }

    /// Undoes [`Pool::consume`].
    pub(super) fn release(&mut self, consumes: &[(String, Amounts)]) {
        for (set, consumed) in consumes {
            subtract(self.used.entry(set.clone()).or_default(), consumed);
        }
    }
}

/// A device, by its slice among the newest and its number there.
type Spot = (usize, usize);

/// What holds for a pool, whatever the node.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// The slices of the newest generation, by name.
    pub(super) newest: Vec<Arc<Slice>>,
    pub(super) n_devices: usize,
    /// All devices have distinct names.
    pub(super) is_distinct: bool,
    /// All sets of counters have distinct names, and devices consume counters that exist.
    pub(super) has_counters: bool,
    /// The sets of counters, by name: their slices and numbers there.
    sets: HashMap<String, (usize, usize)>,
    /// The devices, if any consume counters.
    devices: Names,
}

impl Facts {
    /// The counters of a set.
    fn counters(&self, set: &str) -> Option<&Amounts> {
        let (slice, idx) = self.sets.get(set)?;
        self.newest.get(*slice)?.counters.get(*idx).map(|(_, counters)| counters)
    }

    /// Whether devices consume counters.
    pub(super) fn are_counted(&self) -> bool {
        !self.devices.is_empty()
    }

    /// The devices of a name, if any consume counters.
    pub(super) fn devices(&self, name: &str) -> impl Iterator<Item = &Device> {
        let spots = self.devices.find(&self.newest, name);
        spots.filter_map(|spot| device(&self.newest, spot))
    }

    /// Whether the counters that a device consumes exist.
    fn can_count(&self, device: &Device) -> bool {
        device.consumes.iter().all(|(set, consumed)| {
            self.counters(set).is_some_and(|set| consumed.keys().all(|name| set.contains_key(name)))
        })
    }
}

fn device(slices: &[Arc<Slice>], (slice, device): Spot) -> Option<&Device> {
    slices.get(slice)?.devices.get(device)
}

/// The facts of a pool while they are made, slice by slice.
#[derive(Debug)]
pub(super) struct Making {
    facts: Facts,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// Looks for the newest slices, after this name.
    Newest(Option<Arc<str>>),
    /// Takes in the counters of the newest slices.
    Counters(usize),
    /// Takes in the devices of the newest slices. Whether any consume counters.
    Devices(usize, bool),
}

impl Making {
    pub(super) fn new() -> Self {
        let facts = Facts { is_distinct: true, has_counters: true, ..Facts::default() };
        Self { facts, stage: Stage::Newest(None) }
    }

    /// Takes in some of the slices. Takes what that costs from `steps`, until none are left.
    /// Returns the facts when they are complete.
    pub(super) fn run(
        &mut self,
        slices: &OrdMap<Arc<str>, Arc<Slice>>,
        steps: &mut u64,
    ) -> Option<Facts> {
        while *steps > 0 {
            let cost = match self.stage {
                Stage::Newest(_) => self.take_newest(slices),
                Stage::Counters(at) => self.take_counters(at),
                Stage::Devices(at, are_counted) => {
                    if at == self.facts.newest.len() {
                        let mut facts = std::mem::take(&mut self.facts);
                        if !are_counted {
                            facts.devices = Names::default();
                        }
                        return Some(facts);
                    }
                    self.take_devices(at, are_counted)
                }
            };
            *steps = steps.saturating_sub(cost as u64);
        }
        None
    }

    fn take_newest(&mut self, slices: &OrdMap<Arc<str>, Arc<Slice>>) -> usize {
        let Stage::Newest(after) = &mut self.stage else { return 0 };
        let start = after.take().map_or(Bound::Unbounded, Bound::Excluded);
        let Some((name, slice)) = slices.range((start, Bound::Unbounded)).next() else {
            self.facts.devices = Names::with_capacity(self.facts.n_devices);
            self.stage = Stage::Counters(0);
            return 1;
        };
        *after = Some(name.clone());
        let facts = &mut self.facts;
        let newest = facts.newest.first().map(|known| known.generation);
        if newest.is_some_and(|newest| newest < slice.generation) {
            facts.newest.clear();
            facts.n_devices = 0;
        }
        if newest.is_none_or(|newest| newest <= slice.generation) {
            facts.n_devices += slice.devices.len();
            facts.newest.push(slice.clone());
        }
        COST_OF_SLICE
    }

    fn take_counters(&mut self, at: usize) -> usize {
        let facts = &mut self.facts;
        let Some(slice) = facts.newest.get(at) else {
            self.stage = Stage::Devices(0, false);
            return 1;
        };
        for (idx, (set, _)) in slice.counters.iter().enumerate() {
            facts.has_counters &= facts.sets.insert(set.clone(), (at, idx)).is_none();
        }
        self.stage = Stage::Counters(at + 1);
        1 + COST_OF_SLICE * slice.counters.len()
    }

    fn take_devices(&mut self, at: usize, mut are_counted: bool) -> usize {
        let facts = &mut self.facts;
        let Some(slice) = facts.newest.get(at).cloned() else { return 0 };
        let mut cost = 1;
        for (idx, device) in slice.devices.iter().enumerate() {
            let n_amounts: usize = device.consumes.iter().map(|(_, of)| 1 + of.len()).sum();
            cost += COST_OF_SLICE + n_amounts;
            are_counted |= n_amounts > 0;
            facts.has_counters &= facts.can_count(device);
            facts.is_distinct &= facts.devices.insert(&facts.newest, (at, idx));
        }
        self.stage = Stage::Devices(at + 1, are_counted);
        cost
    }
}

/// How many steps it takes to find a slice, a set of counters or a device by its name.
const COST_OF_SLICE: usize = 2;

/// Devices by name. Names are not copied, so that many devices take little room.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// By the hash of the name.
    first: HashMap<u64, Spot>,
    /// Those with the hash of an earlier one, mostly because they have its name.
    more: BTreeMap<Arc<str>, Vec<Spot>>,
    hashes: RandomState,
}

impl Names {
    /// With room for so many, which then are not moved to make room.
    pub(super) fn with_capacity(n: usize) -> Self {
        Self { first: HashMap::with_capacity(n), ..Self::default() }
    }

    fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    /// Adds a device of `slices`. Returns whether no other one has its name.
    pub(super) fn insert(&mut self, slices: &[Arc<Slice>], spot: Spot) -> bool {
        let Some(added) = device(slices, spot) else { return true };
        match self.first.entry(self.hashes.hash_one(&*added.name)) {
            Entry::Vacant(entry) => {
                entry.insert(spot);
                true
            }
            Entry::Occupied(first) => {
                let is_its = device(slices, *first.get()).is_some_and(|of| of.name == added.name);
                let more = self.more.entry(added.name.clone()).or_default();
                more.push(spot);
                !is_its && more.len() == 1
            }
        }
    }

    /// The devices of `slices` with a name.
    fn find(&self, slices: &[Arc<Slice>], name: &str) -> impl Iterator<Item = Spot> {
        let first = self.first.get(&self.hashes.hash_one(name)).copied();
        let is_its = |spot: &Spot| device(slices, *spot).is_some_and(|of| *of.name == *name);
        let more = self.more.get(name).into_iter().flatten().copied();
        first.filter(is_its).into_iter().chain(more)
    }
}
