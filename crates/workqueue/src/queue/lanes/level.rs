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
    /// Flows that can be served, in the order of the round, and *idle* flows: those whose last key
    /// was raised while other flows were before them.
    round: VecDeque<FlowIdx>,
    n_idle: usize,
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
        } else if flow.is_empty() {
            self.n_idle -= 1;
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
        if !flow.is_empty() {
            return;
        }
        if flow.turn == Turn::InRound {
            // Found when its turn comes: a search of the round for each raised key would be
            // quadratic in the number of groups.
            if self.round.front() != Some(&at) {
                self.n_idle += 1;
                if self.n_idle > FLOWS_MIN + self.round.len() / 2 {
                    self.sweep();
                }
                return;
            }
            self.round.pop_front();
        }
        self.release(at);
        self.compact_if_sparse();
    }

    /// Removes the idle flows from the round: a level that starves does not come to them.
    #[cold]
    fn sweep(&mut self) {
        let flows = &self.flows;
        let is_idle = |at: &FlowIdx| flows[*at as usize].is_empty();
        let idle: Vec<FlowIdx> = self.round.iter().copied().filter(is_idle).collect();
        self.round.retain(|at| !is_idle(at));
        self.n_idle = 0;
        idle.into_iter().for_each(|at| self.release(at));
        self.compact_if_sparse();
    }

    /// The key to serve next. Removes flows that cannot be served from the round.
    #[inline]
    pub(super) fn front(
        &mut self,
        ranks: &[Rank],
        may_serve: impl Fn(u64) -> bool,
    ) -> Option<Place> {
        while let Some(at) = self.round.front().copied() {
            let flow = &mut self.flows[at as usize];
            if flow.is_empty() {
                self.n_idle -= 1;
                self.round.pop_front();
                self.release(at);
                self.compact_if_sparse();
                continue;
            }
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
            self.round.pop_front();
            self.release(at);
            self.compact_if_sparse();
        } else if flow.deficit == 0 {
            self.round.rotate_left(1);
        }
    }

    /// Ends the turn of a flow without keys that is not in the round. Frees it if there are many.
    fn release(&mut self, at: FlowIdx) {
        let flow = &mut self.flows[at as usize];
        if self.by_group.len() > FLOWS_MIN {
            if let Some(group) = flow.group {
                self.by_group.remove(&group);
            }
            *flow = Flow::default();
            self.free.push(at);
        } else {
            flow.end_turn();
        }
    }

    /// Changes the indices of flows.
    fn compact_if_sparse(&mut self) {
        if self.free.len() > FLOWS_MIN + self.flows.len() / 4 * 3 {
            self.compact();
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

#[cfg(test)]
mod tests {
    use super::*;

    const N_GROUPS: u64 = 10_000;

    fn rank(seq: u64) -> Rank {
        Rank { priority: 0, weight: 1, group: seq, seq }
    }

    /// A level that starves: its keys are raised and it is never served.
    #[test]
    fn level_whose_keys_are_all_raised_has_a_bounded_round() {
        let mut level = Level::default();
        level.push(Place { seq: 0, idx: 0 }, 0, 1);
        for group in 1..N_GROUPS {
            level.push(Place { seq: group, idx: 1 }, group, 1);
            level.mark_stale(group, |_| false);
            assert!(level.round.len() <= 2 * FLOWS_MIN + 3, "{}", level.round.len());
            assert!(level.flows.len() <= 8 * FLOWS_MIN, "{}", level.flows.len());
        }
        assert_eq!(level.n_ready, 1);
        let ranks = [rank(0), rank(N_GROUPS)];
        assert_eq!(level.front(&ranks, |_| true), Some(Place { seq: 0, idx: 0 }));
    }

    /// Idle flows come back with a new key, are passed over, or are freed; the others take turns.
    #[test]
    fn idle_flows_are_passed_over_and_come_back() {
        let mut level = Level::default();
        let mut ranks: Vec<Rank> = (0..200).map(rank).collect();
        (0..200).for_each(|seq| level.push(Place { seq, idx: seq as u32 }, seq, 1));
        // All but every third key move to another level; the first of them comes back.
        for seq in (0..200).filter(|seq| seq % 3 != 0) {
            ranks[seq as usize].seq = 1_000;
            level.mark_stale(seq, |place| ranks[place.idx as usize].seq == place.seq);
        }
        ranks[1].seq = 500;
        level.push(Place { seq: 500, idx: 1 }, 1, 1);
        let mut served = Vec::new();
        while let Some(place) = level.front(&ranks, |_| true) {
            served.push(place.idx);
            level.take(place);
        }
        let expected = (0..200).filter(|idx| idx % 3 == 0 || *idx == 1);
        served.sort_unstable();
        assert_eq!(served, Vec::from_iter(expected));
        assert_eq!((level.n_ready, level.n_idle, level.round.len()), (0, 0, 0));
    }
}
