//! What an add does.
//!
//! # Theory
//!
//! With many keys, the place where the table says whether a key is there is far away in memory, and
//! behind a lock nothing else is done while it comes. So when nobody waits for a key, adds are held
//! back, up to [`FRESH_MAX`], and looked up together: they wait for memory together too. Whoever
//! looks at the state in any way, or changes it but by an add, has them looked up first
//! ([`State::absorb`]). So nobody can tell.

use std::{hash::Hash, mem};

use super::{SlotIdx, Stage, State};
use crate::queue::{ages::Ages, moment::Moment, options::AtShutdown, ready::Ready, ready::Want};

/// So many adds are looked up together.
const FRESH_MAX: usize = 32;

/// An add that was not looked up yet.
pub(super) struct Fresh<K> {
    key: K,
    hash: u32,
    want: Want,
    /// When it falls due; `None` is at once.
    at: Option<Moment>,
    /// When it was added, if ages are kept.
    now: Option<Moment>,
}

impl<K> State<K> {
    /// Looks up what was held back.
    #[inline]
    pub(super) fn absorb(&mut self) {
        if !self.fresh.is_empty() {
            (self.absorb_all)(self);
        }
    }
}

impl<K: Clone + Eq + Hash> State<K> {
    pub(in crate::queue) fn new(ready: Ready, at_shutdown: AtShutdown, ages: Option<Ages>) -> Self {
        Self::with_absorb(ready, at_shutdown, ages, Self::absorb_fresh)
    }

    /// A key is wanted, at once or at a given time.
    #[inline]
    pub(in crate::queue) fn add(
        &mut self,
        key: K,
        hash: u32,
        want: Want,
        at: Option<Moment>,
        now: Option<Moment>,
    ) {
        if self.is_shutting_down() {
            return;
        }
        if self.keys.are_far() && self.workers.n_asleep() == 0 {
            self.fresh.push(Fresh { key, hash, want, at, now });
            if self.fresh.len() >= FRESH_MAX {
                self.absorb_fresh();
            }
            return;
        }
        match at {
            None => self.add_now(key, hash, want, now),
            Some(at) => self.add_at(key, hash, want, at, now),
        }
    }

    #[inline(never)]
    fn absorb_fresh(&mut self) {
        let mut fresh = mem::take(&mut self.fresh);
        let hashes = fresh.iter().map(|add| add.hash);
        self.keys.touch_words(hashes.clone());
        self.keys.touch_named(hashes);
        for Fresh { key, hash, want, at, now } in fresh.drain(..) {
            match at {
                None => self.add_now(key, hash, want, now),
                Some(at) => self.add_at(key, hash, want, at, now),
            }
        }
        self.fresh = fresh;
    }

    /// The slot of `key`, and the stage it was in before.
    #[inline]
    fn enter(&mut self, key: K, hash: u32, want: Want) -> (SlotIdx, Stage) {
        let (idx, stage) = self.keys.enter(key, hash);
        if let Some(lanes) = self.ready.lanes() {
            match stage {
                Stage::Absent => lanes.enter(idx, want.priority, want.group),
                Stage::Queued => lanes.raise_ready(idx, want.priority),
                Stage::Dirty => lanes.raise_dirty(idx, want.priority),
                Stage::Waiting | Stage::Returning => lanes.raise_waiting(idx, want.priority),
                Stage::InFlight => lanes.start_over(idx, want.priority),
            }
        }
        let slot = self.keys.slot_mut(idx);
        if matches!(stage, Stage::Absent | Stage::InFlight) {
            slot.n_adds = 1;
            self.tags.set(idx, want.tag);
        } else {
            slot.n_adds = slot.n_adds.saturating_add(1);
            self.tags.fill(idx, want.tag);
        }
        (idx, stage)
    }

    #[inline]
    fn add_now(&mut self, key: K, hash: u32, want: Want, now: Option<Moment>) {
        let (idx, stage) = self.enter(key, hash, want);
        match stage {
            Stage::Absent => self.enqueue(idx, now),
            Stage::Queued | Stage::Dirty => {}
            Stage::Waiting => {
                self.tags.set(idx, want.tag);
                self.stop_waiting(idx, Stage::Queued);
                self.enqueue(idx, now);
            }
            Stage::Returning => {
                self.tags.set(idx, want.tag);
                self.stop_waiting(idx, Stage::Dirty);
                self.soil(idx, now);
            }
            Stage::InFlight => self.soil(idx, now),
        }
    }

    fn add_at(&mut self, key: K, hash: u32, want: Want, at: Moment, now: Option<Moment>) {
        let (idx, stage) = self.enter(key, hash, want);
        match stage {
            Stage::Absent => {
                self.n_waiting += 1;
                if let (Some(ages), Some(now)) = (&mut self.ages, now) {
                    ages.begin(idx, now);
                }
                self.await_due(idx, at, Stage::Waiting);
            }
            Stage::Queued | Stage::Dirty => {}
            Stage::Waiting | Stage::Returning if self.keys.slot(idx).due <= at => {}
            Stage::Waiting | Stage::Returning => {
                self.tags.set(idx, want.tag);
                self.stop_waiting(idx, Stage::Queued);
                self.n_waiting += 1;
                self.await_due(idx, at, stage);
            }
            Stage::InFlight => {
                self.n_waiting += 1;
                if let (Some(ages), Some(now)) = (&mut self.ages, now) {
                    ages.soil(idx, now);
                }
                self.await_due(idx, at, Stage::Returning);
            }
        }
    }

    pub(in crate::queue) fn cancel_delayed(&mut self, key: &K, hash: u32) -> bool {
        // What is due already has left the wait, whether or not somebody has looked since.
        self.fire();
        let Some(idx) = self.keys.find(key, hash) else { return false };
        match self.keys.slot(idx).stage {
            Stage::Waiting => {
                self.stop_waiting(idx, Stage::Queued);
                self.remove(idx);
                true
            }
            Stage::Returning => {
                self.stop_waiting(idx, Stage::InFlight);
                true
            }
            Stage::Absent | Stage::Queued | Stage::InFlight | Stage::Dirty => false,
        }
    }
}
