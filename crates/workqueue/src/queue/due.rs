//! Which key falls due when.
//!
//! # Theory
//!
//! A binary heap of sixteen bytes an entry: the due time, a number that tells equal times apart by
//! the order of their adds, and the slot. Entries are never looked for. One that was replaced or
//! cancelled stays and is *stale*: the slot does not wait for that time any more, which whoever
//! meets it finds out by asking the slot. When more than half of the entries are stale they are
//! swept out, so the heap is never longer than twice the keys that wait, plus [`STALE_MIN`].
//!
//! Where many fall due together, popping each would sift the heap each time. So after a sixteenth
//! of the heap has been popped, the rest that is due is taken out in one pass and sorted: the pass
//! costs no more than what was done already.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{keys::SlotIdx, moment::Moment};

/// So many stale entries are not worth a sweep.
const STALE_MIN: usize = 64;

/// Below this length popping is as good as sorting.
const SORT_MIN: usize = 1024;

/// A heap with more room than four times its need gives the rest back, down to this many entries.
const ROOM_MIN: usize = 1024;

/// A due time of a slot; ordered by time, then by the order of adds (which starts over every four
/// billion).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Due {
    pub(super) at: Moment,
    tie: u32,
    pub(super) idx: SlotIdx,
}

#[derive(Debug, Default)]
pub(super) struct DueTimes {
    heap: BinaryHeap<Reverse<Due>>,
    tie: u32,
    n_stale: usize,
}

impl DueTimes {
    /// The earliest time of any entry, stale ones included.
    #[inline]
    pub(super) fn first(&self) -> Option<Due> {
        self.heap.peek().map(|Reverse(due)| *due)
    }

    #[inline]
    pub(super) fn insert(&mut self, at: Moment, idx: SlotIdx) {
        self.tie = self.tie.wrapping_add(1);
        self.heap.push(Reverse(Due { at, tie: self.tie, idx }));
    }

    /// An entry became stale. `is_waited_for` tells which are not.
    pub(super) fn expire(&mut self, is_waited_for: impl Fn(Due) -> bool) {
        self.n_stale += 1;
        if self.n_stale > STALE_MIN + self.heap.len() / 2 {
            self.heap.retain(|Reverse(due)| is_waited_for(*due));
            self.n_stale = 0;
            self.give_back();
        }
    }

    /// Removes the first entry, which is stale.
    pub(super) fn drop_stale(&mut self) {
        self.heap.pop();
        self.met_stale();
    }

    /// One of those that were taken out was stale.
    pub(super) fn met_stale(&mut self) {
        self.n_stale = self.n_stale.saturating_sub(1);
    }

    /// Takes out everything due by `now`, earliest first, stale entries included.
    pub(super) fn take_ripe(&mut self, now: Moment) -> Vec<Due> {
        let mut ripe = Vec::new();
        while let Some(Reverse(due)) = self.heap.peek()
            && due.at <= now
        {
            ripe.push(*due);
            self.heap.pop();
            if self.heap.len() >= SORT_MIN && ripe.len() * 16 >= self.heap.len() {
                let sorted = ripe.len();
                let mut rest = Vec::new();
                for Reverse(due) in std::mem::take(&mut self.heap) {
                    if due.at <= now { ripe.push(due) } else { rest.push(Reverse(due)) }
                }
                ripe[sorted..].sort_unstable();
                self.heap = rest.into();
                break;
            }
        }
        self.give_back();
        ripe
    }

    fn give_back(&mut self) {
        if self.heap.capacity() > ROOM_MIN && self.heap.capacity() / 4 > self.heap.len() {
            self.heap.shrink_to(self.heap.len() * 2);
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self { tie: self.tie, ..Self::default() };
    }
}
