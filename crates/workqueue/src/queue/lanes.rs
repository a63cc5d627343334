//! The order of service with priorities and fair groups.
//!
//! # Theory
//!
//! There is a *level* per priority, in it a *flow* per group, and in it the keys in order of their
//! sequence numbers. A key gets a new number when it becomes ready. A key that was added again
//! while it was held got its number then, and goes back to that place.
//!
//! [`Priorities`] choose the next level. Deficit round robin chooses the flow: every key costs one,
//! and a flow may spend its group's weight per round. The number chooses the key.
//!
//! A key that is raised leaves a *stale* entry behind, whose number is no longer the key's number.
//! Stale entries are dropped when they come to the front. A flow of which more than two of five
//! entries are stale is swept, some entries at a time, so a flow holds at most twice its keys, plus
//! [`STALE_MIN`]. A level without keys is removed when there are more than [`LEVELS_MIN`], and a
//! flow when its level has more than [`FLOWS_MIN`](level::FLOWS_MIN).

mod flow;
mod level;

use std::{collections::BTreeMap, time::Duration};

use hashbrown::HashMap;

use self::level::Level;
use super::{
    keys::SlotIdx,
    moment::Moment,
    options::{Group, Priorities},
};

/// Up to this many stale entries of a flow are not swept.
const STALE_MIN: usize = 32;

/// Number of levels that stay when their last key has left, so that they are not rebuilt for keys
/// that come and go.
const LEVELS_MIN: usize = 16;

/// The place of a key in the order of service. One per slot.
#[derive(Debug, Clone, Copy)]
struct Rank {
    priority: i32,
    weight: u32,
    group: u64,
    seq: u64,
}

/// An entry of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    seq: u64,
    idx: SlotIdx,
}

/// Number of ready keys of a priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LevelStats {
    /// The priority.
    pub priority: i32,
    /// Ready keys, including those that a worker still holds: `workqueue_depth` with this priority.
    pub ready: usize,
    /// How long the first key of the level has been ready. Grows without bound if the level
    /// starves. `None` if all its keys are held, or without ages; see
    /// [`Builder::ages`](crate::Builder::ages).
    pub oldest: Option<Duration>,
}

#[derive(Debug)]
pub(super) struct Lanes {
    // Settings.
    priorities: Option<Priorities>,
    held_max: Option<u32>,

    // State.
    ranks: Vec<Rank>,
    levels: BTreeMap<i32, Level>,
    seq: u64,
    n_ready: usize,
    /// Number of held keys per group, if it is limited.
    held: HashMap<u64, u32>,
    /// Consecutive hand-outs that passed over an older key.
    n_passed_over: u32,
}

impl Lanes {
    pub(super) fn new(priorities: Option<Priorities>, held_max: Option<u32>) -> Self {
        Self {
            priorities,
            held_max,
            ranks: Vec::new(),
            levels: BTreeMap::new(),
            seq: 0,
            n_ready: 0,
            held: HashMap::new(),
            n_passed_over: 0,
        }
    }

    pub(super) fn has_priorities(&self) -> bool {
        self.priorities.is_some()
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.n_ready
    }

    #[inline]
    pub(super) fn priority(&self, idx: SlotIdx) -> i32 {
        self.ranks[idx as usize].priority
    }

    /// The priority of an add, if priorities count.
    fn effective_priority(&self, priority: i32) -> i32 {
        if self.has_priorities() { priority } else { 0 }
    }

