//! The state under the lock: every key's state, and the transitions between them.

mod add;
mod read;

use std::time::Duration;

use self::add::DeferredAdd;
use super::{
    ages::Ages,
    due::{Due, DueTimes},
    keys::{Keys, SlotIdx, Stage},
    moment::{Epoch, Moment},
    options::AtShutdown,
    ready::Ready,
    tag::Tags,
    waiters::{WaiterIdx, Waiters, Wakers},
};

/// Number of slots prefetched together.
const PREFETCHED: usize = 32;

/// The largest number of keys that one step moves because they have fallen due: below a millisecond
/// under the lock. 2 in this crate's own tests, so that they cover larger queues.
const FIRED_MAX: usize = if cfg!(test) { 2 } else { 4096 };

/// A key that is handed out.
#[derive(Debug, Clone)]
pub(super) struct Handed<K> {
    pub(super) key: K,
    pub(super) idx: SlotIdx,
    pub(super) priority: i32,
    pub(super) n_adds: u16,
}

/// The result of `take`.
pub(super) enum Taken<K> {
    Key(Handed<K>),
    /// No key is ready.
    Nothing {
        /// Keys that have fallen due are still to be moved: the caller must try again.
        is_more_due: bool,
    },
    /// The queue is shut down and empty.
    ShutDown,
}

pub(super) struct State<K> {
    // Settings.
    pub(super) epoch: Epoch,
    at_shutdown: AtShutdown,

    // The keys.
    keys: Keys<K>,
    /// Deferred adds, to be applied together.
    deferred: Vec<DeferredAdd<K>>,
    /// Applies the deferred adds. A function pointer, because it needs more trait bounds than
    /// `done` has.
    apply_all_deferred: fn(&mut Self),

    // Their order.
    ready: Ready,
    due: DueTimes,
    ages: Option<Ages>,
    tags: Tags,

    // Counts.
    n_waiting: usize,
    /// Keys that were handed out and not given back, including resting keys.
    n_in_flight: usize,
    /// Resting keys.
    n_resting: usize,
    n_dirty: usize,
    /// Number of next keys whose slots are already prefetched.
    n_prefetched: usize,

    // Waiters.
    workers: Waiters,
    /// The worker that sleeps until the earliest due time.
    timekeeper: Option<WaiterIdx>,
    drains: Waiters,
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

/// What must be done after the lock is released.
#[derive(Debug, Default)]
pub(super) struct Effects {
    pub(super) wakers: Wakers,
    /// Number of keys added, if ages are recorded: only metrics need it.
    pub(super) n_added: usize,
}

impl<K> State<K> {
    fn with_apply_deferred(
        ready: Ready,
        at_shutdown: AtShutdown,
        ages: Option<Ages>,
        apply_all_deferred: fn(&mut Self),
    ) -> Self {
        Self {
            epoch: Epoch::start(),
            at_shutdown,
            keys: Keys::default(),
            deferred: Vec::new(),
            apply_all_deferred,
            ready,
            due: DueTimes::default(),
            ages,
            tags: Tags::default(),
            n_waiting: 0,
            n_in_flight: 0,
            n_resting: 0,
            n_dirty: 0,
            n_prefetched: 0,
            workers: Waiters::default(),
            timekeeper: None,
            drains: Waiters::default(),
            shutdown: Shutdown::No,
            n_drains: 0,
            effects: Effects::default(),
        }
    }

    /// The effects since the last call.
    #[inline]
    pub(super) fn take_effects(&mut self) -> Option<Effects> {
        let is_any = self.effects.n_added > 0 || !self.effects.wakers.is_empty();
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
            self.effects.n_added += 1;
        }
        self.workers.notify_one(&mut self.effects.wakers);
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

    /// Marks a held key as dirty.
    fn mark_dirty(&mut self, idx: SlotIdx, now: Option<Moment>) {
        self.keys.slot_mut(idx).stage = Stage::Dirty;
        if let Some(lanes) = self.ready.lanes() {
            lanes.mark_dirty(idx);
        }
        if let (Some(ages), Some(now)) = (&mut self.ages, now) {
            ages.mark_dirty(idx, now);
            self.effects.n_added += 1;
        }
        self.n_dirty += 1;
    }

