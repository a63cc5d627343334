//! Resources: what fits, and what is used evenly.

use super::{Refusal, SCORE_MAX};
use crate::cycle::Cycle;
use crate::node::{Node, NodeInfo};
use smallvec::SmallVec;
use std::borrow::Cow;

/// Refuses a node on which the pod does not fit.
pub(super) fn fit(cycle: &Cycle, node: &Node, info: &NodeInfo) -> Result<(), Refusal> {
    let (wanted, has, used) = (&cycle.pod.spec.requests, &node.allocatable, &info.requested);
    let mut reasons: SmallVec<[Cow<'static, str>; 1]> = SmallVec::new();
    let mut is_resolvable = true;
    if info.n_pods() >= node.pods_max {
        reasons.push("Too many pods".into());
        is_resolvable &= node.pods_max > 0;
    }
    let mut check = |name: Cow<'static, str>, wanted: i64, used: i64, has: i64| {
        if wanted > 0 && wanted > has.saturating_sub(used) {
            reasons.push(match name {
                Cow::Borrowed(text) => Cow::Borrowed(text),
                Cow::Owned(name) => format!("Insufficient {name}").into(),
            });
            // More than the node has at all.
            is_resolvable &= wanted <= has;
        }
    };
    check("Insufficient cpu".into(), wanted.cpu, used.cpu, has.cpu);
    check("Insufficient memory".into(), wanted.memory, used.memory, has.memory);
    check(
        "Insufficient ephemeral-storage".into(),
        wanted.ephemeral_storage,
        used.ephemeral_storage,
        has.ephemeral_storage,
    );
    for (name, amount) in &wanted.others {
        check(name.to_string().into(), *amount, used.other(name), has.other(name));
    }
    if reasons.is_empty() { Ok(()) } else { Err(Refusal { reasons, is_resolvable }) }
}

/// The part of CPU and memory that would remain free.
pub(super) fn least_allocated(cycle: &Cycle, node: &Node, info: &NodeInfo) -> f64 {
    let free = |has: i64, used: i64, wanted: i64| {
        let used = used.saturating_add(wanted);
        if has <= 0 || used > has { 0.0 } else { (has - used) as f64 / has as f64 }
    };
    let (has, wanted) = (&node.allocatable, cycle.pod.spec.scored);
    let cpu = free(has.cpu, info.scored.0, wanted.0);
    let memory = free(has.memory, info.scored.1, wanted.1);
    SCORE_MAX as f64 * (cpu + memory) / 2.0
}

/// How equal the used parts of CPU and memory would be.
pub(super) fn balanced(cycle: &Cycle, node: &Node, info: &NodeInfo) -> f64 {
    let part = |has: i64, used: i64, wanted: i64| {
        if has <= 0 { 1.0 } else { (used.saturating_add(wanted) as f64 / has as f64).min(1.0) }
    };
    let (has, wanted) = (&node.allocatable, &cycle.pod.spec.requests);
    let cpu = part(has.cpu, info.requested.cpu, wanted.cpu);
    let memory = part(has.memory, info.requested.memory, wanted.memory);
    SCORE_MAX as f64 * (1.0 - (cpu - memory).abs() / 2.0)
}
