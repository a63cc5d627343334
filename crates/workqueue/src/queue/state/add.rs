//! Adds.
//!
//! # Theory
//!
//! With many keys, looking up a key reads a table word that is not in the processor's caches, and
//! nothing else happens under the lock while it loads. So if no worker waits for a key, adds are
//! deferred, up to [`DEFERRED_MAX`], and looked up together, which loads their words together.
//! Every other access to the state applies the deferred adds first ([`State::apply_deferred`]), so
//! deferral has no visible effect.
//!
//! Without it, 1M timers take 243 ns each to add instead of 138, and 1M distinct keys 159 ns
//! instead of 148. With a short queue there is no difference. `benches/RESULTS.md` has the figures,
//! also without prefetching.

use std::{hash::Hash, mem};

use super::{SlotIdx, Stage, State};
use crate::queue::{ages::Ages, moment::Moment, options::AtShutdown, ready::Ready, ready::Want};

/// Maximum number of adds that are looked up together.
const DEFERRED_MAX: usize = 32;

/// A deferred add.
pub(super) struct DeferredAdd<K> {
    key: K,
    hash: u32,
    want: Want,
    /// When it falls due; `None` means at once.
    at: Option<Moment>,
    /// When it was added, if ages are recorded.
    now: Option<Moment>,
}

impl<K> State<K> {
    /// Applies the deferred adds.
    #[inline]
    pub(super) fn apply_deferred(&mut self) {
        if !self.deferred.is_empty() {
            (self.apply_all_deferred)(self);
        }
    }
}

impl<K: Clone + Eq + Hash> State<K> {
    pub(in crate::queue) fn new(ready: Ready, at_shutdown: AtShutdown, ages: Option<Ages>) -> Self {
        Self::with_apply_deferred(ready, at_shutdown, ages, Self::apply_all_deferred)
    }

    /// Adds a key, at once or with a due time.
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
        if self.keys.exceed_caches() && self.workers.n_parked() == 0 {
            self.deferred.push(DeferredAdd { key, hash, want, at, now });
            if self.deferred.len() >= DEFERRED_MAX {
                self.apply_all_deferred();
            }
            return;
        }
        match at {
            None => self.add_now(key, hash, want, now),
            Some(at) => self.add_at(key, hash, want, at, now),
        }
    }

    #[inline(never)]
    fn apply_all_deferred(&mut self) {
        let mut deferred = mem::take(&mut self.deferred);
        let hashes = deferred.iter().map(|add| add.hash);
        self.keys.prefetch_words(hashes.clone());
        self.keys.prefetch_slots(hashes);
        for DeferredAdd { key, hash, want, at, now } in deferred.drain(..) {
            match at {
                None => self.add_now(key, hash, want, now),
                Some(at) => self.add_at(key, hash, want, at, now),
            }
        }
        self.deferred = deferred;
    }

    /// The slot of `key`, and its stage before.
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
                self.mark_dirty(idx, now);
            }
            Stage::InFlight => self.mark_dirty(idx, now),
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
                    ages.mark_dirty(idx, now);
                }
                self.await_due(idx, at, Stage::Returning);
            }
        }
    }

    /// To be called when no key is due: a key that has fallen due no longer waits, even if nothing
    /// has moved it yet.
    pub(in crate::queue) fn cancel_delayed(&mut self, key: &K, hash: u32) -> bool {
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
