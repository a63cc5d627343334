//! A look at the pools that a node can use: a state machine, because there may be very many slices.

use super::device::{Nodes, PoolId};
use super::inventory::{Inventory, PoolSlices};
use super::pool::{Making, Names, Pool, PoolState};
use crate::node::Node;
use std::sync::Arc;

/// As how many devices that are listed an amount counts that is added.
const AMOUNT_PLACES: usize = 16;
/// How many steps it takes to find a pool.
const COST_OF_POOL: u64 = 8;
/// Devices that are listed in the time of a step.
const PLACES_PER_STEP: usize = 16;

/// A device, by its pool, its slice there and its number in the slice.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) pool: usize,
    pub(super) slice: usize,
    pub(super) device: usize,
}

/// What a node can use.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// By driver and name. Pools whose devices have to be made ready are last.
    pub(super) pools: Vec<Pool>,
    /// The devices of pools that are ready, in the order in which they are tried.
    pub(super) places: Vec<Place>,
    /// How many slices and amounts were looked at.
    pub(super) n_looked: u64,
}

/// A look in progress.
#[derive(Debug)]
pub(super) struct Look {
    stage: Stage,
    seen: Seen,
    /// The pools that come after all others.
    late: Vec<Pool>,
    n_devices: usize,
}

#[derive(Debug)]
enum Stage {
    /// Goes on with the pool after this one.
    Next(Option<PoolId>),
    /// Finds out what holds for the pool whatever the node.
    Facts(PoolId, PoolSlices, Box<Making>),
    /// Looks for slices that concern the node, from this one on.
    Slices(Box<Slices>),
    /// Counts what devices in use consume, after this one.
    Uses { pool: Box<Pool>, is_late: bool, after: Option<Arc<str>> },
    /// Lists the devices of a slice of a pool.
    Places(usize, usize),
}

/// The slices of a pool that concern the node, as far as they are known.
#[derive(Debug)]
struct Slices {
    pool: Pool,
    at: usize,
    /// The names of their devices, if those of the pool are not distinct.
    names: Names,
    is_distinct: bool,
    is_late: bool,
}

impl Look {
    pub(super) fn new() -> Self {
        Self { stage: Stage::Next(None), seen: Seen::default(), late: Vec::new(), n_devices: 0 }
    }

    /// Goes on. Takes what that costs from `steps`, until none are left. Returns what was seen when
    /// that is all.
    pub(super) fn run(
        &mut self,
        inventory: &Inventory,
        node: &Node,
        steps: &mut u64,
    ) -> Option<Seen> {
        while *steps > 0 {
            let stage = std::mem::replace(&mut self.stage, Stage::Next(None));
            let cost;
            (self.stage, cost) = match stage {
                Stage::Next(after) => self.next(inventory, node, after),
                Stage::Facts(id, slices, mut making) => {
                    if let Some(facts) = making.run(slices.all(), steps) {
                        slices.keep(facts);
                        (Self::slices(id, slices), 1)
                    } else {
                        (Stage::Facts(id, slices, making), 0)
                    }
                }
                Stage::Slices(slices) => self.look_at_slice(node, slices),
                Stage::Uses { pool, is_late, after } => {
                    self.look_at_use(inventory, pool, is_late, after)
                }
                Stage::Places(pool, slice) => {
                    let Some(of) = self.seen.pools.get(pool) else {
                        return Some(std::mem::take(&mut self.seen));
                    };
                    match of.slices.get(slice).map(|listed| listed.devices.len()) {
                        None => (Stage::Places(pool + 1, 0), 1),
                        Some(n) => {
                            let places = (0..n).map(|device| Place { pool, slice, device });
                            self.seen.places.extend(places);
                            (Stage::Places(pool, slice + 1), 1 + (n / PLACES_PER_STEP) as u64)
                        }
                    }
                }
            };
            *steps = steps.saturating_sub(cost);
        }
        None
    }

