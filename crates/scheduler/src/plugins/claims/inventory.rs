//! What is known of claims and devices, and who has which.
//!
//! # Theory
//!
//! | a claim is | because | its devices are in use |
//! |---|---|---|
//! | unallocated | nobody has chosen devices | – |
//! | pending | a cycle chose devices for a pod, or for several of a group; they are being written | yes |
//! | allocated | the watch shows devices, or this process has written them | yes |
//!
//! A pending claim stays so until the server shows its devices, or has said that it does not have
//! them, to each of its pods. Only the snapshot of a group's cycle lets further pods share it: no
//! pod that has it is bound yet there, so that all of them get it or none. What this process has
//! written is newer than what its watch shows for a while: an older state does not replace it.

use super::amount::{Amounts, add, subtract};
use super::claim::{Allocation, CONSUMERS_MAX, Claim};
use super::device::{Class, PoolId, Slice};
use super::pool::Facts;
use super::selector::Selectors;
use super::taint::TaintRule;
use imbl::{OrdMap, OrdSet};
use serde_json::Value;
use setpoint_runtime::Request;
use std::ops::Bound;
use std::sync::{Arc, OnceLock};

/// Claims, devices and their uses. A clone is a snapshot.
#[derive(Debug, Clone, Default)]
pub(crate) struct Inventory {
    claims: OrdMap<Request, Arc<Claim>>,
    /// Claims as this process wrote them, whose watch may be behind.
    own: OrdMap<Request, u64>,
    pending: OrdMap<Request, Arc<Pending>>,
    /// The pending claims that further pods of a cycle may share. None in the scheduler's state.
    shared: OrdSet<Request>,
    /// The pending claims of pods that are gone, by the keys of the pods.
    orphans: OrdSet<(Request, Request)>,
    pub(super) classes: OrdMap<Arc<str>, Arc<Class>>,
    slices: OrdMap<Arc<str>, Arc<Slice>>,
    pools: OrdMap<PoolId, PoolSlices>,
    /// The pools with slices of one node, by node, and how many.
    of_nodes: OrdMap<(Arc<str>, PoolId), usize>,
    /// The pools with other slices, and how many.
    of_others: OrdMap<PoolId, usize>,
    uses: OrdMap<PoolId, PoolUses>,
    /// The rules that taint devices, by name.
    pub(super) rules: OrdMap<Arc<str>, Arc<TaintRule>>,
    pub(super) selectors: Selectors,
}

/// The slices of a pool, of all generations, by name, and what follows from them.
#[derive(Debug, Clone, Default)]
pub(super) struct PoolSlices {
    slices: OrdMap<Arc<str>, Arc<Slice>>,
    /// Made when it is first needed, once for all nodes.
    facts: Arc<OnceLock<Facts>>,
}

impl PoolSlices {
    /// All slices, by name.
    pub(super) fn all(&self) -> &OrdMap<Arc<str>, Arc<Slice>> {
        &self.slices
    }

    /// What follows from them, once it is made.
    pub(super) fn facts(&self) -> Option<&Facts> {
        self.facts.get()
    }

    /// Takes in what follows from them. Other cycles may have made the same.
    pub(super) fn keep(&self, facts: Facts) {
        _ = self.facts.set(facts);
    }
}

/// What a claim gets, while it is written.
#[derive(Debug, Clone)]
struct Pending {
    claim: Arc<str>,
    /// The keys and uids of the pods that it is for, at least one.
    pods: Vec<(Request, Arc<str>)>,
    allocation: Arc<Allocation>,
    /// `status.allocation` as it is written.
    written: Arc<Value>,
}

impl Pending {
    fn is_for(&self, uid: &str) -> bool {
        self.pods.iter().any(|(_, pod)| **pod == *uid)
    }

    /// Whether a pod may have what it gets.
    fn has_room_for(&self, uid: &str) -> bool {
        self.pods.len() < CONSUMERS_MAX || self.is_for(uid)
    }
}

/// The devices of a pool that are in use.
#[derive(Debug, Clone, Default)]
pub(super) struct PoolUses {
    /// How often it has changed.
    version: u64,
    devices: OrdMap<Arc<str>, Uses>,
}

/// The uses of a device.
#[derive(Debug, Clone, Default)]
pub(super) struct Uses {
    n_owners: usize,
    n_shares: usize,
    /// What the shares consume.
    pub(super) consumed: Amounts,
}

