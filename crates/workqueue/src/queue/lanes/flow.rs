//! The keys of one group at one priority.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

use super::{Place, Rank, STALE_MIN};

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
    /// Number of keys it may still have served in this turn; zero before a turn.
    pub(super) deficit: u32,
    pub(super) weight: u32,
    pub(super) turn: Turn,
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

    /// Counts a stale entry, and removes them if there are many. `is_live` returns whether an entry
    /// is live.
    pub(super) fn mark_stale(&mut self, is_live: impl Fn(Place) -> bool) {
        self.n_stale += 1;
        if self.n_stale > STALE_MIN + (self.in_order.len() + self.returned.len()) / 2 {
            self.in_order.retain(|place| is_live(*place));
            self.returned.retain(|Reverse(place)| is_live(*place));
            self.n_stale = 0;
        }
    }

    /// The first key. Drops stale entries before it.
    #[inline]
    pub(super) fn front(&mut self, ranks: &[Rank]) -> Option<Place> {
        let is_live = |place: Place| ranks[place.idx as usize].seq == place.seq;
        while let Some(place) = self.in_order.front()
            && !is_live(*place)
        {
            self.in_order.pop_front();
            self.n_stale -= 1;
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

    /// Takes the first key, which [`front`](Self::front) returned.
    #[inline]
    pub(super) fn pop(&mut self, first: Place) {
        if self.in_order.front() == Some(&first) {
            self.in_order.pop_front();
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