    fn next_seq(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    /// A key gets a slot.
    #[inline]
    pub(super) fn enter(&mut self, idx: SlotIdx, priority: i32, group: Group) {
        let rank = Rank {
            priority: self.effective_priority(priority),
            weight: group.weight,
            group: group.id,
            seq: self.next_seq(),
        };
        match self.ranks.get_mut(idx as usize) {
            Some(old) => *old = rank,
            None => self.ranks.push(rank),
        }
    }

    /// A held key is added again, now or with a delay. The priority of its hand-out is dropped.
    pub(super) fn start_over(&mut self, idx: SlotIdx, priority: i32) {
        self.ranks[idx as usize].priority = self.effective_priority(priority);
    }

    /// A waiting key is added again.
    pub(super) fn raise_waiting(&mut self, idx: SlotIdx, priority: i32) {
        let priority = self.effective_priority(priority);
        let rank = &mut self.ranks[idx as usize];
        rank.priority = rank.priority.max(priority);
    }

    /// A key becomes ready.
    #[inline]
    pub(super) fn push(&mut self, idx: SlotIdx) {
        let seq = self.next_seq();
        self.ranks[idx as usize].seq = seq;
        self.place(idx);
    }

    #[inline]
    fn place(&mut self, idx: SlotIdx) {
        let Rank { priority, weight, group, seq } = self.ranks[idx as usize];
        let level = self.levels.entry(priority).or_default();
        level.push(Place { seq, idx }, group, weight);
        self.n_ready += 1;
    }

    /// A ready key is added again. Only a higher priority moves it, to the end of its new level.
    pub(super) fn raise_ready(&mut self, idx: SlotIdx, priority: i32) {
        let priority = self.effective_priority(priority);
        let rank = self.ranks[idx as usize];
        if priority <= rank.priority {
            return;
        }
        let seq = self.next_seq();
        self.ranks[idx as usize] = Rank { priority, seq, ..rank };
        let ranks = &self.ranks;
        if let Some(level) = self.levels.get_mut(&rank.priority) {
            level.mark_stale(rank.group, |place| ranks[place.idx as usize].seq == place.seq);
            self.n_ready -= 1;
            self.remove_if_empty(rank.priority);
        }
        self.place(idx);
    }

    /// A held key becomes dirty and gets its number.
    pub(super) fn mark_dirty(&mut self, idx: SlotIdx) {
        self.ranks[idx as usize].seq = self.next_seq();
        self.levels.entry(self.priority(idx)).or_default().n_dirty += 1;
    }

    /// A dirty key is added again.
    pub(super) fn raise_dirty(&mut self, idx: SlotIdx, priority: i32) {
        let priority = self.effective_priority(priority);
        if priority > self.priority(idx) {
            self.unmark_dirty(idx);
            self.ranks[idx as usize].priority = priority;
            self.mark_dirty(idx);
        }
    }

    fn unmark_dirty(&mut self, idx: SlotIdx) {
        let priority = self.priority(idx);
        if let Some(level) = self.levels.get_mut(&priority) {
            level.n_dirty -= 1;
            self.remove_if_empty(priority);
        }
    }

    /// A dirty key is given back: it goes to the place of its number.
    pub(super) fn push_dirty(&mut self, idx: SlotIdx) {
        self.unmark_dirty(idx);
        self.place(idx);
    }

    /// A dirty key is abandoned.
    pub(super) fn drop_dirty(&mut self, idx: SlotIdx) {
        self.unmark_dirty(idx);
    }

    /// The next key. `since` returns when a slot's key became ready, if ages are recorded.
    #[inline]
    pub(super) fn pop(&mut self, since: impl Fn(SlotIdx) -> Moment) -> Option<SlotIdx> {
        if self.n_ready == 0 {
            return None;
        }
        let (priority, place) = self.next_place(since)?;
        let level = self.levels.get_mut(&priority)?;
        level.take(place);
        self.n_ready -= 1;
        self.remove_if_empty(priority);
        if self.held_max.is_some() {
            *self.held.entry(self.ranks[place.idx as usize].group).or_insert(0) += 1;
        }
        Some(place.idx)
    }

    /// The next level, and which of its keys.
    #[inline]
    fn next_place(&mut self, since: impl Fn(SlotIdx) -> Moment) -> Option<(i32, Place)> {
        let (ranks, held, held_max) = (&self.ranks, &self.held, self.held_max);
        let may_serve =
            |group: u64| held_max.is_none_or(|max| held.get(&group).is_none_or(|held| *held < max));
        let mut fronts = self.levels.iter_mut().rev().filter_map(|(priority, level)| {
            level.front(ranks, may_serve).map(|place| (*priority, place))
        });
        let (highest, first) = fronts.next()?;
        match self.priorities {
            None | Some(Priorities::Strict) => Some((highest, first)),
            Some(Priorities::Ageing { step }) => {
                // A key that rises by one per step from `priority` at `since` overtakes any key
                // that starts later on the same line.
                let step = step.as_nanos().min(u128::from(u64::MAX)) as i128;
                let line = |(priority, place): (i32, Place)| {
                    i128::from(since(place.idx).0) - i128::from(priority) * step
                };
                let mut best = (line((highest, first)), (highest, first));
                for front in fronts {
                    if line(front) < best.0 {
                        best = (line(front), front);
                    }
                }
                Some(best.1)
            }
            Some(Priorities::Share { one_in }) => {
                let highest = (highest, first);
                let oldest =
                    fronts.fold(highest, |best, next| if next.1 < best.1 { next } else { best });
                if oldest == highest {
                    return Some(highest);
                }
                self.n_passed_over += 1;
                if self.n_passed_over < one_in.get() {
                    return Some(highest);
                }
                self.n_passed_over = 0;
                Some(oldest)
            }
        }
    }

    /// A key is given back. Returns whether this makes keys of its group ready again.
    #[inline]
    pub(super) fn release(&mut self, idx: SlotIdx) -> bool {
        let Some(max) = self.held_max else { return false };
        let group = self.ranks[idx as usize].group;
        let Some(held) = self.held.get_mut(&group) else { return false };
        let was_full = *held >= max;
        *held -= 1;
        if *held == 0 {
            self.held.remove(&group);
        }
        let mut is_freed = false;
        if was_full {
            for level in self.levels.values_mut() {
                is_freed |= level.unblock(group);
            }
        }
        is_freed
    }

    fn remove_if_empty(&mut self, priority: i32) {
        if self.levels.len() > LEVELS_MIN
            && self.levels.get(&priority).is_some_and(|level| level.n_ready + level.n_dirty == 0)
        {
            self.levels.remove(&priority);
        }
    }

    /// Empties the flows and returns their keys.
    pub(super) fn clear(&mut self) -> Vec<SlotIdx> {
        let ranks = &self.ranks;
        let levels = std::mem::take(&mut self.levels);
        let mut places: Vec<Place> = levels
            .values()
            .flat_map(Level::places)
            .filter(|place| ranks[place.idx as usize].seq == place.seq)
            .collect();
        // Sorted, because the order of a hash table is not deterministic.
        places.sort_unstable();
        for (priority, level) in levels {
            if level.n_dirty > 0 {
                self.levels.insert(priority, Level::of_dirty(level.n_dirty));
            }
        }
        self.n_ready = 0;
        places.into_iter().map(|place| place.idx).collect()
    }

    /// The levels, highest first.
    pub(super) fn stats(&self, age: impl Fn(SlotIdx) -> Option<Duration>) -> Vec<LevelStats> {
        self.levels
            .iter()
            .rev()
            .filter(|(_, level)| level.n_ready + level.n_dirty > 0)
            .map(|(priority, level)| LevelStats {
                priority: *priority,
                ready: level.n_ready + level.n_dirty,
                oldest: level.first(&self.ranks).and_then(|place| age(place.idx)),
            })
            .collect()
    }

    /// The key that has been ready for longest.
    pub(super) fn oldest(&self) -> Option<SlotIdx> {
        let firsts = self.levels.values().filter_map(|level| level.first(&self.ranks));
        firsts.min().map(|place| place.idx)
    }
}
