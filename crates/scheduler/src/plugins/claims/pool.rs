//! The pools of devices that a node can use.

use super::amount::{Amounts, subtract};
use super::device::{PoolId, Slice};
use super::inventory::Inventory;
use crate::node::Node;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

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

/// The pools that a node can use, by driver and name. Those whose devices have to be made ready
/// are last.
pub(super) fn pools(inventory: &Inventory, node: &Node) -> Vec<Pool> {
    let ids = inventory.pools_near(&node.name);
    let pools = ids.into_iter().filter_map(|id| pool(inventory, id, node));
    let is_late = |pool: &Pool| {
        let mut devices = pool.slices.iter().flat_map(|slice| &slice.devices);
        devices.any(|device| device.has_conditions)
    };
    let (late, mut first): (Vec<_>, Vec<_>) = pools.partition(is_late);
    first.extend(late);
    first
}

fn pool(inventory: &Inventory, id: PoolId, node: &Node) -> Option<Pool> {
    let slices = inventory.slices_of(&id)?;
    let newest = slices.values().map(|slice| slice.generation).max()?;
    let all: Vec<&Arc<Slice>> =
        slices.values().filter(|slice| slice.generation == newest).collect();
    let near: Vec<Arc<Slice>> =
        all.iter().filter(|slice| slice.concerns(node)).map(|slice| (*slice).clone()).collect();
    let n_slices = near.first()?.n_slices;
    let mut pool =
        Pool { id, state: PoolState::Ready, slices: Vec::new(), counters: BTreeMap::new() };
    if i64::try_from(all.len()) != Ok(n_slices) {
        pool.state = PoolState::Incomplete;
    } else if !is_valid(&near, &all) {
        pool.state = PoolState::Invalid;
    } else {
        pool.counters = counters_left(inventory, &pool.id, &all);
        pool.slices = near;
    }
    Some(pool)
}

/// Whether devices have distinct names and consume counters that exist.
fn is_valid(near: &[Arc<Slice>], all: &[&Arc<Slice>]) -> bool {
    let mut names = BTreeSet::new();
    let devices = near.iter().flat_map(|slice| &slice.devices);
    if !devices.into_iter().all(|device| names.insert(&device.name)) {
        return false;
    }
    let mut sets = BTreeMap::new();
    for (name, counters) in all.iter().flat_map(|slice| &slice.counters) {
        if sets.insert(name, counters).is_some() {
            return false;
        }
    }
    let devices = all.iter().flat_map(|slice| &slice.devices);
    devices.flat_map(|device| &device.consumes).all(|(set, consumed)| {
        sets.get(set)
            .is_some_and(|counters| consumed.keys().all(|name| counters.contains_key(name)))
    })
}

/// The counters of a pool without what devices in use consume.
fn counters_left(
    inventory: &Inventory,
    id: &PoolId,
    all: &[&Arc<Slice>],
) -> BTreeMap<String, Amounts> {
    let sets = all.iter().flat_map(|slice| &slice.counters).cloned();
    let mut left: BTreeMap<String, Amounts> = sets.collect();
    let Some(uses) = inventory.uses(id).filter(|_| !left.is_empty()) else { return left };
    let devices = all.iter().flat_map(|slice| &slice.devices);
    for device in devices.filter(|device| uses.of(&device.name).is_some()) {
        for (set, consumed) in &device.consumes {
            if let Some(counters) = left.get_mut(set) {
                subtract(counters, consumed);
            }
        }
    }
    left
}
