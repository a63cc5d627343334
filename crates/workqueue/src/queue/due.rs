//! Due times of waiting keys.
//!
//! # Theory
//!
//! An entry has sixteen bytes: the due time, a sequence number that orders equal times by their
//! adds, and the slot. Entries are never searched. A replaced or cancelled entry stays and is
//! *stale*: its slot no longer waits for that time, which is checked when the entry is taken out.
//! When more than two of five entries are stale, a *sweep* removes them. There are never more
//! entries than twice the number of waiting keys, plus [`STALE_MIN`].
//!
//! The lock must be held for a short time however many keys wait. So new entries go to a heap of at
//! most [`RUN_LEN`]. A full heap is sorted and becomes a *run*, and a second heap orders the runs
//! by their first entries. A run is read in sequence, while one large heap would be read all over
//! memory. The last eighth of a run goes back to the heap, so that entries that are due late do not
//! keep many short runs.
//!
//! A sweep looks at the heap and sets the runs aside. Each further stale entry pays for
//! [`SWEEP`] of their entries; a run that is paid for is swept, and is one of the runs again. So
//! nothing looks at more than [`RUN_LEN`] entries at once, and a sweep ends before a sixteenth of
//! the entries have become stale meanwhile.

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

/// Number of entries that a sweep looks at for each entry that becomes stale.
const SWEEP: usize = 16;

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
    /// Runs that are still to be swept.
    unswept: BinaryHeap<Run>,
    /// Number of entries in the runs of both kinds.
    n_in_runs: usize,
    tie: u32,
    n_stale: usize,
    /// How many entries have become stale since the last sweep began.
    n_new_stale: usize,
    /// Number of entries that the sweep may look at.
    paid: usize,
}

/// The earlier one of an entry and the first of the runs.
#[inline]
fn earlier(due: Option<Due>, runs: &BinaryHeap<Run>) -> Option<Due> {
    match runs.peek() {
        Some(run) if due.is_none_or(|due| run.first < due) => Some(run.first),
        _ => due,
    }
}

impl DueTimes {
    /// The earliest time of any entry, stale ones included.
    #[inline]
    pub(super) fn first(&self) -> Option<Due> {
        let in_heap = self.heap.peek().map(|Reverse(due)| *due);
        earlier(earlier(in_heap, &self.runs), &self.unswept)
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
        let is_unswept = self.unswept.peek().is_some_and(|run| run.first == first);
        // Entries that are not swept do not go back to the heap.
        let (runs, min) =
            if is_unswept { (&mut self.unswept, 0) } else { (&mut self.runs, RUN_MIN) };
        let mut run = runs.peek_mut()?;
        self.n_in_runs -= 1;
        if run.rest.len() > min
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

    /// Counts a stale entry, and begins a sweep if there are many, or goes on with it.
    /// `is_waited_for` returns whether an entry is live.
    pub(super) fn expire(&mut self, is_waited_for: impl Fn(Due) -> bool) {
        self.n_stale += 1;
        self.n_new_stale += 1;
        if !self.unswept.is_empty() {
            self.sweep(is_waited_for);
            return;
        }
        // What was stale before the last sweep is gone.
        self.n_stale = self.n_stale.min(self.n_new_stale);
        if self.n_stale > STALE_MIN + self.len() / 5 * 2 {
            self.begin_sweep(is_waited_for);
        }
    }

    /// Number of entries, stale ones included.
    fn len(&self) -> usize {
        self.heap.len() + self.n_in_runs
    }

    #[cold]
    fn begin_sweep(&mut self, is_waited_for: impl Fn(Due) -> bool) {
        let n = self.heap.len();
        self.heap.retain(|Reverse(due)| is_waited_for(*due));
        self.n_stale = self.n_stale.saturating_sub(n - self.heap.len());
        self.unswept = mem::take(&mut self.runs);
        self.n_new_stale = 0;
        self.paid = 0;
        self.give_back();
    }

    /// Sweeps the runs that are paid for.
    #[cold]
    fn sweep(&mut self, is_waited_for: impl Fn(Due) -> bool) {
        self.paid += SWEEP;
        while self.unswept.peek().is_some_and(|run| run.len() <= self.paid) {
            let Some(Run { first, mut rest }) = self.unswept.pop() else { return };
            rest.push(first);
            let n = rest.len();
            self.paid -= n;
            self.n_in_runs -= n;
            rest.retain(|due| is_waited_for(*due));
            self.n_stale = self.n_stale.saturating_sub(n - rest.len());
            self.push_run(rest);
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
        for runs in [&mut self.runs, &mut self.unswept] {
            if runs.is_empty() {
                *runs = BinaryHeap::new();
            }
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self { tie: self.tie, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, collections::BTreeSet};

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Entries come out like those of a sorted set, at most a half stays stale, the runs stay
        /// long, and an entry that becomes stale has few others looked at.
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
                        let n_seen = Cell::new(0);
                        due_times.expire(|due| {
                            n_seen.set(n_seen.get() + 1);
                            due != gone && live.contains(&due)
                        });
                        prop_assert!(n_seen.get() < RUN_LEN + SWEEP, "{}", n_seen.get());
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
                let all_runs = due_times.runs.iter().chain(&due_times.unswept);
                let n_in_runs: usize = all_runs.map(Run::len).sum();
                prop_assert_eq!(due_times.n_in_runs, n_in_runs);
                let n = due_times.heap.len() + n_in_runs;
                let is_bounded = n <= 2 * (live.len() + STALE_MIN) + 1;
                prop_assert!(step != 5 || is_bounded, "{} of {}", n, live.len());
            }
        }
    }
}