    /// Ends a key's wait. Its entry among the due times becomes stale.
    fn stop_waiting(&mut self, idx: SlotIdx, stage: Stage) {
        self.keys.slot_mut(idx).stage = stage;
        self.n_waiting -= 1;
        let keys = &self.keys;
        self.due.expire(|due| is_waited_for(keys, due));
    }

    /// Makes a key wait until `at`, and notifies the timekeeper if necessary.
    fn await_due(&mut self, idx: SlotIdx, at: Moment, stage: Stage) {
        let slot = self.keys.slot_mut(idx);
        slot.due = at;
        slot.stage = stage;
        let is_first = self.due.first().is_none_or(|first| at < first.at);
        self.due.insert(at, idx);
        if is_first {
            match self.timekeeper {
                // Its sleep is too long now.
                Some(waiter) => self.workers.notify(waiter, &mut self.effects.wakers),
                // Another waiter must become timekeeper.
                None => self.workers.notify_one(&mut self.effects.wakers),
            }
        }
    }

    /// Moves keys that have fallen due, the earliest first, at most [`FIRED_MAX`]. Returns whether
    /// more are due.
    #[inline]
    pub(super) fn fire(&mut self) -> bool {
        self.apply_deferred();
        self.due.first().is_some_and(|first| self.fire_due(first))
    }

    #[inline(never)]
    fn fire_due(&mut self, first: Due) -> bool {
        let now = self.epoch.now();
        if first.at > now {
            return false;
        }
        for due_now in self.due.take_due(now, FIRED_MAX).chunks(PREFETCHED) {
            if self.keys.exceed_caches() {
                self.keys.prefetch(due_now.iter().map(|due| due.idx));
            }
            for due in due_now {
                if !is_waited_for(&self.keys, *due) {
                    self.due.count_stale();
                    continue;
                }
                self.n_waiting -= 1;
                match self.keys.slot(due.idx).stage {
                    Stage::Returning => self.mark_dirty(due.idx, Some(now)),
                    _ => self.enqueue(due.idx, Some(now)),
                }
            }
        }
        self.due.first().is_some_and(|first| first.at <= now)
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

    /// Gives a key back. Returns how long it was held, if ages are recorded.
    #[inline]
    pub(super) fn done(&mut self, idx: SlotIdx, now: Option<Moment>) -> Option<Duration> {
        self.apply_deferred();
        let worked_for = self.ages.as_mut().zip(now).map(|(ages, now)| ages.give_back(idx, now));
        let is_freed = self.ready.lanes().is_some_and(|lanes| lanes.release(idx));
        self.give_back(idx);
        if is_freed {
            self.workers.notify_one(&mut self.effects.wakers);
        }
        worked_for
    }

    /// Frees the worker of a key, and the key's place in its group. Returns how long it was held,
    /// if ages are recorded. The key is not handed out before [`end_rest`](Self::end_rest).
    pub(super) fn rest(&mut self, idx: SlotIdx, now: Option<Moment>) -> Option<Duration> {
        self.apply_deferred();
        self.n_resting += 1;
        let worked_for = self.ages.as_mut().zip(now).map(|(ages, now)| ages.rest(idx, now));
        if self.ready.lanes().is_some_and(|lanes| lanes.release(idx)) {
            self.workers.notify_one(&mut self.effects.wakers);
        }
        worked_for
    }

    /// Gives a resting key back.
    pub(super) fn end_rest(&mut self, idx: SlotIdx) {
        self.apply_deferred();
        self.n_resting -= 1;
        if let Some(ages) = &mut self.ages {
            ages.end_rest(idx);
        }
        self.give_back(idx);
    }

    /// Moves a held key on: it becomes absent, waits, or is queued again.
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
                self.workers.notify_one(&mut self.effects.wakers);
            }
            Stage::Absent | Stage::Waiting | Stage::Queued => {
                unreachable!("only a held key is done")
            }
        }
        if self.is_shutting_down() {
            self.notify_if_ended();
        }
    }

    /// Notifies all waiters if the queue is empty after a shutdown.
    fn notify_if_ended(&mut self) {
        if self.ready.is_empty() {
            self.workers.notify_all(&mut self.effects.wakers);
            if self.n_in_flight == 0 {
                self.drains.notify_all(&mut self.effects.wakers);
            }
        }
    }

    pub(super) fn shut_down(&mut self) {
        self.close();
        self.shutdown = Shutdown::Yes { released: self.n_drains };
        self.drains.notify_all(&mut self.effects.wakers);
    }

    /// Shuts down. The number is for [`is_drained`](Self::is_drained).
    pub(super) fn drain(&mut self) -> u64 {
        self.close();
        self.n_drains += 1;
        self.n_drains
    }

    pub(super) fn is_drained(&self, drain: u64) -> bool {
        let released = matches!(self.shutdown, Shutdown::Yes { released } if released >= drain);
        released || (self.ready.is_empty() && self.n_in_flight == 0)
    }

    /// Waiters for the end of a drain.
    pub(super) fn drains(&mut self) -> &mut Waiters {
        &mut self.drains
    }

    /// Drops waiting keys and refuses further adds.
    fn close(&mut self) {
        if self.is_shutting_down() {
            return;
        }
        self.apply_deferred();
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
        self.workers.notify_all(&mut self.effects.wakers);
        self.notify_if_ended();
    }
}