impl PoolUses {
    /// The uses of a device, if there are any.
    pub(super) fn of(&self, device: &str) -> Option<&Uses> {
        self.devices.get(device)
    }

    /// The next device that is in use, by name.
    pub(super) fn device_after(&self, after: Option<Arc<str>>) -> Option<&Arc<str>> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.devices.range((start, Bound::Unbounded)).next().map(|(name, _)| name)
    }
}

impl Uses {
    /// Whether a claim has the device for itself.
    pub(super) fn is_owned(&self) -> bool {
        self.n_owners > 0
    }
}

/// What one claim of a pod gets with its node.
#[derive(Debug, Clone)]
pub(crate) struct Grant {
    pub(crate) claim: Request,
    pub(crate) uid: Arc<str>,
    /// `status.allocation` to write; `None`: it has one.
    pub(crate) allocation: Option<Arc<Value>>,
    /// Other pods get the same allocation, and one of them may have written it.
    pub(crate) is_shared: bool,
}

impl Grant {
    /// Whether `status.allocation` has the devices already, because another pod gets them, too.
    pub(crate) fn is_met_by(&self, allocation: &Value) -> bool {
        let devices = |allocation: &Value| Some(Allocation::read(allocation)?.devices);
        self.is_shared
            && self.allocation.as_ref().is_some_and(|own| devices(own) == devices(allocation))
    }
}

impl Inventory {
    pub(crate) fn claim(&self, key: &Request) -> Option<&Arc<Claim>> {
        self.claims.get(key)
    }

    /// Whether devices of a claim are being written.
    pub(super) fn is_pending(&self, key: &Request) -> bool {
        self.pending.contains_key(key)
    }

