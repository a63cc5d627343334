//! The flows of one priority.

use std::collections::VecDeque;

use hashbrown::HashMap;

use super::{
    Place, Rank,
    flow::{Flow, Turn},
};

/// Number of flows of a level that stay when their last key has left.
pub(super) const FLOWS_MIN: usize = 64;

/// Index of a flow in [`Level::flows`].
type FlowIdx = u32;

/// The flows of one priority.
#[derive(Debug, Default)]
pub(super) struct Level {
    flows: Vec<Flow>,
    /// The flow of each group.
    by_group: HashMap<u64, FlowIdx>,
    /// Unused flows.
    free: Vec<FlowIdx>,
    /// The flow that was found last. Without groups it is always the same.
    last: FlowIdx,
    /// Flows that can be served, in the order of the round.
    round: VecDeque<FlowIdx>,
    /// Number of keys in the flows.
    pub(super) n_ready: usize,
    /// Number of dirty keys that return to this level.
    pub(super) n_dirty: usize,
}

impl Level {
    /// A level of dirty keys only.
    pub(super) fn of_dirty(n_dirty: usize) -> Self {
        Self { n_dirty, ..Self::default() }
    }

    /// The flow of `group`, if it has one.
    #[inline]
    fn find(&self, group: u64) -> Option<FlowIdx> {
        match self.flows.get(self.last as usize) {
            Some(flow) if flow.group == Some(group) => Some(self.last),
            _ => self.by_group.get(&group).copied(),
        }
    }

    #[cold]
    fn insert(&mut self, group: u64) -> FlowIdx {
        let flow = Flow::of(group);
        let at = match self.free.pop() {
            Some(at) => {
                self.flows[at as usize] = flow;
                at
            }
            None => {
                self.flows.push(flow);
                (self.flows.len() - 1) as FlowIdx
            }
        };
        self.by_group.insert(group, at);
        at
    }

    #[inline]
    pub(super) fn push(&mut self, place: Place, group: u64, weight: u32) {
        let at = self.find(group).unwrap_or_else(|| self.insert(group));
        self.last = at;
        let flow = &mut self.flows[at as usize];
        if flow.turn == Turn::None {
            flow.turn = Turn::InRound;
            self.round.push_back(at);
        }
        flow.weight = weight;
        flow.push(place);
        self.n_ready += 1;
    }

    /// Counts a stale entry in the flow of `group`. `is_live` returns whether an entry is live.
    pub(super) fn mark_stale(&mut self, group: u64, is_live: impl Fn(Place) -> bool) {
        let Some(at) = self.find(group) else { return };
        let flow = &mut self.flows[at as usize];
        flow.mark_stale(is_live);
        self.n_ready -= 1;
        if flow.is_empty() {
            self.leave_round(at);
        }
    }

    /// The key to serve next. Removes flows that cannot be served from the round.
    #[inline]
    pub(super) fn front(
        &mut self,
        ranks: &[Rank],
        may_serve: impl Fn(u64) -> bool,
    ) -> Option<Place> {
        while let Some(at) = self.round.front() {
            let flow = &mut self.flows[*at as usize];
            if flow.group.is_some_and(|group| !may_serve(group)) {
                flow.turn = Turn::Blocked;
                self.round.pop_front();
                continue;
            }
            match flow.front(ranks) {
                Some(place) => return Some(place),
                None => unreachable!("a flow without keys is not in the round"),
            }
        }
        None
    }

    /// Serves the key that [`front`](Self::front) returned.
    #[inline]
    pub(super) fn take(&mut self, place: Place) {
        let Some(at) = self.round.front().copied() else { return };
        let flow = &mut self.flows[at as usize];
        flow.pop(place);
        self.n_ready -= 1;
        if flow.deficit == 0 {
            flow.deficit = flow.weight;
        }
        flow.deficit -= 1;
        if flow.is_empty() {
            self.leave_round(at);
        } else if flow.deficit == 0 {
            self.round.rotate_left(1);
        }
    }

    /// Handles a flow without keys.
    fn leave_round(&mut self, at: FlowIdx) {
        if self.round.front() == Some(&at) {
            self.round.pop_front();
        } else {
            self.round.retain(|other| *other != at);
        }
        let flow = &mut self.flows[at as usize];
        if self.by_group.len() > FLOWS_MIN {
            if let Some(group) = flow.group {
                self.by_group.remove(&group);
            }
            *flow = Flow::default();
            self.free.push(at);
            if self.free.len() > FLOWS_MIN + self.flows.len() / 4 * 3 {
                self.compact();
            }
        } else {
            flow.end_turn();
        }
    }

    /// Frees the memory of unused flows.
    #[cold]
    fn compact(&mut self) {
        let mut moved = vec![0; self.flows.len()];
        let mut used = Vec::with_capacity(self.by_group.len());
        for (flow, at) in std::mem::take(&mut self.flows).into_iter().zip(0..) {
            if let Some(group) = flow.group {
                moved[at] = used.len() as FlowIdx;
                self.by_group.insert(group, used.len() as FlowIdx);
                used.push(flow);
            }
        }
        self.flows = used;
        self.free = Vec::new();
        self.round.iter_mut().for_each(|at| *at = moved[*at as usize]);
        self.last = 0;
    }

    /// Puts the flow of `group` back into the round. Returns whether it had left the round.
    pub(super) fn unblock(&mut self, group: u64) -> bool {
        let Some(at) = self.find(group) else { return false };
        let flow = &mut self.flows[at as usize];
        if flow.turn != Turn::Blocked {
            return false;
        }
        flow.turn = Turn::InRound;
        self.round.push_back(at);
        true
    }

    /// The key that has been ready for longest.
    pub(super) fn first(&self, ranks: &[Rank]) -> Option<Place> {
        self.flows.iter().filter_map(|flow| flow.first(ranks)).min()
    }

    /// All entries, including stale ones.
    pub(super) fn places(&self) -> impl Iterator<Item = Place> {
        self.flows.iter().flat_map(Flow::places)
    }
}