    /// The next pool.
    fn next(&mut self, inventory: &Inventory, node: &Node, after: Option<PoolId>) -> (Stage, u64) {
        let Some(id) = inventory.pool_near(&node.name, after.as_ref()) else {
            self.seen.pools.append(&mut self.late);
            self.seen.places.reserve_exact(self.n_devices);
            return (Stage::Places(0, 0), COST_OF_POOL);
        };
        let stage = match inventory.slices_of(&id).cloned() {
            Some(slices) if slices.facts().is_some() => Self::slices(id, slices),
            Some(slices) => Stage::Facts(id, slices, Box::new(Making::new())),
            None => Stage::Next(Some(id)),
        };
        (stage, COST_OF_POOL)
    }

    fn slices(id: PoolId, all: PoolSlices) -> Stage {
        let names = match all.facts() {
            Some(facts) if !facts.is_distinct => Names::with_capacity(facts.n_devices),
            _ => Names::default(),
        };
        let pool = Pool::new(id, all);
        let slices = Slices { pool, at: 0, names, is_distinct: true, is_late: false };
        Stage::Slices(Box::new(slices))
    }

    fn look_at_slice(&mut self, node: &Node, mut slices: Box<Slices>) -> (Stage, u64) {
        let Slices { pool, at, names, is_distinct, is_late } = &mut *slices;
        let Some(facts) = pool.facts() else { return (Stage::Next(Some(pool.id.clone())), 1) };
        let Some(slice) = facts.newest.get(*at).cloned() else { return self.judge(*slices) };
        let (n_devices, mut cost) = (slice.devices.len(), 1);
        if matches!(slice.nodes, Nodes::PerDevice) {
            cost += n_devices;
        }
        self.seen.n_looked += cost as u64;
        let has_duplicates = !facts.is_distinct;
        if slice.concerns(node) {
            *is_late |= slice.has_conditions;
            pool.slices.push(slice);
            if has_duplicates {
                cost += n_devices;
                let of = pool.slices.len() - 1;
                for idx in 0..n_devices {
                    *is_distinct &= names.insert(&pool.slices, (of, idx));
                }
            }
        }
        *at += 1;
        (Stage::Slices(slices), cost as u64)
    }

    /// Whether a pool can be used, all of whose slices were looked at.
    fn judge(&mut self, slices: Slices) -> (Stage, u64) {
        let Slices { mut pool, is_distinct, is_late, .. } = slices;
        let next = Stage::Next(Some(pool.id.clone()));
        let Some(facts) = pool.facts() else { return (next, 1) };
        // None concerns the node.
        let Some(first) = pool.slices.first() else { return (next, 1) };
        let state = match i64::try_from(facts.newest.len()) == Ok(first.n_slices) {
            false => PoolState::Incomplete,
            true if !facts.has_counters || !(facts.is_distinct || is_distinct) => {
                PoolState::Invalid
            }
            true if facts.are_counted() => {
                return (Stage::Uses { pool: Box::new(pool), is_late, after: None }, 1);
            }
            true => PoolState::Ready,
        };
        pool.state = state;
        if state != PoolState::Ready {
            pool.slices = Vec::new();
        }
        self.put(pool, is_late && state == PoolState::Ready);
        (next, 1)
    }

    fn look_at_use(
        &mut self,
        inventory: &Inventory,
        mut pool: Box<Pool>,
        is_late: bool,
        after: Option<Arc<str>>,
    ) -> (Stage, u64) {
        let uses = inventory.uses(&pool.id);
        let Some(name) = uses.and_then(|uses| uses.device_after(after)) else {
            let next = Stage::Next(Some(pool.id.clone()));
            self.put(*pool, is_late);
            return (next, 1);
        };
        let consumes = |facts: &super::pool::Facts| -> Vec<_> {
            facts.devices(name).flat_map(|device| device.consumes.clone()).collect()
        };
        let consumes = pool.facts().map(consumes).unwrap_or_default();
        let n_amounts: usize = consumes.iter().map(|(_, consumed)| consumed.len()).sum();
        pool.consume(&consumes);
        self.seen.n_looked += ((1 + n_amounts) * AMOUNT_PLACES) as u64;
        let stage = Stage::Uses { pool, is_late, after: Some(name.clone()) };
        (stage, (2 + 2 * n_amounts) as u64)
    }

    fn put(&mut self, pool: Pool, is_late: bool) {
        self.n_devices += pool.slices.iter().map(|slice| slice.devices.len()).sum::<usize>();
        match is_late {
            true => self.late.push(pool),
            false => self.seen.pools.push(pool),
        }
    }
}
