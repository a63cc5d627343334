//! What the lock guards: every key's state, and the transitions between them.

mod add;
mod look;

use std::time::Duration;

use self::add::Fresh;
use super::{
    ages::Ages,
    due::{Due, DueTimes},
    keys::{Keys, SlotIdx, Stage},
    moment::{Epoch, Moment},
    options::AtShutdown,
    parking::{Parking, SeatIdx, Wakes},
    ready::Ready,
    tag::Tags,
};

/// So many slots are looked at together, where they may be far apart in memory.
const TOUCHED: usize = 32;

/// A key that is handed out.
#[derive(Debug, Clone)]
pub(super) struct Handed<K> {
    pub(super) key: K,
    pub(super) idx: SlotIdx,
    pub(super) priority: i32,
    pub(super) n_adds: u16,
}

/// What a `take` found.
pub(super) enum Taken<K> {
    Key(Handed<K>),
    /// No key now.
    Nothing,
    /// No key, and never again.
    ShutDown,
}

pub(super) struct State<K> {
    // Settings.
    pub(super) epoch: Epoch,
    at_shutdown: AtShutdown,

    // The keys.
    keys: Keys<K>,
    /// Adds that wait to be looked up together.
    fresh: Vec<Fresh<K>>,
    /// Looks them up, which needs more of a key than whoever gives one back knows of it.
    absorb_all: fn(&mut Self),

    // Their order.
    ready: Ready,
    due: DueTimes,
    ages: Option<Ages>,
    tags: Tags,

    // Counts.
    n_waiting: usize,
    /// Keys that were handed out and not given back, those that rest included.
    n_in_flight: usize,
    /// Keys that were handed out and that no worker holds any more.
    n_resting: usize,
    n_dirty: usize,
    /// So many of the next keys' slots have been looked at already.
    n_touched: usize,

    // Those who wait.
    workers: Parking,
    /// Who among them sleeps until the earliest due time.
    timekeeper: Option<SeatIdx>,
    drains: Parking,
    shutdown: Shutdown,
    n_drains: u64,
    effects: Effects,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shutdown {
    No,
    /// Drains up to this number end at once.
    Yes {
        released: u64,
    },
}

/// What is to be done once the lock is released.
#[derive(Debug, Default)]
pub(super) struct Effects {
    pub(super) wakes: Wakes,
    /// How many keys became wanted, if ages are kept: metrics want to know, and need ages.
    pub(super) n_wanted: usize,
}

impl<K> State<K> {
    fn with_absorb(
        ready: Ready,
        at_shutdown: AtShutdown,
        ages: Option<Ages>,
        absorb_all: fn(&mut Self),
    ) -> Self {
        Self {
            epoch: Epoch::start(),
            at_shutdown,
            keys: Keys::default(),
            fresh: Vec::new(),
            absorb_all,
            ready,
            due: DueTimes::default(),
            ages,
            tags: Tags::default(),
            n_waiting: 0,
            n_in_flight: 0,
            n_resting: 0,
            n_dirty: 0,
            n_touched: 0,
            workers: Parking::default(),
            timekeeper: None,
            drains: Parking::default(),
            shutdown: Shutdown::No,
            n_drains: 0,
            effects: Effects::default(),
        }
    }

    /// What is to be done about what happened since this was last asked.
    #[inline]
    pub(super) fn take_effects(&mut self) -> Option<Effects> {
        let is_any = self.effects.n_wanted > 0 || !self.effects.wakes.is_empty();
        is_any.then(|| std::mem::take(&mut self.effects))
    }

    pub(super) fn is_shutting_down(&self) -> bool {
        self.shutdown != Shutdown::No
    }

    /// Queues a key.
    #[inline]
    fn enqueue(&mut self, idx: SlotIdx, now: Option<Moment>) {
        self.keys.slot_mut(idx).stage = Stage::Queued;
        self.ready.push(idx);
        if let (Some(ages), Some(now)) = (&mut self.ages, now) {
            ages.begin(idx, now);
            self.effects.n_wanted += 1;
        }
        self.workers.call_one(&mut self.effects.wakes);
    }

    /// Makes a key absent.
    #[inline]
    fn remove(&mut self, idx: SlotIdx) {
        let is_last = self.keys.remove(idx);
        if is_last {
            self.tags = Tags::default();
            if let Some(ages) = &mut self.ages {
                ages.forget();
            }
        }
    }

    /// Marks a held key as wanted again.
    fn soil(&mut self, idx: SlotIdx, now: Option<Moment>) {
        self.keys.slot_mut(idx).stage = Stage::Dirty;
        if let Some(lanes) = self.ready.lanes() {
            lanes.soil(idx);
        }
        if let (Some(ages), Some(now)) = (&mut self.ages, now) {
            ages.soil(idx, now);
            self.effects.n_wanted += 1;
        }
        self.n_dirty += 1;
    }

