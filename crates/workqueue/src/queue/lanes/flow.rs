//! The keys of one group at one priority.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

use super::{Place, Rank, STALE_MIN};

/// An empty flow keeps room for so many keys.
const ROOM_MIN: usize = 64;

/// Whether a flow is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Turn {
    /// It has no key.
    #[default]
    None,
    /// It is in the round.
    InRound,
    /// It has keys, but its group holds as many workers as it may: it has left the round.
    Blocked,
}

/// The keys of one group at one priority, in the order of their numbers.
#[derive(Debug, Default)]
pub(super) struct Flow {
    /// Whose keys it has; nobody's when it is free.
    pub(super) group: Option<u64>,
    /// In order of sequence numbers.
    fresh: VecDeque<Place>,
    /// Those that came with a number below the last one's: few, because a worker held each.
    returned: BinaryHeap<Reverse<Place>>,
    n_stale: usize,
    /// How many keys it may still have served in this turn; zero before a turn.
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
        self.fresh.len() + self.returned.len() == self.n_stale
    }

    /// Its last key has left: what it had left to spend is lost, and the room of a long queue is
    /// given back.
    pub(super) fn end_turn(&mut self) {
        self.deficit = 0;
        self.turn = Turn::None;
        self.n_stale = 0;
        self.fresh.clear();
        self.fresh.shrink_to(ROOM_MIN);
        self.returned.clear();
        self.returned.shrink_to(ROOM_MIN);
    }

    #[inline]
    pub(super) fn push(&mut self, place: Place) {
        if self.fresh.back().is_none_or(|last| *last < place) {
            self.fresh.push_back(place);
        } else {
            self.returned.push(Reverse(place));
        }
    }

    /// One of its entries became stale. `is_live` tells which are not.
    pub(super) fn lose(&mut self, is_live: impl Fn(Place) -> bool) {
        self.n_stale += 1;
        if self.n_stale > STALE_MIN + (self.fresh.len() + self.returned.len()) / 2 {
            self.fresh.retain(|place| is_live(*place));
            self.returned.retain(|Reverse(place)| is_live(*place));
            self.n_stale = 0;
        }
    }

    /// The first key, after stale entries before it were dropped.
    #[inline]
    pub(super) fn front(&mut self, ranks: &[Rank]) -> Option<Place> {
        let is_live = |place: Place| ranks[place.idx as usize].seq == place.seq;
        while let Some(place) = self.fresh.front()
            && !is_live(*place)
        {
            self.fresh.pop_front();
            self.n_stale -= 1;
        }
        while let Some(Reverse(place)) = self.returned.peek()
            && !is_live(*place)
        {
            self.returned.pop();
            self.n_stale -= 1;
        }
        let returned = self.returned.peek().map(|Reverse(place)| *place);
        [self.fresh.front().copied(), returned].into_iter().flatten().min()
    }

    /// Takes the first key, which [`front`](Self::front) showed.
    #[inline]
    pub(super) fn pop(&mut self, first: Place) {
        if self.fresh.front() == Some(&first) {
            self.fresh.pop_front();
        } else {
            self.returned.pop();
        }
    }

    /// The first key, by looking only.
    pub(super) fn first(&self, ranks: &[Rank]) -> Option<Place> {
        let live = |place: &&Place| ranks[place.idx as usize].seq == place.seq;
        let fresh = self.fresh.iter().find(live);
        let returned = self.returned.iter().map(|Reverse(place)| place).filter(live).min();
        fresh.into_iter().chain(returned).min().copied()
    }

    /// All entries, stale ones included.
    pub(super) fn places(&self) -> impl Iterator<Item = Place> {
        self.fresh.iter().copied().chain(self.returned.iter().map(|Reverse(place)| *place))
    }
}
