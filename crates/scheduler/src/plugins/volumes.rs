//! Volumes: claims that are bound already, claims that wait for their first consumer, claims that
//! one pod may use at a time, and disks that pods of a node may not share.
//!
//! A claim that waits gets the smallest free volume of its class that fits it and the node. Without
//! one, the class must make volumes for the node.

use super::Refusal;
use crate::cycle::Cycle;
use crate::labels::HOSTNAME;
use crate::node::{Node, NodeInfo};
use crate::pod::Pod;
use crate::view::{LateClass, View, Volume};
use setpoint_runtime::Request;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A claim of a pod that waits for its first consumer.
#[derive(Debug, Clone)]
pub(crate) struct LateClaim {
    key: Request,
    class: Arc<LateClass>,
    /// The node that is chosen already; empty if none is.
    node: Arc<str>,
    /// The volume that it was promised with the node.
    promised: Option<Arc<str>>,
    free: Arc<FreeVolumes>,
}

/// The free volumes that fit a claim, the smallest first.
#[derive(Debug, Default)]
struct FreeVolumes {
    all: Vec<(Arc<str>, Arc<Volume>)>,
    /// Places in `all` by host name, of those that are limited to hosts.
    by_host: BTreeMap<String, Vec<usize>>,
    /// Places of the others.
    others: Vec<usize>,
}

impl FreeVolumes {
    fn new(all: Vec<(Arc<str>, Arc<Volume>)>) -> Self {
        let (mut by_host, mut others) = (BTreeMap::<_, Vec<_>>::new(), Vec::new());
        for (at, (_, volume)) in all.iter().enumerate() {
            match volume.hosts() {
                Some(hosts) => {
                    for host in hosts {
                        by_host.entry(host.to_owned()).or_default().push(at);
                    }
                }
                None => others.push(at),
            }
        }
        Self { all, by_host, others }
    }

    /// The first volume that a node can use, but none of these.
    fn for_node(&self, node: &Node, taken: &[Placement]) -> Option<&Arc<str>> {
        let is_taken = |name: &Arc<str>| taken.iter().any(|one| one.volume.as_ref() == Some(name));
        let fits = |at: &&usize| {
            self.all
                .get(**at)
                .is_some_and(|(name, volume)| volume.has_affinity(node) && !is_taken(name))
        };
        let of_host = node.labels.get(HOSTNAME).and_then(|host| self.by_host.get(host));
        let of_host = of_host.and_then(|places| places.iter().find(fits));
        let first = of_host.into_iter().chain(self.others.iter().find(fits)).min()?;
        self.all.get(*first).map(|(name, _)| name)
    }
}

/// What a late claim gets on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placement {
    pub(crate) claim: Request,
    /// A volume that exists; otherwise one is made.
    pub(crate) volume: Option<Arc<str>>,
}

/// The claims of the pod that wait for it, the smallest first.
///
/// # Errors
///
/// A claim does not exist or cannot be used: the message, which holds for every node.
pub(crate) fn check_claims(view: &View, pod: &Pod) -> Result<Vec<LateClaim>, String> {
    let mut late = Vec::new();
    for name in &pod.spec.claims {
        let key = Request::new(pod.key.namespace.clone(), &**name);
        let is_own = pod.spec.own_claims.contains(name);
        let Some(claim) = view.claims.get(&key) else {
            return Err(match is_own {
                true => format!(
                    "waiting for ephemeral volume controller to create the persistentvolumeclaim {name:?}"
                ),
                false => format!("persistentvolumeclaim {name:?} not found"),
            });
        };
        if is_own && claim.controller != pod.uid {
            return Err(format!(
                "PVC {key} was not created for pod {} (pod is not owner)",
                pod.key
            ));
        }
        if claim.is_deleting {
            return Err(format!("persistentvolumeclaim {name:?} is being deleted"));
        }
        if !claim.volume.is_empty() {
            if !view.volumes.contains_key(&claim.volume) {
                let volume = &claim.volume;
                return Err(format!(
                    "persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}"
                ));
            }
            continue;
        }
        let class = view.late_classes.get(&claim.class).filter(|_| !claim.is_named);
        let Some(class) = class else {
            return Err("pod has unbound immediate PersistentVolumeClaims".to_owned());
        };
        let promise = view.promise(&key);
        // A volume is being made, unless the node is gone.
        let selected = Some(&claim.selected_node).filter(|name| {
            class.provisions && view.nodes.get(*name).is_some_and(|info| info.node.is_some())
        });
        let node = promise.map(|promise| &promise.node).or(selected).cloned().unwrap_or_default();
        let free = match node.is_empty() {
            true => free_volumes(view, claim),
            false => FreeVolumes::default(),
        };
        late.push((
            claim.amount.clone(),
            LateClaim {
                key,
                class: class.clone(),
                node,
                promised: promise.and_then(|promise| promise.volume.clone()),
                free: Arc::new(free),
            },
        ));
    }
    late.sort_by(|(one, _), (other, _)| one.compare(other));
    Ok(late.into_iter().map(|(_, claim)| claim).collect())
}