    /// A key waits no more; its entry among the due times is stale.
    fn stop_waiting(&mut self, idx: SlotIdx, stage: Stage) {
        self.keys.slot_mut(idx).stage = stage;
        self.n_waiting -= 1;
        let keys = &self.keys;
        self.due.expire(|due| is_waited_for(keys, due));
    }

    /// A key waits until `at`, and whoever keeps the time hears of it.
    fn await_due(&mut self, idx: SlotIdx, at: Moment, stage: Stage) {
        let slot = self.keys.slot_mut(idx);
        slot.due = at;
        slot.stage = stage;
        let is_first = self.due.first().is_none_or(|first| at < first.at);
        self.due.insert(at, idx);
        if is_first {
            match self.timekeeper {
                // Sleeps too long now.
                Some(seat) => self.workers.call(seat, &mut self.effects.wakes),
                // Somebody is to take the post.
                None => self.workers.call_one(&mut self.effects.wakes),
            }
        }
    }

    /// Moves every key whose time has come.
    #[inline]
    pub(super) fn fire(&mut self) {
        self.absorb();
        if let Some(first) = self.due.first() {
            self.fire_ripe(first);
        }
    }

    #[inline(never)]
    fn fire_ripe(&mut self, first: Due) {
        let now = self.epoch.now();
        if first.at > now {
            return;
        }
        for ripe in self.due.take_ripe(now).chunks(TOUCHED) {
            if self.keys.are_far() {
                self.keys.touch(ripe.iter().map(|due| due.idx));
            }
            for due in ripe {
                if !is_waited_for(&self.keys, *due) {
                    self.due.met_stale();
                    continue;
                }
                self.n_waiting -= 1;
                match self.keys.slot(due.idx).stage {
                    Stage::Returning => self.soil(due.idx, Some(now)),
                    _ => self.enqueue(due.idx, Some(now)),
                }
            }
        }
    }

    /// The earliest due time of a key that still waits.
    fn next_due(&mut self) -> Option<Moment> {
        while let Some(first) = self.due.first() {
            if is_waited_for(&self.keys, first) {
                return Some(first.at);
            }
            self.due.drop_stale();
        }
        None
    }

    /// Gives a key back; says how long it was held, if ages are kept.
    #[inline]
    pub(super) fn done(&mut self, idx: SlotIdx, now: Option<Moment>) -> Option<Duration> {
        self.absorb();
        let worked_for = self.ages.as_mut().zip(now).map(|(ages, now)| ages.give_back(idx, now));
        let is_freed = self.ready.lanes().is_some_and(|lanes| lanes.release(idx));
        self.give_back(idx);
        if is_freed {
            self.workers.call_one(&mut self.effects.wakes);
        }
        worked_for
    }

    /// Frees the worker of a key, and its place in its group; says how long it was held, if ages
    /// are kept. Nobody gets the key before [`end_rest`](Self::end_rest).
    pub(super) fn rest(&mut self, idx: SlotIdx, now: Option<Moment>) -> Option<Duration> {
        self.absorb();
        self.n_resting += 1;
        let worked_for = self.ages.as_mut().zip(now).map(|(ages, now)| ages.rest(idx, now));
        if self.ready.lanes().is_some_and(|lanes| lanes.release(idx)) {
            self.workers.call_one(&mut self.effects.wakes);
        }
        worked_for
    }

    /// Gives a resting key back.
    pub(super) fn end_rest(&mut self, idx: SlotIdx) {
        self.absorb();
        self.n_resting -= 1;
        if let Some(ages) = &mut self.ages {
            ages.end_rest(idx);
        }
        self.give_back(idx);
    }

    /// Moves a held key on: it is absent, waits, or is queued again.
    #[inline]
    fn give_back(&mut self, idx: SlotIdx) {
        self.n_in_flight -= 1;
        match self.keys.slot(idx).stage {
            Stage::InFlight => self.remove(idx),
            Stage::Returning => self.keys.slot_mut(idx).stage = Stage::Waiting,
            Stage::Dirty => {
                self.n_dirty -= 1;
                self.keys.slot_mut(idx).stage = Stage::Queued;
                self.ready.push_dirty(idx);
                self.workers.call_one(&mut self.effects.wakes);
            }
            Stage::Absent | Stage::Waiting | Stage::Queued => {
                unreachable!("only a held key is done")
            }
        }
        if self.is_shutting_down() {
            self.tell_the_end();
        }
    }

    /// Calls those who wait for the end of the queue, if it has come.
    fn tell_the_end(&mut self) {
        if self.ready.is_empty() {
            self.workers.call_all(&mut self.effects.wakes);
            if self.n_in_flight == 0 {
                self.drains.call_all(&mut self.effects.wakes);
            }
        }
    }

