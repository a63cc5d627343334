//! How many volumes of a CSI driver a node takes, as its CSINode says.
//!
//! A volume counts once, however many pods of the node use it. A claim that waits for its first
//! consumer counts for the driver of its class. An attached volume counts until it is detached,
//! also without a pod.

use super::Refusal;
use crate::cycle::Cycle;
use crate::node::{Node, NodeInfo};
use crate::pod::Pod;
use crate::view::View;
use setpoint_runtime::Request;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A volume of a CSI driver.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CsiVolume {
    driver: Arc<str>,
    id: Id,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Id {
    /// The driver's name of it.
    Handle(Arc<str>),
    /// A claim that has no volume yet.
    Claim(Request),
}

/// The volumes of CSI drivers among a pod's claims.
pub(crate) fn csi_volumes(view: &View, pod: &Pod) -> Vec<CsiVolume> {
    let of_claim = |name: &String| {
        let key = Request::new(pod.key.namespace.clone(), &**name);
        let claim = view.claims.get(&key)?;
        if let Some(volume) = view.volumes.get(&claim.volume) {
            let (driver, handle) = volume.csi.clone()?;
            return Some(CsiVolume { driver, id: Id::Handle(handle) });
        }
        let driver = view.late_classes.get(&claim.class)?.provisioner.clone();
        Some(CsiVolume { driver, id: Id::Claim(key) })
    };
    pod.spec.claims.iter().filter_map(of_claim).collect()
}

pub(super) fn filter(cycle: &Cycle, node: &Node, info: &NodeInfo) -> Result<(), Refusal> {
    let view = &cycle.view;
    if cycle.csi.is_empty() {
        return Ok(());
    }
    let Some(limits) = view.volume_limits.get(&node.name) else { return Ok(()) };
    let is_limited = |volume: &CsiVolume| limits.contains_key(&volume.driver);
    if !cycle.csi.iter().any(is_limited) {
        return Ok(());
    }
    let mut volumes: BTreeSet<CsiVolume> =
        info.pods.values().flat_map(|pod| csi_volumes(view, pod)).collect();
    let wanted: BTreeSet<&CsiVolume> =
        cycle.csi.iter().filter(|volume| !volumes.contains(volume)).collect();
    let wanted: Vec<CsiVolume> = wanted.into_iter().cloned().collect();
    let attachments = view.attachments.get(&node.name);
    volumes.extend(attachments.into_iter().flat_map(|all| all.values()).filter_map(|attachment| {
        let (_, handle) = view.volumes.get(&attachment.volume)?.csi.clone()?;
        Some(CsiVolume { driver: attachment.driver.clone(), id: Id::Handle(handle) })
    }));
    let mut counts: BTreeMap<&Arc<str>, i64> = BTreeMap::new();
    for volume in &volumes {
        *counts.entry(&volume.driver).or_default() += 1;
    }
    let mut new: BTreeMap<&Arc<str>, i64> = BTreeMap::new();
    for volume in &wanted {
        *new.entry(&volume.driver).or_default() += 1;
    }
    let fits = |(driver, n): (&&Arc<str>, &i64)| {
        let there = counts.get(*driver).copied().unwrap_or_default();
        limits.get(*driver).is_none_or(|limit| there + n <= *limit)
    };
    match new.iter().all(fits) {
        true => Ok(()),
        false => Err(Refusal::resolvable("node(s) exceed max volume count")),
    }
}
