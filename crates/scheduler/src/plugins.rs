//! The plug-ins: what each refuses and prefers.
//!
//! | plug-in | refuses a node that | prefers |
//! |---|---|---|
//! | `NodeUnschedulable` | is cordoned, unless the pod tolerates that | – |
//! | `NodeName` | is not the one that the pod names | – |
//! | `TaintToleration` | has a taint that the pod does not tolerate | fewer taints of effect `PreferNoSchedule` |
//! | `NodeAffinity` | does not fit `nodeSelector` or the required affinity | the preferred affinity |
//! | `NodePorts` | has a pod with the same host port | – |
//! | `NodeResourcesFit` | has not enough of a resource, or too many pods | more that is free |
//! | `VolumeRestrictions` | has a pod with the same disk, unless both only read; no node fits while another pod uses a claim of mode `ReadWriteOncePod` | – |
//! | `NodeVolumeLimits` | has as many volumes of a CSI driver as its CSINode allows | – |
//! | `VolumeBinding` | a volume's node affinity excludes, or has no volume for a claim that waits | – |
//! | `VolumeZone` | is not in a volume's zone | – |
//! | `PodTopologySpread` | would exceed a required skew | a smaller skew; without constraints, fewer pods of the same Service or owner on the node and in its zone |
//! | `InterPodAffinity` | breaks a rule of the pod, or of another pod | the preferred terms of both sides |
//! | `DynamicResources` | lacks devices for the pod's claims, or cannot use those that they have | earlier alternatives of requests |
//! | `NodeResourcesBalancedAllocation` | – | CPU and memory used in equal parts |
//!
//! The order, the weights and the messages are those of kube-scheduler's default profile.

use crate::cycle::Cycle;
use crate::node::{Node, NodeInfo, UNSCHEDULABLE};
use setpoint_object::taint::Taint;
use smallvec::{SmallVec, smallvec};
use std::borrow::Cow;

mod affinity;
pub(crate) mod claims;
mod company;
mod limits;
mod resources;
mod spread;
mod volumes;

pub(crate) use affinity::Affinity;
pub(crate) use company::Company;
pub(crate) use limits::{CsiVolume, csi_volumes};
pub(crate) use spread::Spreading;
pub(crate) use volumes::{Exclusive, LateClaim, Placement, check_claims, comparisons, place};

/// The best score of a plug-in.
pub(crate) const SCORE_MAX: i64 = 100;

/// Changes that may make a refused pod fit, as bits.
pub(crate) mod change {
    /// A node is new, or has changed.
    pub(crate) const NODE: u8 = 1;
    /// A pod has left its node, has ended, or takes less of it.
    pub(crate) const POD_GONE: u8 = 2;
    /// A pod was assigned, or the labels of an assigned one have changed.
    pub(crate) const POD_THERE: u8 = 4;
    /// A claim, a volume or a class is new, or has changed.
    pub(crate) const VOLUME: u8 = 8;
    /// A namespace has other labels.
    pub(crate) const NAMESPACE: u8 = 16;
    /// Devices have changed, or are free.
    pub(crate) const DEVICE: u8 = 32;
    /// A claim of devices has changed; counts for the pods that name it.
    pub(crate) const CLAIM: u8 = 64;
    /// A class of devices is new, or has changed.
    pub(crate) const CLASS: u8 = 128;
    /// Whatever may make a claim of devices fit.
    pub(crate) const DEVICES: u8 = NODE | DEVICE | CLAIM | CLASS;
}

/// Why a node is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) reasons: SmallVec<[Cow<'static, str>; 1]>,
    /// Whether the node might fit if pods left it.
    pub(crate) is_resolvable: bool,
}

impl Refusal {
    /// A refusal that preemption cannot resolve.
    pub(crate) fn lasting(reason: &'static str) -> Self {
        Self { reasons: smallvec![reason.into()], is_resolvable: false }
    }

    /// A refusal that preemption may resolve.
    pub(crate) fn resolvable(reason: &'static str) -> Self {
        Self { reasons: smallvec![reason.into()], is_resolvable: true }
    }
}

type Filter = fn(&Cycle, &Node, &NodeInfo) -> Result<(), Refusal>;
type Score = fn(&Cycle, &Node, &NodeInfo) -> f64;

/// How the scores of all nodes become 0 to [`SCORE_MAX`].
#[derive(Debug, Clone, Copy)]
pub(crate) enum Normalize {
    /// They are that already.
    No,
    /// In proportion to the largest.
    ByMax,
    /// In proportion to the largest; the largest becomes zero.
    Reversed,
    /// The smallest becomes zero, the largest the best.
    ByRange,
    /// The smallest becomes the best; what is no number becomes zero.
    BySkew,
}

/// A plug-in.
pub(crate) struct Plugin {
    pub(crate) filter: Option<Filter>,
    /// The weight, the score and its normalization.
    pub(crate) score: Option<(i64, Score, Normalize)>,
    /// Which changes may make a node fit that it refused.
    pub(crate) awaits: u8,
}

