//! What a pod gets with its node.

use crate::cycle::Cycle;
use crate::plugins::claims::Grant;
use crate::plugins::{self, Placement};
use crate::pod::Pod;
use crate::view::{Promise, View};
use std::sync::Arc;

/// A pod on its node, and what it gets there.
#[derive(Debug, Clone)]
pub(crate) struct Binding {
    pub(crate) pod: Arc<Pod>,
    /// What its claims get that wait for it.
    pub(crate) placed: Arc<[Placement]>,
    /// What its claims of devices get.
    pub(crate) grants: Arc<[Grant]>,
}

/// Puts the pod of a cycle on a node of a view, if it fits there. `is_again`: what the cycle
/// computed from other nodes is forgotten, and is not asked for.
pub(crate) fn place_in(
    view: &mut View,
    cycle: &Cycle,
    node: &Arc<str>,
    is_again: bool,
) -> Option<Binding> {
    let info = view.nodes.get(node)?;
    let found = info.node.as_ref()?;
    let fits = match is_again {
        true => plugins::filter_again(cycle, found, info),
        false => plugins::filter(cycle, found, info).is_ok(),
    };
    // The volumes of the snapshot may be taken by now.
    let placed = match cycle.late.is_empty() {
        true => Vec::new(),
        false => plugins::place(&plugins::check_claims(view, &cycle.pod).ok()?, found)?,
    };
    if !fits {
        return None;
    }
    let grants = match cycle.claims.is_empty() {
        true => Vec::new(),
        false => {
            let snapshot = &cycle.view.inventory;
            cycle.claims.grant(&mut view.inventory, snapshot, &cycle.pod, node)?
        }
    };
    let pod = Arc::new(cycle.pod.on(node));
    view.put_pod(pod.clone());
    for Placement { claim, volume } in &placed {
        let (pod, node, volume) = (pod.uid.clone(), node.clone(), volume.clone());
        view.make_promise(claim, Promise { pod, node, volume });
    }
    Some(Binding { pod, placed: placed.into(), grants: grants.into() })
}