/// Whether a due time is the one its slot waits for.
fn is_waited_for<K>(keys: &Keys<K>, due: Due) -> bool {
    keys.get(due.idx).is_some_and(|slot| {
        matches!(slot.stage, Stage::Waiting | Stage::Returning) && slot.due == due.at
    })
}

impl<K: Clone> State<K> {
    /// Takes the next key. Also returns how long it was queued, if ages are recorded.
    #[inline(always)]
    pub(super) fn take(&mut self, now: Option<Moment>) -> (Taken<K>, Option<Duration>) {
        let is_more_due = self.fire();
        if self.keys.exceed_caches() {
            self.prefetch_next();
        }
        let ages = &self.ages;
        let since = |idx| ages.as_ref().map_or_else(Moment::default, |ages: &Ages| ages.since(idx));
        let Some(idx) = self.ready.pop(since) else {
            // A dirty key is still to come: the worker that holds it calls `done` and then `get`.
            // No worker holds a resting key.
            let is_over = self.is_shutting_down() && self.ready.is_empty() && self.n_resting == 0;
            let nothing = Taken::Nothing { is_more_due };
            return (if is_over { Taken::ShutDown } else { nothing }, None);
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
            self.notify_if_ended();
        }
        (Taken::Key(Handed { key, idx, priority, n_adds }), queued_for)
    }

    /// Prefetches the next keys' slots once for every [`PREFETCHED`] hand-outs, if the next keys
    /// are known.
    #[inline]
    fn prefetch_next(&mut self) {
        if self.n_prefetched == 0 {
            self.keys.prefetch(self.ready.next().take(PREFETCHED));
            self.n_prefetched = PREFETCHED;
        }
        self.n_prefetched -= 1;
    }

    /// Takes a key for a waiter. If there is none and no more are due, parks the waiter, and
    /// returns until when if it is the timekeeper.
    pub(super) fn take_or_park(
        &mut self,
        waiter: WaiterIdx,
        now: Option<Moment>,
    ) -> (Taken<K>, Option<Duration>, Option<Moment>) {
        self.workers.check(waiter);
        let (taken, queued_for) = self.take(now);
        if !matches!(taken, Taken::Nothing { is_more_due: false }) {
            return (taken, queued_for, None);
        }
        let is_free = self.timekeeper.is_none_or(|keeper| keeper == waiter);
        let wake = if is_free { self.next_due() } else { None };
        if is_free {
            self.timekeeper = wake.map(|_| waiter);
        }
        self.workers.park(waiter);
        (taken, None, wake)
    }
}
