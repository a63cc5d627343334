//! Due times of waiting keys.
//!
//! # Theory
//!
//! An entry has sixteen bytes: the due time, a sequence number that orders equal times by their
//! adds, and the slot. Entries are never searched. A replaced or cancelled entry stays and is
//! *stale*: its slot no longer waits for that time, which is checked when the entry is taken out.
//! When more than half of the entries are stale they are removed, so there are never more than
//! twice the number of waiting keys, plus [`STALE_MIN`].
//!
//! The lock must be held for a short time however many keys wait. So new entries go to a heap of at
//! most [`RUN_LEN`]. A full heap is sorted and becomes a *run*, and a second heap orders the runs
//! by their first entries. Only the removal of stale entries looks at all entries at once. A run is
//! read in sequence, while one large heap would be read all over memory. The last eighth of a run
//! goes back to the heap, so that entries that are due late do not keep many short runs.

use std::{
    cmp::{Ordering, Reverse},
    collections::{BinaryHeap, binary_heap::PeekMut},
    mem,
};

use super::{keys::SlotIdx, moment::Moment};

/// Length of a new run. Small in this crate's own tests, so that they cover runs.
const RUN_LEN: usize = if cfg!(test) { 8 } else { 4096 };

/// A run of this length is added to the heap again.
const RUN_MIN: usize = RUN_LEN / 8;

/// Up to this many stale entries are not removed.
const STALE_MIN: usize = 64;

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

/// Sorted entries. Ordered for a heap: the run with the earliest entry is the greatest.
#[derive(Debug)]
struct Run {
    first: Due,
    /// The others, the earliest last.
    rest: Vec<Due>,
}

impl Run {
    /// A run of these entries, the earliest last.
    fn of(mut entries: Vec<Due>) -> Option<Self> {
        let first = entries.pop()?;
        Some(Self { first, rest: entries })
    }

    fn len(&self) -> usize {
        1 + self.rest.len()
    }
}

impl Ord for Run {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        other.first.cmp(&self.first)
    }
}

impl PartialOrd for Run {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Run {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.first == other.first
    }
}

impl Eq for Run {}

#[derive(Debug, Default)]
pub(super) struct DueTimes {
    heap: BinaryHeap<Reverse<Due>>,
    runs: BinaryHeap<Run>,
    /// Number of entries in the runs.
    n_in_runs: usize,
    tie: u32,
    n_stale: usize,
}

impl DueTimes {
    /// The earliest time of any entry, stale ones included.
    #[inline]
    pub(super) fn first(&self) -> Option<Due> {
        let in_heap = self.heap.peek().map(|Reverse(due)| *due);
        match self.runs.peek() {
            Some(run) if in_heap.is_none_or(|in_heap| run.first < in_heap) => Some(run.first),
            _ => in_heap,
        }
    }

    #[inline]
    pub(super) fn insert(&mut self, at: Moment, idx: SlotIdx) {
        self.tie = self.tie.wrapping_add(1);
        self.push(Due { at, tie: self.tie, idx });
    }

    #[inline]
    fn push(&mut self, due: Due) {
        self.heap.push(Reverse(due));
        if self.heap.len() >= RUN_LEN {
            self.begin_run();
        }
    }

    #[cold]
    fn begin_run(&mut self) {
        let mut entries: Vec<Due> =
            mem::take(&mut self.heap).into_iter().map(|Reverse(due)| due).collect();
        entries.sort_unstable_by(|a, b| b.cmp(a));
        self.push_run(entries);
    }

    /// Adds a run of these entries, the earliest last; a short one to the heap.
    fn push_run(&mut self, entries: Vec<Due>) {
        if entries.len() <= RUN_MIN {
            entries.into_iter().for_each(|due| self.push(due));
        } else if let Some(run) = Run::of(entries) {
            self.n_in_runs += run.len();
            self.runs.push(run);
        }
    }

