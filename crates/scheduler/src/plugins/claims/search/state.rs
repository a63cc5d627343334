//! The state of a search: what was chosen, what is looked for, what is known.

use super::super::amount::Amounts;
use super::super::claim::{Claim, Mode, Wanted};
use super::super::device::Class;
use super::super::inventory::Inventory;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is known of an alternative.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) class: Arc<Class>,
    /// How many devices it needs.
    pub(super) n: usize,
    /// Which, if it wants all.
    pub(super) all: Option<Vec<usize>>,
    /// Whether the expressions select a device, as far as they were asked.
    pub(super) selects: BTreeMap<usize, bool>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Phase {
    /// Looks for the devices of requests for all.
    List(Position),
    Forward(Position),
    Back(Dead),
}

/// What is looked for next.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Position {
    pub(super) claim: usize,
    pub(super) request: usize,
    /// `None`: an alternative is to be chosen.
    pub(super) alternative: Option<usize>,
    /// How many devices the request has.
    pub(super) n: usize,
    /// The place to look at next.
    pub(super) place: usize,
}

/// Why there is no way forward.
#[derive(Debug, Clone, Copy)]
pub(super) enum Dead {
    NoDevice,
    /// A claim would have too many devices, whichever are chosen.
    TooMany(usize),
}

#[derive(Debug)]
pub(super) enum Frame {
    /// An alternative was chosen.
    Choice { at: Position, all_too_many: bool },
    /// A device was given.
    Pick { at: Position, is_all: bool, undo: Undo },
}

#[derive(Debug)]
pub(super) struct Undo {
    /// Which constraints compare the device.
    pub(super) constraints: Vec<usize>,
    /// It consumes counters.
    pub(super) counts: bool,
    /// What the share consumes.
    pub(super) share: Option<Amounts>,
}

/// A device that a claim gets.
#[derive(Debug, Clone)]
pub(in super::super) struct Picked {
    pub(super) place: usize,
    pub(in super::super) request: usize,
    pub(in super::super) alternative: usize,
    pub(in super::super) share: Option<Amounts>,
}

/// What is known of the requests of a claim at first.
pub(super) fn plans(inventory: &Inventory, claim: &Claim) -> Vec<Vec<Plan>> {
    let plan = |wanted: &Wanted| {
        let class = inventory.classes.get(&wanted.class)?.clone();
        let (n, all) = match wanted.mode {
            Mode::Exactly(n) => (n, None),
            Mode::All | Mode::Unknown(_) => (0, Some(Vec::new())),
        };
        Some(Plan { class, n, all, selects: BTreeMap::new() })
    };
    let requests = claim.spec.requests.iter();
    requests.map(|request| request.alternatives.iter().filter_map(plan).collect()).collect()
}
