//! Reads of the state, and waiters.

use std::{hash::Hash, time::Duration};

use super::{SlotIdx, Stage, State};
use crate::{
    Stats,
    queue::{
        inspect::{Entry, Phase},
        lanes::LevelStats,
        moment::Moment,
        tag::Tag,
        waiters::{WaiterIdx, Waiters},
    },
};

impl<K> State<K> {
    pub(in crate::queue) fn workers(&mut self) -> &mut Waiters {
        &mut self.workers
    }

    /// Removes a waiter. Passes its notification on to another one.
    pub(in crate::queue) fn leave(&mut self, waiter: WaiterIdx) {
        let was_notified = self.workers.deregister(waiter);
        let was_keeper = self.timekeeper == Some(waiter);
        if was_keeper {
            self.timekeeper = None;
        }
        // A notification without a timekeeper may have been to become it.
        let no_keeper = (was_notified || was_keeper) && self.timekeeper.is_none();
        let is_missed =
            (was_notified && !self.ready.is_empty()) || (no_keeper && self.n_waiting > 0);
        if is_missed {
            self.workers.notify_one(&mut self.effects.wakers);
        }
    }

    /// The tag that a key was handed out with.
    pub(in crate::queue) fn tag(&self, idx: SlotIdx) -> Tag {
        self.tags.held(idx)
    }

    /// How long a held key was queued, if ages are recorded.
    pub(in crate::queue) fn waited(&self, idx: SlotIdx) -> Option<Duration> {
        self.ages.as_ref().map(|ages| ages.waited(idx))
    }

    /// With priorities, dirty keys count too.
    pub(in crate::queue) fn len(&mut self) -> usize {
        let has_priorities = self.ready.lanes().is_some_and(|lanes| lanes.has_priorities());
        self.ready.len() + if has_priorities { self.n_dirty } else { 0 }
    }

    pub(in crate::queue) fn waiting(&mut self) -> usize {
        self.n_waiting
    }

    fn age(&self, idx: SlotIdx, now: Option<Moment>) -> Option<Duration> {
        self.ages.as_ref().zip(now).map(|(ages, now)| ages.since(idx).age(now))
    }

    pub(in crate::queue) fn stats(&mut self, now: Option<Moment>) -> Stats {
        let held = self.ages.as_ref().zip(now).map(|(ages, now)| ages.held(now));
        let (unfinished, longest_running) = held.unwrap_or_default();
        let oldest = self.ready.oldest().and_then(|idx| self.age(idx, now));
        Stats {
            queued: self.ready.len(),
            waiting: self.n_waiting,
            in_flight: self.n_in_flight - self.n_resting,
            resting: self.n_resting,
            dirty: self.n_dirty,
            limited: 0,
            unfinished,
            longest_running,
            oldest_queued: oldest.unwrap_or_default(),
        }
    }

    pub(in crate::queue) fn levels(&mut self, now: Option<Moment>) -> Vec<LevelStats> {
        let ages = self.ages.as_ref();
        let age = |idx| ages.zip(now).map(|(ages, now)| ages.since(idx).age(now));
        match &self.ready {
            crate::queue::ready::Ready::Lanes(lanes) if lanes.has_priorities() => lanes.stats(age),
            _ => Vec::new(),
        }
    }
}

impl<K: Clone + Eq + Hash> State<K> {
    fn describe(&self, idx: SlotIdx, now: Moment) -> Option<Entry<K>> {
        let slot = self.keys.get(idx)?;
        let phase = match slot.stage {
            Stage::Absent => return None,
            Stage::Waiting => Phase::Waiting,
            Stage::Queued => Phase::Queued,
            Stage::InFlight => Phase::InFlight,
            Stage::Returning => Phase::Returning,
            Stage::Dirty => Phase::Dirty,
        };
        let waits = matches!(slot.stage, Stage::Waiting | Stage::Returning);
        Some(Entry {
            key: slot.key.clone(),
            phase,
            age: self.age(idx, Some(now)),
            due_in: waits.then(|| now.age(slot.due)),
            priority: self.ready.priority(idx),
            tag: if slot.stage == Stage::InFlight {
                self.tags.held(idx)
            } else {
                self.tags.get(idx)
            },
            requeues: 0,
        })
    }

    pub(in crate::queue) fn entry(&mut self, key: &K, hash: u32) -> Option<Entry<K>> {
        let now = self.epoch.now();
        self.keys.find(key, hash).and_then(|idx| self.describe(idx, now))
    }

    pub(in crate::queue) fn entries(&mut self, n_max: usize) -> Vec<Entry<K>> {
        let now = self.epoch.now();
        self.keys.indices().filter_map(|idx| self.describe(idx, now)).take(n_max).collect()
    }
}