/// The plug-ins in the order in which they filter.
pub(crate) const PLUGINS: &[Plugin] = &[
    Plugin { filter: Some(node_unschedulable), score: None, awaits: change::NODE },
    Plugin { filter: Some(node_name), score: None, awaits: change::NODE },
    Plugin {
        filter: Some(taint_toleration),
        score: Some((3, taint_score, Normalize::Reversed)),
        awaits: change::NODE,
    },
    Plugin {
        filter: Some(node_affinity),
        score: Some((2, node_affinity_score, Normalize::ByMax)),
        awaits: change::NODE,
    },
    Plugin { filter: Some(node_ports), score: None, awaits: change::NODE | change::POD_GONE },
    Plugin {
        filter: Some(resources::fit),
        score: Some((1, resources::least_allocated, Normalize::No)),
        awaits: change::NODE | change::POD_GONE,
    },
    Plugin {
        filter: Some(volumes::restrictions),
        score: None,
        awaits: change::POD_GONE | change::VOLUME,
    },
    Plugin {
        filter: Some(limits::filter),
        score: None,
        awaits: change::NODE | change::POD_GONE | change::VOLUME,
    },
    Plugin { filter: Some(volumes::binding), score: None, awaits: change::NODE | change::VOLUME },
    Plugin { filter: Some(volumes::zone), score: None, awaits: change::NODE | change::VOLUME },
    Plugin {
        filter: Some(spread::filter),
        score: Some((2, spread::score, Normalize::BySkew)),
        awaits: change::NODE | change::POD_GONE | change::POD_THERE,
    },
    Plugin {
        filter: Some(affinity::filter),
        score: Some((2, affinity::score, Normalize::ByRange)),
        awaits: change::NODE | change::POD_GONE | change::POD_THERE | change::NAMESPACE,
    },
    Plugin {
        filter: Some(claims::filter),
        score: Some((2, claims::score, Normalize::ByMax)),
        awaits: change::DEVICES,
    },
    Plugin { filter: None, score: Some((1, resources::balanced, Normalize::No)), awaits: 0 },
];

/// Asks every filter about a node. The error has the changes to wait for.
pub(crate) fn filter(cycle: &Cycle, node: &Node, info: &NodeInfo) -> Result<(), (Refusal, u8)> {
    for plugin in PLUGINS {
        if let Some(filter) = plugin.filter {
            filter(cycle, node, info).map_err(|refusal| (refusal, plugin.awaits))?;
        }
    }
    Ok(())
}

/// Asks those filters again that look at nothing but the node and what is on it, without what
/// was computed from other nodes: all but those that another pod may help by its presence.
pub(crate) fn filter_again(cycle: &Cycle, node: &Node, info: &NodeInfo) -> bool {
    let local = PLUGINS.iter().filter(|plugin| plugin.awaits & change::POD_THERE == 0);
    local.filter_map(|plugin| plugin.filter).all(|filter| filter(cycle, node, info).is_ok())
}

impl Normalize {
    /// Normalizes one plug-in's scores of all nodes.
    pub(crate) fn apply(self, scores: &mut [f64]) {
        let max = scores.iter().copied().fold(f64::MIN, f64::max);
        let min = scores.iter().copied().fold(f64::MAX, f64::min);
        let best = SCORE_MAX as f64;
        for score in scores {
            *score = match self {
                Self::No => *score,
                Self::ByMax if max > 0.0 => best * *score / max,
                Self::Reversed if max > 0.0 => best - best * *score / max,
                Self::ByRange if max > min => best * (*score - min) / (max - min),
                Self::BySkew if score.is_nan() => 0.0,
                Self::BySkew if max > 0.0 => best * (max + min - *score) / max,
                Self::ByMax | Self::ByRange => 0.0,
                Self::Reversed | Self::BySkew => best,
            };
        }
    }
}

fn node_unschedulable(cycle: &Cycle, node: &Node, _: &NodeInfo) -> Result<(), Refusal> {
    let taint = || Taint {
        key: UNSCHEDULABLE.to_owned(),
        value: String::new(),
        effect: "NoSchedule".to_owned(),
        time_added: None,
    };
    if node.is_unschedulable && !cycle.tolerates(&taint()) {
        return Err(Refusal::lasting("node(s) were unschedulable"));
    }
    Ok(())
}

/// A pod that names its node is not scheduled; this only keeps nominations honest.
fn node_name(cycle: &Cycle, node: &Node, _: &NodeInfo) -> Result<(), Refusal> {
    if !cycle.pod.node.is_empty() && cycle.pod.node != node.name {
        return Err(Refusal::lasting("node(s) didn't match the requested node name"));
    }
    Ok(())
}

fn taint_toleration(cycle: &Cycle, node: &Node, _: &NodeInfo) -> Result<(), Refusal> {
    let is_refused = |taint: &Taint| taint.forbids() && !cycle.tolerates(taint);
    match node.taints.iter().any(is_refused) {
        true => Err(Refusal::lasting("node(s) had untolerated taint(s)")),
        false => Ok(()),
    }
}

fn taint_score(cycle: &Cycle, node: &Node, _: &NodeInfo) -> f64 {
    let soft = node.taints.iter().filter(|taint| taint.effect == "PreferNoSchedule");
    soft.filter(|taint| !cycle.tolerates(taint)).count() as f64
}

fn node_affinity(cycle: &Cycle, node: &Node, _: &NodeInfo) -> Result<(), Refusal> {
    match cycle.pod.spec.selects_node(&node.name, &node.labels) {
        true => Ok(()),
        false => Err(Refusal::lasting("node(s) didn't match Pod's node affinity/selector")),
    }
}

fn node_affinity_score(cycle: &Cycle, node: &Node, _: &NodeInfo) -> f64 {
    let preferred = cycle.pod.spec.preferred_nodes.iter();
    let matching = preferred.filter(|(_, term)| term.matches(&node.name, &node.labels));
    matching.map(|(weight, _)| *weight as f64).sum()
}

fn node_ports(cycle: &Cycle, _: &Node, info: &NodeInfo) -> Result<(), Refusal> {
    let wanted = &cycle.pod.spec.ports;
    match wanted.iter().any(|port| info.ports.keys().any(|used| used.conflicts(port))) {
        true => {
            Err(Refusal::resolvable("node(s) didn't have free ports for the requested pod ports"))
        }
        false => Ok(()),
    }
}
