//! Due times of waiting keys.
//!
//! # Theory
//!
//! A binary heap with sixteen bytes per entry: the due time, a sequence number that orders equal
//! times by their adds, and the slot. Entries are never searched. A replaced or cancelled entry
//! stays and is *stale*: its slot no longer waits for that time, which is checked when the entry is
//! taken out. When more than half of the entries are stale they are removed, so the heap is never
//! longer than twice the number of waiting keys, plus [`STALE_MIN`].
//!
//! If many entries fall due together, popping each would sift the heap each time. So after a
//! sixteenth of the heap has been popped, the other due entries are taken out in one pass and
//! sorted. That pass costs no more than the pops before it.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{keys::SlotIdx, moment::Moment};

/// Up to this many stale entries are not removed.
const STALE_MIN: usize = 64;

/// Below this length popping is as fast as sorting.
const SORT_MIN: usize = 1024;

/// A heap with capacity of more than four times its length shrinks, down to this many entries.
const ROOM_MIN: usize = 1024;

/// A due time of a slot. Ordered by time, then by the order of adds (a number that wraps after four
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

    /// Counts a stale entry, and removes them if there are many. `is_waited_for` returns whether an
    /// entry is live.
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
        self.count_stale();
    }

    /// Counts a stale entry among those that were taken out.
    pub(super) fn count_stale(&mut self) {
        self.n_stale = self.n_stale.saturating_sub(1);
    }

    /// Takes out everything due by `now`, earliest first, including stale entries.
    pub(super) fn take_due(&mut self, now: Moment) -> Vec<Due> {
        let mut due_now = Vec::new();
        while let Some(Reverse(due)) = self.heap.peek()
            && due.at <= now
        {
            due_now.push(*due);
            self.heap.pop();
            if self.heap.len() >= SORT_MIN && due_now.len() * 16 >= self.heap.len() {
                let sorted = due_now.len();
                let mut rest = Vec::new();
                for Reverse(due) in std::mem::take(&mut self.heap) {
                    if due.at <= now { due_now.push(due) } else { rest.push(Reverse(due)) }
                }
                due_now[sorted..].sort_unstable();
                self.heap = rest.into();
                break;
            }
        }
        self.give_back();
        due_now
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