    /// Takes the first entry out if it is due by `now`.
    #[inline]
    fn pop_due(&mut self, now: Moment) -> Option<Due> {
        let first = self.first().filter(|first| first.at <= now)?;
        if self.heap.peek() == Some(&Reverse(first)) {
            self.heap.pop();
            return Some(first);
        }
        let mut run = self.runs.peek_mut()?;
        self.n_in_runs -= 1;
        if run.rest.len() > RUN_MIN
            && let Some(next) = run.rest.pop()
        {
            run.first = next;
            return Some(first);
        }
        let Run { rest, .. } = PeekMut::pop(run);
        self.n_in_runs -= rest.len();
        self.push_run(rest);
        Some(first)
    }

    /// Counts a stale entry, and removes them if there are many. `is_waited_for` returns whether an
    /// entry is live.
    pub(super) fn expire(&mut self, is_waited_for: impl Fn(Due) -> bool) {
        self.n_stale += 1;
        if self.n_stale > STALE_MIN + (self.heap.len() + self.n_in_runs) / 2 {
            self.heap.retain(|Reverse(due)| is_waited_for(*due));
            self.n_in_runs = 0;
            for Run { first, mut rest } in mem::take(&mut self.runs) {
                rest.push(first);
                rest.retain(|due| is_waited_for(*due));
                self.push_run(rest);
            }
            self.n_stale = 0;
            self.give_back();
        }
    }

    /// Removes the first entry, which is stale.
    pub(super) fn drop_stale(&mut self) {
        self.pop_due(Moment(i64::MAX));
        self.count_stale();
    }

    /// Counts a stale entry among those that were taken out.
    pub(super) fn count_stale(&mut self) {
        self.n_stale = self.n_stale.saturating_sub(1);
    }

    /// Takes out what is due by `now`, earliest first, including stale entries; at most `n_max`.
    pub(super) fn take_due(&mut self, now: Moment, n_max: usize) -> Vec<Due> {
        let mut due_now = Vec::new();
        while due_now.len() < n_max
            && let Some(due) = self.pop_due(now)
        {
            due_now.push(due);
        }
        self.give_back();
        due_now
    }

    fn give_back(&mut self) {
        if self.heap.capacity() > ROOM_MIN && self.heap.capacity() / 4 > self.heap.len() {
            self.heap.shrink_to(self.heap.len() * 2);
        }
        if self.runs.is_empty() {
            self.runs = BinaryHeap::new();
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self { tie: self.tie, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Entries come out like those of a sorted set, at most a half stays stale, and the runs
        /// stay long.
        #[test]
        fn due_times_are_taken_in_order(
            steps in proptest::collection::vec((0_u8..8, 0_i64..50, 0_usize..20), 0..400),
        ) {
            let mut due_times = DueTimes::default();
            let mut live = BTreeSet::new();
            let mut tie = 0;
            for (step, at, n) in steps {
                match step {
                    0..5 => for at in at..at + n as i64 {
                        tie += 1;
                        due_times.insert(Moment(at), tie);
                        live.insert(Due { at: Moment(at), tie, idx: tie });
                    },
                    5 => for _ in 0..n {
                        let Some(gone) = live.pop_last() else { break };
                        due_times.expire(|due| due != gone && live.contains(&due));
                    },
                    _ => {
                        let taken = due_times.take_due(Moment(at), n);
                        prop_assert!(taken.len() <= n);
                        for due in taken {
                            if live.contains(&due) {
                                prop_assert_eq!(live.pop_first(), Some(due));
                            } else {
                                due_times.count_stale();
                            }
                        }
                    }
                }
                prop_assert!(due_times.heap.len() < RUN_LEN);
                prop_assert!(due_times.runs.iter().all(|run| run.len() > RUN_MIN));
                let n_in_runs: usize = due_times.runs.iter().map(Run::len).sum();
                prop_assert_eq!(due_times.n_in_runs, n_in_runs);
                let n = due_times.heap.len() + n_in_runs;
                let is_bounded = n <= 2 * (live.len() + STALE_MIN) + 1;
                prop_assert!(step != 5 || is_bounded, "{} of {}", n, live.len());
            }
        }
    }
}
