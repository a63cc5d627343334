//! The pools of devices that a node can use.

use super::amount::{Amounts, subtract};
use super::device::{PoolId, Slice};
use super::inventory::{Inventory, PoolUses};
use crate::node::Node;
use imbl::OrdMap;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// As how many devices that are listed an amount counts that is copied.
const AMOUNT_PLACES: usize = 16;

/// A pool as a node sees it: its newest generation.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) id: PoolId,
    pub(super) state: PoolState,
    /// The slices that concern the node, by name. Empty unless the pool is ready.
    pub(super) slices: Vec<Arc<Slice>>,
    /// What is left of the counters, by set and name.
    pub(super) counters: BTreeMap<String, Amounts>,
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

/// What holds for a pool, whatever the node.
#[derive(Debug)]
pub(super) struct Facts {
    /// The slices of the newest generation, by name.
    newest: Vec<Arc<Slice>>,
    /// All devices have distinct names.
    is_distinct: bool,
    /// All sets of counters have distinct names, and devices consume counters that exist.
    has_counters: bool,
    /// The counters, by set and name, and how many there are.
    counters: BTreeMap<String, Amounts>,
    n_counters: usize,
    /// The devices that consume counters, by name: their slices and numbers there.
    consumers: HashMap<Arc<str>, Vec<(usize, usize)>>,
}

impl Facts {
    /// Of the slices of a pool. `None`: there are none.
    pub(super) fn of(slices: &OrdMap<Arc<str>, Arc<Slice>>) -> Option<Self> {
        let generation = slices.values().map(|slice| slice.generation).max()?;
        let newest: Vec<_> =
            slices.values().filter(|slice| slice.generation == generation).cloned().collect();
        let mut has_counters = true;
        let mut counters = BTreeMap::new();
        for (name, set) in newest.iter().flat_map(|slice| &slice.counters) {
            has_counters &= counters.insert(name.clone(), set.clone()).is_none();
        }
        let mut consumers: HashMap<_, Vec<_>> = HashMap::new();
        for (of, slice) in newest.iter().enumerate() {
            for (idx, device) in slice.devices.iter().enumerate() {
                has_counters &= device.consumes.iter().all(|(set, consumed)| {
                    counters
                        .get(set)
                        .is_some_and(|set| consumed.keys().all(|name| set.contains_key(name)))
                });
                if !device.consumes.is_empty() {
                    consumers.entry(device.name.clone()).or_default().push((of, idx));
                }
            }
        }
        let is_distinct = has_distinct_names(newest.iter());
        let n_counters = counters.values().map(BTreeMap::len).sum();
        Some(Self { newest, is_distinct, has_counters, counters, n_counters, consumers })
    }

    /// The counters without what devices in use consume, and how many amounts were looked at.
    fn counters_left(&self, uses: Option<&PoolUses>) -> (BTreeMap<String, Amounts>, usize) {
        let mut left = self.counters.clone();
        let mut n_looked = self.n_counters;
        let used = uses.filter(|_| !left.is_empty());
        for name in used.into_iter().flat_map(PoolUses::devices) {
            n_looked += 1;
            for (slice, device) in self.consumers.get(name).into_iter().flatten() {
                let device = self.newest.get(*slice).and_then(|slice| slice.devices.get(*device));
                for (set, consumed) in device.into_iter().flat_map(|device| &device.consumes) {
                    if let Some(counters) = left.get_mut(set) {
                        n_looked += consumed.len();
                        subtract(counters, consumed);
                    }
                }
            }
        }
        (left, n_looked)
    }
}

fn has_distinct_names<'s>(slices: impl Iterator<Item = &'s Arc<Slice>>) -> bool {
    let mut names = HashSet::new();
    slices.flat_map(|slice| &slice.devices).all(|device| names.insert(&device.name))
}

/// The pools that a node can use, by driver and name, and how many slices and counters were looked
/// at. Pools whose devices have to be made ready are last.
pub(super) fn pools(inventory: &Inventory, node: &Node) -> (Vec<Pool>, u64) {
    let ids = inventory.pools_near(&node.name);
    let mut n_looked = 0;
    let pools: Vec<_> =
        ids.into_iter().filter_map(|id| pool(inventory, id, node, &mut n_looked)).collect();
    let is_late = |pool: &Pool| {
        let mut devices = pool.slices.iter().flat_map(|slice| &slice.devices);
        devices.any(|device| device.has_conditions)
    };
    let (late, mut first): (Vec<_>, Vec<_>) = pools.into_iter().partition(is_late);
    first.extend(late);
    (first, n_looked as u64)
}

fn pool(inventory: &Inventory, id: PoolId, node: &Node, n_looked: &mut usize) -> Option<Pool> {
    let facts = inventory.slices_of(&id)?.facts()?;
    let near = facts.newest.iter().filter(|slice| slice.concerns(node));
    let near: Vec<Arc<Slice>> = near.cloned().collect();
    *n_looked += facts.newest.len();
    let n_slices = near.first()?.n_slices;
    let mut pool =
        Pool { id, state: PoolState::Ready, slices: Vec::new(), counters: BTreeMap::new() };
    if i64::try_from(facts.newest.len()) != Ok(n_slices) {
        pool.state = PoolState::Incomplete;
    } else if !facts.has_counters || !(facts.is_distinct || has_distinct_names(near.iter())) {
        pool.state = PoolState::Invalid;
    } else {
        let (counters, n_amounts) = facts.counters_left(inventory.uses(&pool.id));
        // Each is copied.
        *n_looked += n_amounts * AMOUNT_PLACES;
        pool.counters = counters;
        pool.slices = near;
    }
    Some(pool)
}