    pub(super) fn shut_down(&mut self) {
        self.close();
        self.shutdown = Shutdown::Yes { released: self.n_drains };
        self.drains.call_all(&mut self.effects.wakes);
    }

    /// Shuts down; the number is for [`is_drained`](Self::is_drained).
    pub(super) fn drain(&mut self) -> u64 {
        self.close();
        self.n_drains += 1;
        self.n_drains
    }

    pub(super) fn is_drained(&self, drain: u64) -> bool {
        let released = matches!(self.shutdown, Shutdown::Yes { released } if released >= drain);
        released || (self.ready.is_empty() && self.n_in_flight == 0)
    }

    /// Those who wait for a drain to end.
    pub(super) fn drains(&mut self) -> &mut Parking {
        &mut self.drains
    }

    /// Drops what waits and refuses what comes.
    fn close(&mut self) {
        if self.is_shutting_down() {
            return;
        }
        self.absorb();
        self.shutdown = Shutdown::Yes { released: 0 };
        let is_abandoned = self.at_shutdown == AtShutdown::Abandon;
        self.due.clear();
        self.n_waiting = 0;
        if is_abandoned {
            self.ready.clear();
        }
        for idx in self.keys.indices() {
            match self.keys.get(idx).map(|slot| slot.stage) {
                Some(Stage::Waiting) => self.remove(idx),
                Some(Stage::Returning) => self.keys.slot_mut(idx).stage = Stage::InFlight,
                Some(Stage::Queued) if is_abandoned => self.remove(idx),
                Some(Stage::Dirty) if is_abandoned => {
                    self.keys.slot_mut(idx).stage = Stage::InFlight;
                    self.n_dirty -= 1;
                    if let Some(lanes) = self.ready.lanes() {
                        lanes.drop_dirty(idx);
                    }
                }
                Some(Stage::Absent | Stage::Queued | Stage::InFlight | Stage::Dirty) | None => {}
            }
        }
        self.workers.call_all(&mut self.effects.wakes);
        self.tell_the_end();
    }
}

/// Whether a due time is the one its slot waits for.
fn is_waited_for<K>(keys: &Keys<K>, due: Due) -> bool {
    keys.get(due.idx).is_some_and(|slot| {
        matches!(slot.stage, Stage::Waiting | Stage::Returning) && slot.due == due.at
    })
}

impl<K: Clone> State<K> {
    /// With how long it was queued, if ages are kept.
    #[inline(always)]
    pub(super) fn take(&mut self, now: Option<Moment>) -> (Taken<K>, Option<Duration>) {
        self.fire();
        if self.keys.are_far() {
            self.touch_next();
        }
        let ages = &self.ages;
        let since = |idx| ages.as_ref().map_or_else(Moment::default, |ages: &Ages| ages.since(idx));
        let Some(idx) = self.ready.pop(since) else {
            // A dirty key is still to come: to the worker that holds it, who calls `done` and then
            // `get`. Nobody holds one that rests.
            let is_over = self.is_shutting_down() && self.ready.is_empty() && self.n_resting == 0;
            return (if is_over { Taken::ShutDown } else { Taken::Nothing }, None);
        };
        let priority = self.ready.priority(idx);
        let slot = self.keys.slot_mut(idx);
        assert_eq!(slot.stage, Stage::Queued, "only queued keys are in the queue");
        slot.stage = Stage::InFlight;
        let (key, n_adds) = (slot.key.clone(), slot.n_adds);
        self.tags.hand_out(idx);
        self.n_in_flight += 1;
        let queued_for = self.ages.as_mut().zip(now).map(|(ages, now)| ages.hand_out(idx, now));
        if self.is_shutting_down() {
            self.tell_the_end();
        }
        (Taken::Key(Handed { key, idx, priority, n_adds }), queued_for)
    }

    /// Now and then looks at the slots of the next keys, if it is known which they are.
    #[inline]
    fn touch_next(&mut self) {
        if self.n_touched == 0 {
            self.keys.touch(self.ready.next().take(TOUCHED));
            self.n_touched = TOUCHED;
        }
        self.n_touched -= 1;
    }

    /// Takes a key for one who sits at `seat`; if there is none, it falls asleep, until the time
    /// given if it is the one to keep the time.
    pub(super) fn take_or_sleep(
        &mut self,
        seat: SeatIdx,
        now: Option<Moment>,
    ) -> (Taken<K>, Option<Duration>, Option<Moment>) {
        self.workers.wake_up(seat);
        let (taken, queued_for) = self.take(now);
        if !matches!(taken, Taken::Nothing) {
            return (taken, queued_for, None);
        }
        let is_free = self.timekeeper.is_none_or(|keeper| keeper == seat);
        let wake = if is_free { self.next_due() } else { None };
        if is_free {
            self.timekeeper = wake.map(|_| seat);
        }
        self.workers.fall_asleep(seat);
        (taken, None, wake)
    }
}
