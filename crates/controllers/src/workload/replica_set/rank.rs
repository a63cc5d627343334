//! The order in which pods that are too many are deleted.

use super::{BY_CONTROLLER, Pod, Replicated};
use crate::readable::readable;
use setpoint_object::label::Selector;
use setpoint_object::time::Timestamp;
use setpoint_runtime::Client;
use setpoint_runtime::owner::controller_of;
use std::cmp::{Ordering, Reverse};
use std::collections::{HashMap, HashSet};

/// A pod's annotation: pods with lower numbers are deleted first. Default: 0.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The number of active pods of the owner and its siblings, the owners with the same controller, by
/// node.
pub(super) fn pods_by_node<O: Replicated>(client: &Client, owner: &O) -> HashMap<String, usize> {
    let namespace = owner.meta().namespace.as_deref().unwrap_or_default();
    let selectors: Vec<Selector> = match controller_of(owner) {
        None => owner.selector().into_iter().collect(),
        Some(controller) => {
            let siblings = client.api::<O>().select().namespace(namespace);
            let siblings = readable(&siblings.index(BY_CONTROLLER, &*controller.uid));
            siblings.iter().filter_map(|sibling| sibling.selector()).collect()
        }
    };
    let mut seen = HashSet::new();
    let mut by_node = HashMap::new();
    for selector in selectors {
        let pods = client.api::<Pod>().select().namespace(namespace).labels(selector);
        let pods = readable(&pods);
        for pod in pods.iter().filter(|pod| pod.is_active()) {
            if seen.insert(pod.uid().to_owned()) {
                *by_node.entry(pod.spec.node_name.clone()).or_insert(0) += 1;
            }
        }
    }
    by_node
}

/// Sorts pods, the first to be deleted first. The criteria, each for pods that are equal by those
/// before:
///
/// | first deleted | |
/// |---|---|
/// | not scheduled | |
/// | phase `Pending`, then `Unknown`, then `Running` | |
/// | not ready | |
/// | lower deletion cost | annotation `controller.kubernetes.io/pod-deletion-cost` |
/// | more active pods of the same owner and its siblings on the node | |
/// | ready for less time | times with the same binary logarithm are equal |
/// | more restarts | of the container with the most |
/// | newer | ages with the same binary logarithm are equal |
/// | smaller uid | so that the choice is arbitrary but stable |
///
/// In the reference the uid decides as soon as two times differ but have the same logarithm, which
/// is no order of more than two pods.
pub(super) fn sort(pods: &mut [&Pod], by_node: &HashMap<String, usize>, now: Timestamp) {
    pods.sort_by(|a, b| compare(a, b, by_node, now));
}

/// The order of two pods: `Less` if `a` is deleted before `b`.
pub(super) fn compare(
    a: &Pod,
    b: &Pod,
    by_node: &HashMap<String, usize>,
    now: Timestamp,
) -> Ordering {
    let rank = |pod: &Pod| by_node.get(&pod.spec.node_name).copied().unwrap_or_default();
    let by_state = |pod: &Pod| {
        let is_assigned = !pod.spec.node_name.is_empty();
        (is_assigned, phase(pod), pod.is_ready(), deletion_cost(pod), Reverse(rank(pod)))
    };
    let state = by_state(a).cmp(&by_state(b));
    if state.is_ne() {
        return state;
    }
    let by_age = |a, b| magnitude(a, now).cmp(&magnitude(b, now));
    let by_readiness = by_age(a.ready_since(), b.ready_since());
    by_readiness
        .then_with(|| b.restarts_max().cmp(&a.restarts_max()))
        .then_with(|| by_age(Some(a.created()), Some(b.created())))
        .then_with(|| a.uid().cmp(b.uid()))
}

/// The binary logarithm of an age. Without a time, or at once, it is the smallest.
fn magnitude(since: Option<Timestamp>, now: Timestamp) -> Option<u32> {
    now.since(since?).as_nanos().checked_ilog2()
}

fn phase(pod: &Pod) -> u8 {
    match &*pod.status.phase {
        "Pending" => 0,
        "Running" => 2,
        // `Unknown`, and what is not known.
        _ => 1,
    }
}

fn deletion_cost(pod: &Pod) -> i32 {
    let annotations = pod.metadata.annotations.as_ref();
    let cost = annotations.and_then(|annotations| annotations.get(DELETION_COST));
    cost.and_then(|cost| cost.parse().ok()).unwrap_or(0)
}
