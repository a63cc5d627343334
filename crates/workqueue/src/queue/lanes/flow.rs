//! The keys of one group at one priority.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

use super::{Place, Rank, STALE_MIN};

/// Number of entries that a sweep looks at for each entry that becomes stale or is taken.
const SWEEP: usize = 16;

/// Capacity that an empty flow keeps.
const ROOM_MIN: usize = 64;

/// The state of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Turn {
    /// It has no keys.
    #[default]
    None,
    /// It is in the round.
    InRound,
    /// It has keys, but its group has reached its limit of keys in flight: it has left the round.
    Blocked,
}

/// The keys of one group at one priority, in the order of their sequence numbers.
#[derive(Debug, Default)]
pub(super) struct Flow {
    /// The group of the keys; `None` if the flow is free.
    pub(super) group: Option<u64>,
    /// In order of sequence numbers.
    in_order: VecDeque<Place>,
    /// Keys with a number below the last one's. Few, because a worker held each of them.
    returned: BinaryHeap<Reverse<Place>>,
    n_stale: usize,
    sweep: Option<Sweep>,
    /// Number of keys it may still have served in this turn; zero before a turn.
    pub(super) deficit: u32,
    pub(super) weight: u32,
    pub(super) turn: Turn,
}

/// A sweep of a flow. It looks at some entries at a time, so that the lock is held for a short time
/// however many keys are queued.
#[derive(Debug, Default)]
struct Sweep {
    /// Of the entries that it has looked at, those before this one are kept. The others are stale.
    kept: usize,
    /// The next entry to look at. Never past the last one.
    next: usize,
}

impl Sweep {
    /// The first entry has left.
    fn shift(&mut self) {
        self.kept = self.kept.saturating_sub(1);
        self.next = self.next.saturating_sub(1);
    }
}

impl Flow {
    pub(super) fn of(group: u64) -> Self {
        Self { group: Some(group), ..Self::default() }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.in_order.len() + self.returned.len() == self.n_stale
    }

    /// Ends its turn when its last key has left: drops the remaining deficit, and frees excess
    /// capacity.
    pub(super) fn end_turn(&mut self) {
        self.deficit = 0;
        self.turn = Turn::None;
        self.n_stale = 0;
        self.sweep = None;
        self.in_order.clear();
        self.in_order.shrink_to(ROOM_MIN);
        self.returned.clear();
        self.returned.shrink_to(ROOM_MIN);
    }

    #[inline]
    pub(super) fn push(&mut self, place: Place) {
        if self.in_order.back().is_none_or(|last| *last < place) {
            self.in_order.push_back(place);
        } else {
            self.returned.push(Reverse(place));
        }
    }

    /// Counts a stale entry. `is_live` returns whether an entry is live.
    pub(super) fn mark_stale(&mut self, is_live: impl Fn(Place) -> bool) {
        self.n_stale += 1;
        self.sweep(is_live);
    }

    /// Begins a sweep if there are many stale entries, or goes on with it.
    fn sweep(&mut self, is_live: impl Fn(Place) -> bool) {
        let n = self.in_order.len() + self.returned.len();
        if self.sweep.is_none() && self.n_stale > STALE_MIN + n / 5 * 2 {
            let n_returned = self.returned.len();
            self.returned.retain(|Reverse(place)| is_live(*place));
            self.n_stale -= n_returned - self.returned.len();
            self.sweep = (!self.in_order.is_empty()).then(Sweep::default);
        }
        self.go_on(is_live);
    }

    /// Looks at the next entries of the sweep.
    fn go_on(&mut self, is_live: impl Fn(Place) -> bool) {
        let Some(Sweep { kept, next }) = &mut self.sweep else { return };
        for _ in 0..SWEEP {
            if is_live(self.in_order[*next]) {
                self.in_order.swap(*kept, *next);
                *kept += 1;
            }
            *next += 1;
            if *next == self.in_order.len() {
                self.n_stale -= *next - *kept;
                self.in_order.truncate(*kept);
                self.sweep = None;
                return;
            }
        }
    }

    /// The first key. Drops stale entries before it.
    #[inline]
    pub(super) fn front(&mut self, ranks: &[Rank]) -> Option<Place> {
        let is_live = |place: Place| ranks[place.idx as usize].seq == place.seq;
        if self.n_stale > STALE_MIN {
            self.sweep(is_live);
        }
        while let Some(place) = self.in_order.front()
            && !is_live(*place)
        {
            self.drop_front();
        }
        while let Some(Reverse(place)) = self.returned.peek()
            && !is_live(*place)
        {
            self.returned.pop();
            self.n_stale -= 1;
        }
        let returned = self.returned.peek().map(|Reverse(place)| *place);
        [self.in_order.front().copied(), returned].into_iter().flatten().min()
    }

