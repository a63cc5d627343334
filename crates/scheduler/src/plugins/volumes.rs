//! Volumes: claims that are bound already, and claims that wait for their first consumer.

use super::Refusal;
use crate::cycle::Cycle;
use crate::node::{Node, NodeInfo};
use crate::pod::Pod;
use crate::view::{View, Volume};
use setpoint_runtime::Request;
use std::sync::Arc;

/// Whether the pod's claims exist and can be used; the message that holds for every node otherwise.
pub(crate) fn check_claims(view: &View, pod: &Pod) -> Result<(), String> {
    for name in &pod.spec.claims {
        let Some(claim) = view.claims.get(&Request::new(pod.key.namespace.clone(), &**name)) else {
            return Err(format!("persistentvolumeclaim {name:?} not found"));
        };
        if claim.is_deleting {
            return Err(format!("persistentvolumeclaim {name:?} is being deleted"));
        }
        if claim.volume.is_empty() && !view.late_classes.contains_key(&claim.class) {
            return Err("pod has unbound immediate PersistentVolumeClaims".to_owned());
        }
        if !claim.volume.is_empty() && !view.volumes.contains_key(&claim.volume) {
            let volume = &claim.volume;
            return Err(format!(
                "persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}"
            ));
        }
    }
    Ok(())
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
    match volumes(cycle).all(|volume| volume.has_affinity(node)) {
        true => Ok(()),
        false => Err(Refusal::lasting("node(s) didn't match PersistentVolume's node affinity")),
    }
}

pub(super) fn zone(cycle: &Cycle, node: &Node, _: &NodeInfo) -> Result<(), Refusal> {
    match volumes(cycle).all(|volume| volume.is_in_zone(node)) {
        true => Ok(()),
        false => Err(Refusal::lasting("node(s) had no available volume zone")),
    }
}
