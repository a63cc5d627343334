//! Times at which keys entered their states. Only recorded on request.

use std::time::Duration;

use super::{keys::SlotIdx, moment::Moment};

#[derive(Debug, Clone, Copy, Default)]
struct Age {
    /// When the key became queued or waiting, or was handed out.
    since: Moment,
    /// When it became dirty.
    wanted: Moment,
    /// How long it was queued before it was handed out.
    waited: Duration,
    /// Its index in [`Ages::held`] while it is held.
    place: u32,
}

/// Per slot the time of the key's last transition, and the list of held keys.
#[derive(Debug, Default)]
pub(super) struct Ages {
    ages: Vec<Age>,
    held: Vec<SlotIdx>,
}

impl Ages {
    fn age(&mut self, idx: SlotIdx) -> &mut Age {
        let idx = idx as usize;
        if idx >= self.ages.len() {
            self.ages.resize(idx + 1, Age::default());
        }
        &mut self.ages[idx]
    }

    /// Frees the memory when all keys are absent.
    pub(super) fn forget(&mut self) {
        self.ages = Vec::new();
    }

    pub(super) fn since(&self, idx: SlotIdx) -> Moment {
        self.ages.get(idx as usize).map_or_else(Moment::default, |age| age.since)
    }

    /// How long the held key was queued.
    pub(super) fn waited(&self, idx: SlotIdx) -> Duration {
        self.ages.get(idx as usize).map_or(Duration::ZERO, |age| age.waited)
    }

    /// The key becomes queued or starts to wait.
    pub(super) fn begin(&mut self, idx: SlotIdx, now: Moment) {
        self.age(idx).since = now;
    }

    /// The held key becomes dirty.
    pub(super) fn mark_dirty(&mut self, idx: SlotIdx, now: Moment) {
        self.age(idx).wanted = now;
    }

    /// The key is handed out. Returns how long it was queued.
    pub(super) fn hand_out(&mut self, idx: SlotIdx, now: Moment) -> Duration {
        let place = self.held.len() as u32;
        self.held.push(idx);
        let age = self.age(idx);
        let queued_for = age.since.age(now);
        age.since = now;
        age.waited = queued_for;
        age.place = place;
        queued_for
    }

    /// The key is given back. Returns how long it was held. It counts as queued since it became
    /// dirty.
    pub(super) fn give_back(&mut self, idx: SlotIdx, now: Moment) -> Duration {
        let worked_for = self.rest(idx, now);
        self.end_rest(idx);
        worked_for
    }

    /// A resting key is given back. It counts as queued since it became dirty.
    pub(super) fn end_rest(&mut self, idx: SlotIdx) {
        let age = self.age(idx);
        age.since = age.wanted;
    }

    /// The key's worker is done with it. Returns how long it was held.
    pub(super) fn rest(&mut self, idx: SlotIdx, now: Moment) -> Duration {
        let age = self.age(idx);
        let worked_for = age.since.age(now);
        let place = age.place;
        self.held.swap_remove(place as usize);
        if let Some(moved) = self.held.get(place as usize).copied() {
            self.age(moved).place = place;
        }
        worked_for
    }

    /// The sum and the maximum of the ages of held keys.
    pub(super) fn held(&self, now: Moment) -> (Duration, Duration) {
        let ages = self.held.iter().map(|idx| self.since(*idx).age(now));
        ages.fold((Duration::ZERO, Duration::ZERO), |(sum, max), age| {
            (sum.saturating_add(age), max.max(age))
        })
    }
}