/// The free volumes that fit a claim.
fn free_volumes(view: &View, claim: &crate::view::Claim) -> FreeVolumes {
    let of_class = view.free_volumes.range((claim.class.clone(), Arc::default())..);
    let of_class = of_class.take_while(|((class, _), _)| *class == claim.class);
    let fitting = of_class.filter(|((_, name), _)| !view.is_promised(name));
    let mut fitting: Vec<_> = fitting
        .filter_map(|((_, name), volume)| Some((volume.capacity_for(claim)?, name, volume)))
        .collect();
    fitting.sort_by(|(one, a, _), (other, b, _)| one.compare(other).then_with(|| a.cmp(b)));
    let named = fitting.into_iter().map(|(_, name, volume)| (name.clone(), volume.clone()));
    FreeVolumes::new(named.collect())
}

/// What late claims get on a node; `None` if the node has not what they need.
pub(crate) fn place(late: &[LateClaim], node: &Node) -> Option<Vec<Placement>> {
    let mut placed: Vec<Placement> = Vec::with_capacity(late.len());
    for LateClaim { key, class, node: chosen, promised, free } in late {
        if !chosen.is_empty() && *chosen != node.name {
            return None;
        }
        let volume = match promised {
            Some(volume) => Some(volume),
            None if chosen.is_empty() => free.for_node(node, &placed),
            None => None,
        };
        if volume.is_none() && chosen.is_empty() && !class.provisions_for(node) {
            return None;
        }
        let volume = volume.cloned();
        placed.push(Placement { claim: key.clone(), volume });
    }
    Some(placed)
}

/// The volumes that may have to be compared with each node.
pub(crate) fn comparisons(late: &[LateClaim]) -> usize {
    late.iter().map(|claim| claim.free.others.len()).sum()
}

/// The pod's claims that one pod may use at a time, and their uses by pods on nodes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Exclusive {
    claims: Vec<String>,
    n_uses: i64,
}

impl Exclusive {
    pub(crate) fn new(view: &View, pod: &Pod) -> Self {
        let is_exclusive = |name: &&String| {
            let claim = view.claims.get(&Request::new(pod.key.namespace.clone(), &***name));
            claim.is_some_and(|claim| claim.is_exclusive())
        };
        let claims = pod.spec.claims.iter().filter(is_exclusive).cloned().collect();
        Self { claims, n_uses: 0 }
    }

    /// Whether there are no such claims.
    pub(crate) fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }

    /// Counts the pods of one node.
    pub(crate) fn add_node(&mut self, pod: &Pod, info: &NodeInfo) {
        if !self.is_empty() {
            for other in info.pods.values() {
                self.add_pod(pod, other, 1);
            }
        }
    }

    /// Adds or removes one pod on a node.
    pub(crate) fn add_pod(&mut self, pod: &Pod, other: &Pod, sign: i64) {
        if other.key.namespace != pod.key.namespace {
            return;
        }
        for name in &other.spec.claims {
            if self.claims.contains(name) {
                self.n_uses += sign;
            }
        }
    }
}

pub(super) fn restrictions(cycle: &Cycle, _: &Node, info: &NodeInfo) -> Result<(), Refusal> {
    let disks = &cycle.pod.spec.disks;
    let mut used = info.pods.values().flat_map(|pod| &pod.spec.disks);
    if !disks.is_empty() && used.any(|used| disks.iter().any(|disk| disk.conflicts(used))) {
        return Err(Refusal::resolvable("node(s) had no available disk"));
    }
    match cycle.exclusive.n_uses > 0 {
        true => Err(Refusal::resolvable(
            "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod",
        )),
        false => Ok(()),
    }
}

/// The bound volumes of the pod.
fn volumes(cycle: &Cycle) -> impl Iterator<Item = &Arc<Volume>> {
    let (view, pod) = (&cycle.view, &cycle.pod);
    pod.spec.claims.iter().filter_map(move |name| {
        let claim = view.claims.get(&Request::new(pod.key.namespace.clone(), &**name))?;
        view.volumes.get(&claim.volume)
    })
}

pub(super) fn binding(cycle: &Cycle, node: &Node, _: &NodeInfo) -> Result<(), Refusal> {
    if !volumes(cycle).all(|volume| volume.has_affinity(node)) {
        return Err(Refusal::lasting("node(s) didn't match PersistentVolume's node affinity"));
    }
    match cycle.late.is_empty() || place(&cycle.late, node).is_some() {
        true => Ok(()),
        false => Err(Refusal::lasting("node(s) didn't find available persistent volumes to bind")),
    }
}

pub(super) fn zone(cycle: &Cycle, node: &Node, _: &NodeInfo) -> Result<(), Refusal> {
    match volumes(cycle).all(|volume| volume.is_in_zone(node)) {
        true => Ok(()),
        false => Err(Refusal::lasting("node(s) had no available volume zone")),
    }
}