    /// Lets further pods of this snapshot share pending claims. Others are ignored.
    pub(crate) fn share<'a>(&mut self, claims: impl IntoIterator<Item = &'a Request>) {
        for key in claims {
            if self.pending.contains_key(key) {
                self.shared.insert(key.clone());
            }
        }
    }

    /// What a pending claim gets that a pod may share, also as it is written.
    pub(super) fn shared(
        &self,
        key: &Request,
        pod: &str,
    ) -> Option<(&Arc<Allocation>, &Arc<Value>)> {
        let pending = self.pending.get(key).filter(|_| self.shared.contains(key))?;
        pending.has_room_for(pod).then_some((&pending.allocation, &pending.written))
    }

    /// Whether a pending claim gets just these devices, and has room for a pod.
    pub(super) fn may_join(&self, key: &Request, allocation: &Arc<Allocation>, pod: &str) -> bool {
        let pending = self.pending.get(key);
        pending.is_some_and(|pending| {
            Arc::ptr_eq(&pending.allocation, allocation) && pending.has_room_for(pod)
        })
    }

    /// Lets a pod have what a pending claim gets.
    pub(super) fn join(&mut self, key: &Request, (pod_key, pod): (&Request, &Arc<str>)) {
        let Some(pending) = self.pending.get_mut(key) else { return };
        if !pending.is_for(pod) {
            Arc::make_mut(pending).pods.push((pod_key.clone(), pod.clone()));
        }
    }

    /// Takes in a claim as the watch shows it, or its absence. Returns whether it has changed, and
    /// whether devices are free now.
    pub(crate) fn put_claim(&mut self, key: &Request, claim: Option<Claim>) -> (bool, bool) {
        let before = self.claims.get(key).cloned();
        if let (Some(claim), Some(before), Some(written)) = (&claim, &before, self.own.get(key))
            && claim.uid == before.uid
            && claim.version < *written
            && claim.version > 0
        {
            return (false, false);
        }
        self.own.remove(key);
        self.replace(key, claim)
    }

    /// Takes in a claim as the server has answered this process. One that the watch has shown as
    /// gone, or in a later version, stays as it is.
    pub(crate) fn put_own_claim(&mut self, key: &Request, claim: Claim) {
        let before = self.claims.get(key).filter(|before| before.uid == claim.uid);
        if before.is_none_or(|before| before.version > claim.version) {
            return;
        }
        self.own.insert(key.clone(), claim.version);
        self.replace(key, Some(claim));
    }

    fn replace(&mut self, key: &Request, claim: Option<Claim>) -> (bool, bool) {
        let was_used = self.has_devices(key);
        self.count(key, false);
        let is_settled = |pending: &Pending| match &claim {
            Some(claim) => claim.uid != pending.claim || claim.allocation.is_some(),
            None => true,
        };
        if self.pending.get(key).is_some_and(|pending| is_settled(pending)) {
            self.settle(key);
        }
        let has_changed = match (&claim, self.claims.get(key)) {
            (Some(now), Some(before)) => !now.is_same(before),
            (None, None) => false,
            _ => true,
        };
        match claim {
            Some(claim) => _ = self.claims.insert(key.clone(), Arc::new(claim)),
            None => _ = self.claims.remove(key),
        }
        self.count(key, true);
        (has_changed, was_used && !self.has_devices(key))
    }

    /// What a claim has, or will have.
    fn allocation(&self, key: &Request) -> Option<Arc<Allocation>> {
        let pending = self.pending.get(key).map(|pending| pending.allocation.clone());
        pending.or_else(|| self.claims.get(key)?.allocation.clone())
    }

    fn has_devices(&self, key: &Request) -> bool {
        self.allocation(key).is_some_and(|allocation| !allocation.devices.is_empty())
    }

    /// Counts the devices of a claim as used, or no longer.
    fn count(&mut self, key: &Request, adds: bool) {
        let Some(allocation) = self.allocation(key) else { return };
        for allocated in allocation.devices.iter().filter(|allocated| !allocated.is_admin) {
            let mut pool = self.uses.remove(&allocated.pool).unwrap_or_default();
            pool.version += 1;
            let mut uses = pool.devices.remove(&allocated.device).unwrap_or_default();
            let step = |n: &mut usize| *n = if adds { *n + 1 } else { n.saturating_sub(1) };
            match (&allocated.share, adds) {
                (None, _) => step(&mut uses.n_owners),
                (Some(share), true) => {
                    step(&mut uses.n_shares);
                    add(&mut uses.consumed, share);
                }
                (Some(share), false) => {
                    step(&mut uses.n_shares);
                    subtract(&mut uses.consumed, share);
                }
            }
            if uses.n_owners + uses.n_shares > 0 {
                pool.devices.insert(allocated.device.clone(), uses);
            }
            // An unused pool keeps its version.
            self.uses.insert(allocated.pool.clone(), pool);
        }
    }

    /// The uses of a pool.
    pub(super) fn uses(&self, pool: &PoolId) -> Option<&PoolUses> {
        self.uses.get(pool)
    }

    /// Whether nothing has changed about the uses of a pool since a snapshot.
    pub(super) fn has_same_uses(&self, before: &Self, pool: &PoolId) -> bool {
        let version = |of: &Self| of.uses.get(pool).map_or(0, |uses| uses.version);
        version(self) == version(before)
    }

    /// Gives a claim its devices before the server has them.
    pub(super) fn allocate(
        &mut self,
        key: &Request,
        claim: &Claim,
        (allocation, written): (Arc<Allocation>, Arc<Value>),
        (pod_key, pod): (&Request, &Arc<str>),
    ) {
        self.count(key, false);
        let pods = vec![(pod_key.clone(), pod.clone())];
        let pending = Pending { claim: claim.uid.clone(), pods, allocation, written };
        self.pending.insert(key.clone(), Arc::new(pending));
        self.count(key, true);
    }

    /// The pending claims of a pod.
    fn pending_of(&self, claims: &[Request], pod: &str) -> Vec<Request> {
        let is_its =
            |key: &&Request| self.pending.get(*key).is_some_and(|pending| pending.is_for(pod));
        claims.iter().filter(is_its).cloned().collect()
    }

    /// The server does not have the devices of a pod's pending claims. Those that no other pod
    /// shares are pending no longer. Returns whether some are free now.
    pub(crate) fn forget(&mut self, claims: &[Request], pod: &str) -> bool {
        let mut has_freed = false;
        for key in self.pending_of(claims, pod) {
            let Some(pending) = self.pending.get_mut(&key) else { continue };
            if pending.pods.len() > 1 {
                let pods = &mut Arc::make_mut(pending).pods;
                for (left, _) in pods.extract_if(.., |(_, uid)| **uid == *pod) {
                    self.orphans.remove(&(left, key.clone()));
                }
                continue;
            }
            self.count(&key, false);
            self.settle(&key);
            self.count(&key, true);
            has_freed = true;
        }
        has_freed
    }

    fn settle(&mut self, key: &Request) {
        self.shared.remove(key);
        let Some(pending) = self.pending.remove(key) else { return };
        for (pod, _) in &pending.pods {
            self.orphans.remove(&(pod.clone(), key.clone()));
        }
    }

    /// A pod is gone while its claims may be being written: their writer finds out what the
    /// server has.
    pub(crate) fn orphan(&mut self, claims: &[Request], pod: &str) {
        for key in self.pending_of(claims, pod) {
            let pods = self.pending.get(&key).into_iter().flat_map(|pending| &pending.pods);
            let gone = pods.filter(|(_, uid)| **uid == *pod);
            self.orphans.extend(gone.map(|(pod, _)| (pod.clone(), key.clone())));
        }
    }

    /// The pending claims of pods of a key that are gone, with the uids of the pods.
    pub(crate) fn orphans(&self, pod: &Request) -> Vec<(Request, Arc<str>)> {
        let orphans = self.orphans.range((pod.clone(), Request::cluster(""))..);
        let orphans = orphans.take_while(|(of, _)| of == pod);
        let uid = |claim: &Request| {
            let pods = &self.pending.get(claim)?.pods;
            pods.iter().find(|(key, _)| key == pod).map(|(_, uid)| uid.clone())
        };
        orphans.filter_map(|(_, claim)| Some((claim.clone(), uid(claim)?))).collect()
    }

    /// Takes in a class, or its absence.
    pub(crate) fn put_class(&mut self, name: &Arc<str>, class: Option<Class>) {
        match class {
            Some(class) => _ = self.classes.insert(name.clone(), Arc::new(class)),
            None => _ = self.classes.remove(name),
        }
    }

    /// Takes in a rule that taints devices, or its absence. Returns whether that may have changed
    /// which devices can be had.
    pub(crate) fn put_rule(&mut self, name: &Arc<str>, rule: Option<TaintRule>) -> bool {
        let is_there = rule.is_some();
        let before = match rule {
            Some(rule) => self.rules.insert(name.clone(), Arc::new(rule)),
            None => self.rules.remove(name),
        };
        is_there || before.is_some()
    }

    /// Takes in a slice, or its absence.
    pub(crate) fn put_slice(&mut self, name: &Arc<str>, slice: Option<Slice>) {
        if let Some(before) = self.slices.remove(name) {
            self.index(name, &before, false);
        }
        let Some(slice) = slice.map(Arc::new) else { return };
        self.index(name, &slice, true);
        self.slices.insert(name.clone(), slice);
    }

    fn index(&mut self, name: &Arc<str>, slice: &Arc<Slice>, adds: bool) {
        let pool = &slice.pool;
        let mut slices = self.pools.remove(pool).unwrap_or_default();
        match adds {
            true => _ = slices.slices.insert(name.clone(), slice.clone()),
            false => _ = slices.slices.remove(name),
        }
        slices.facts = Arc::default();
        if !slices.slices.is_empty() {
            self.pools.insert(pool.clone(), slices);
        }
        match slice.only_node() {
            Some(node) => step(&mut self.of_nodes, (node.clone(), pool.clone()), adds),
            None => step(&mut self.of_others, pool.clone(), adds),
        }
    }

    /// The first pool after another one, by driver and name, that may concern a node.
    pub(super) fn pool_near(&self, node: &Arc<str>, after: Option<&PoolId>) -> Option<PoolId> {
        let start = match after {
            Some(after) => Bound::Excluded((node.clone(), after.clone())),
            None => Bound::Included((node.clone(), PoolId::new("", ""))),
        };
        let own = self.of_nodes.range((start, Bound::Unbounded)).next();
        let own = own.filter(|((of, _), _)| of == node).map(|((_, pool), _)| pool);
        let start = after.map_or(Bound::Unbounded, |after| Bound::Excluded(after.clone()));
        let other = self.of_others.range((start, Bound::Unbounded)).next().map(|(pool, _)| pool);
        own.into_iter().chain(other).min().cloned()
    }

    /// The slices of a pool.
    pub(super) fn slices_of(&self, pool: &PoolId) -> Option<&PoolSlices> {
        self.pools.get(pool)
    }
}

/// Counts one more, or one less, of a key. A key with none is not kept.
fn step<K: Clone + Ord>(counts: &mut OrdMap<K, usize>, key: K, adds: bool) {
    let n = counts.remove(&key).unwrap_or_default();
    let n = if adds { n + 1 } else { n.saturating_sub(1) };
    if n > 0 {
        counts.insert(key, n);
    }
}