    /// Drops the first entry, which is stale, and the others before the next one to sweep if these
    /// are known to be stale.
    fn drop_front(&mut self) {
        let n = match &mut self.sweep {
            Some(sweep) if sweep.kept == 0 => std::mem::take(&mut sweep.next).max(1),
            Some(sweep) => {
                sweep.shift();
                1
            }
            None => 1,
        };
        self.in_order.drain(..n);
        self.n_stale -= n;
        self.end_sweep_if_empty();
    }

    /// A sweep always has a next entry.
    #[inline]
    fn end_sweep_if_empty(&mut self) {
        if self.in_order.is_empty() {
            self.sweep = None;
        }
    }

    /// Takes the first key, which [`front`](Self::front) returned.
    #[inline]
    pub(super) fn pop(&mut self, first: Place) {
        if self.in_order.front() == Some(&first) {
            self.in_order.pop_front();
            if let Some(sweep) = &mut self.sweep {
                sweep.shift();
                self.end_sweep_if_empty();
            }
        } else {
            self.returned.pop();
        }
    }

    /// The first key. Changes nothing.
    pub(super) fn first(&self, ranks: &[Rank]) -> Option<Place> {
        let live = |place: &&Place| ranks[place.idx as usize].seq == place.seq;
        let in_order = self.in_order.iter().find(live);
        let returned = self.returned.iter().map(|Reverse(place)| place).filter(live).min();
        in_order.into_iter().chain(returned).min().copied()
    }

    /// All entries, including stale ones.
    pub(super) fn places(&self) -> impl Iterator<Item = Place> {
        self.in_order.iter().copied().chain(self.returned.iter().map(|Reverse(place)| *place))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;
    use crate::queue::keys::SlotIdx;

    fn rank(seq: u64) -> Rank {
        Rank { priority: 0, weight: 1, group: 0, seq }
    }

    proptest! {
        /// Live entries come out in order, at most a half stays stale, and an entry that becomes
        /// stale has few others looked at.
        #[test]
        fn flow_is_a_queue_of_its_live_entries(
            steps in proptest::collection::vec((0_u8..8, 0_usize..1000, 0_usize..40), 0..200),
        ) {
            let mut flow = Flow::of(0);
            let mut ranks = Vec::new();
            let mut live: Vec<Place> = Vec::new();
            for (step, at, n) in steps {
                match step {
                    0..4 => for _ in 0..n {
                        let seq = 1 + ranks.len() as u64;
                        let place = Place { seq, idx: ranks.len() as SlotIdx };
                        ranks.push(rank(seq));
                        live.push(place);
                        flow.push(place);
                    },
                    4..6 => for n in 0..n {
                        if live.is_empty() {
                            break;
                        }
                        let gone = live.remove((at + n) % live.len());
                        ranks[gone.idx as usize].seq = 0;
                        let (n_seen, n_returned) = (Cell::new(0), flow.returned.len());
                        flow.mark_stale(|place| {
                            n_seen.set(n_seen.get() + 1);
                            ranks[place.idx as usize].seq == place.seq
                        });
                        prop_assert!(n_seen.get() <= SWEEP + n_returned, "{}", n_seen.get());
                        let n_all = flow.in_order.len() + flow.returned.len();
                        let n_max = 2 * (live.len() + STALE_MIN) + SWEEP;
                        prop_assert!(n_all <= n_max, "{n_all} of {}", live.len());
                    },
                    // A worker held the key: it comes back to its place.
                    6 => if !live.is_empty() {
                        let first = live[0];
                        prop_assert_eq!(flow.front(&ranks), Some(first));
                        flow.pop(first);
                        flow.push(first);
                    },
                    _ => for _ in 0..n.min(live.len()) {
                        let first = live.remove(0);
                        prop_assert_eq!(flow.front(&ranks), Some(first));
                        flow.pop(first);
                    },
                }
                prop_assert_eq!(flow.is_empty(), live.is_empty());
                prop_assert_eq!(flow.first(&ranks), live.first().copied());
                if flow.is_empty() {
                    flow.end_turn();
                }
            }
            for first in live {
                prop_assert_eq!(flow.front(&ranks), Some(first));
                flow.pop(first);
            }
            prop_assert_eq!(flow.front(&ranks), None);
        }
    }
}
