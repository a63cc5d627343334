//! State shared by all handles and items of a queue: a lock around [`State`], and the futures that
//! wait for it.
//!
//! Every step goes through [`Shared::step`]: take the lock, change the state, release the lock,
//! then wake waiters and report metrics. Of the user's code, only `Clone`, `Eq` and `Drop` of keys
//! run under the lock.

use std::{
    future::poll_fn,
    hash::{BuildHasher, Hash},
    marker::PhantomData,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    task::Poll,
    time::Duration,
};

use hashbrown::DefaultHashBuilder;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    keys::SlotIdx,
    moment::{Epoch, Moment},
    options::Group,
    ready::Want,
    state::{Handed, State, Taken},
    tag::Tag,
    waiters::WaiterIdx,
};
use crate::{Metrics, RateLimiter};

/// One of this many hand-outs takes a unit of the worker's cooperative budget, which tokio sets to
/// 128.
const TURNS: u32 = 4;

/// Returns the group of a key.
pub(super) type GroupOf<K> = Box<dyn Fn(&K) -> Group + Send + Sync>;

/// A lock that is held for one step. It hands out no guard.
pub(super) trait Lock<T> {
    fn new(value: T) -> Self;

    /// Runs `step` under the lock.
    fn with<R>(&self, step: impl FnOnce(&mut T) -> R) -> R;
}

impl<T> Lock<T> for Mutex<T> {
    fn new(value: T) -> Self {
        Self::new(value)
    }

    #[inline]
    fn with<R>(&self, step: impl FnOnce(&mut T) -> R) -> R {
        step(&mut self.lock())
    }
}

pub(super) struct Shared<K, L = Mutex<State<K>>> {
    // Settings.
    pub(super) hasher: DefaultHashBuilder,
    pub(super) epoch: Epoch,
    pub(super) limiter: Box<dyn RateLimiter<K>>,
    pub(super) metrics: Option<Arc<dyn Metrics>>,
    pub(super) group_of: Option<GroupOf<K>>,
    pub(super) has_ages: bool,
    pub(super) has_priorities: bool,

    // State.
    pub(super) state: L,
    /// Whether the state is shutting down, readable without the lock.
    pub(super) is_closed: AtomicBool,
    /// Approximate count of hand-outs.
    pub(super) turns: AtomicU32,
    pub(super) key: PhantomData<fn(K)>,
}

impl<K, L: Lock<State<K>>> Shared<K, L> {
    /// Runs one step of the state, then wakers waiters and reports metrics.
    #[inline]
    pub(super) fn step<T>(&self, step: impl FnOnce(&mut State<K>) -> T) -> T {
        let (seen, effects) = self.state.with(|state| (step(state), state.take_effects()));
        if let Some(effects) = effects {
            if let Some(metrics) = &self.metrics {
                (0..effects.n_added).for_each(|_| metrics.added());
            }
            effects.wakers.wake();
        }
        seen
    }

    /// Moves all keys that have fallen due, then runs one step, so that a reader counts none of
    /// them as waiting. Releases the lock in between.
    pub(super) fn step_when_fired<T>(&self, step: impl FnOnce(&mut State<K>) -> T) -> T {
        let mut step = Some(step);
        loop {
            let seen = self.step(|state| {
                let step = if state.fire() { None } else { step.take() };
                step.map(|step| step(state))
            });
            if let Some(seen) = seen {
                return seen;
            }
        }
    }

    /// Whether this hand-out counts against the worker's budget: one of [`TURNS`], to save time.
    #[inline]
    pub(super) fn is_turn(&self) -> bool {
        // Concurrent workers may count as one, because an approximate count is enough.
        let turn = self.turns.load(Ordering::Relaxed).wrapping_add(1);
        self.turns.store(turn, Ordering::Relaxed);
        turn.is_multiple_of(TURNS)
    }

    /// The current time, if ages are recorded.
    #[inline]
    pub(super) fn aged_now(&self) -> Option<Moment> {
        self.has_ages.then(|| self.epoch.now())
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn done(&self, idx: SlotIdx) {
        let now = self.aged_now();
        let worked_for = self.step(|state| state.done(idx, now));
        if let (Some(metrics), Some(worked_for)) = (&self.metrics, worked_for) {
            metrics.done(worked_for);
        }
    }

    /// Frees the worker of a key, whose work counts as done.
    pub(super) fn rest(&self, idx: SlotIdx) {
        let now = self.aged_now();
        let worked_for = self.step(|state| state.rest(idx, now));
        if let (Some(metrics), Some(worked_for)) = (&self.metrics, worked_for) {
            metrics.done(worked_for);
        }
    }

    pub(super) fn shut_down(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.step(State::shut_down);
    }

    pub(super) async fn shut_down_with_drain(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        let (drain, waiter) = self.step(|state| (state.drain(), state.drains().register()));
        let _guard = DrainGuard { shared: self, waiter };
        loop {
            let is_over = self.step(|state| {
                state.drains().check(waiter);
                let is_over = state.is_drained(drain);
                if !is_over {
                    state.drains().park(waiter);
                }
                is_over
            });
            if is_over {
                return;
            }
            // Cancel safe: dropping the guard removes the waiter, and all drains are notified
            // together.
            poll_fn(|cx| match self.step(|state| state.drains().is_notified(waiter, cx.waker())) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            })
            .await;
        }
    }
}

impl<K: Clone + Eq + Hash, L: Lock<State<K>>> Shared<K, L> {
    #[inline]
    pub(super) fn hash(&self, key: &K) -> u32 {
        (self.hasher.hash_one(key) >> 32) as u32
    }

    #[inline]
    pub(super) fn want(&self, key: &K, priority: i32, tag: Tag) -> Want {
        let group = self.group_of.as_ref().map_or(Group { id: 0, weight: 1 }, |of| of(key));
        Want { priority, group, tag }
    }

    #[inline]
    pub(super) fn add(&self, key: K, priority: i32, tag: Tag) {
        let hash = self.hash(&key);
        let want = self.want(&key, priority, tag);
        let now = self.aged_now();
        self.step(|state| state.add(key, hash, want, None, now));
    }

    pub(super) fn add_at(&self, key: K, priority: i32, tag: Tag, at: Instant) {
        let hash = self.hash(&key);
        let want = self.want(&key, priority, tag);
        let now = self.aged_now();
        let at = self.epoch.moment(at);
        self.step(|state| state.add(key, hash, want, Some(at), now));
    }

    /// Reports how long a handed-out key was queued.
    #[inline]
    fn report_hand_out(&self, queued_for: Option<Duration>) {
        if let (Some(metrics), Some(queued_for)) = (&self.metrics, queued_for) {
            metrics.handed_out(queued_for);
        }
    }

    #[inline(always)]
    pub(super) fn take(&self) -> Taken<K> {
        loop {
            let now = self.aged_now();
            let (taken, queued_for) = self.step(|state| state.take(now));
            if !matches!(taken, Taken::Nothing { is_more_due: true }) {
                self.report_hand_out(queued_for);
                return taken;
            }
        }
    }

    /// Waits for the next key. `None` once the queue is shut down and empty.
    pub(super) async fn wait(&self) -> Option<Handed<K>> {
        let waiter = self.step(|state| state.workers().register());
        let _guard = WorkerGuard { shared: self, waiter };
        loop {
            let now = self.aged_now();
            let (taken, queued_for, wake) = self.step(|state| state.take_or_park(waiter, now));
            self.report_hand_out(queued_for);
            match taken {
                Taken::Key(handed) => return Some(handed),
                Taken::ShutDown => return None,
                Taken::Nothing { is_more_due: true } => continue,
                Taken::Nothing { is_more_due: false } => {}
            }
            let notified = poll_fn(|cx| {
                match self.step(|state| state.workers().is_notified(waiter, cx.waker())) {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                }
            });
            let Some(wake) = wake else {
                // Cancel safe: removing the waiter passes an unconsumed notification on.
                notified.await;
                continue;
            };
            tokio::select! {
                // Without `biased`, tokio picks the first arm at random, and which waiter gets a
                // key could differ from run to run.
                biased;
                // Cancel safe: as above.
                () = notified => {}
                // Cancel safe: a due key moves only in `take`.
                () = tokio::time::sleep_until(self.epoch.instant(wake)) => {}
            }
        }
    }
}

/// Registers a waiting worker, which may be the timekeeper, until dropped.
struct WorkerGuard<'a, K, L: Lock<State<K>>> {
    shared: &'a Shared<K, L>,
    waiter: WaiterIdx,
}

impl<K, L: Lock<State<K>>> Drop for WorkerGuard<'_, K, L> {
    fn drop(&mut self) {
        self.shared.step(|state| state.leave(self.waiter));
    }
}

/// Registers a waiting drain until dropped.
struct DrainGuard<'a, K, L: Lock<State<K>>> {
    shared: &'a Shared<K, L>,
    waiter: WaiterIdx,
}

impl<K, L: Lock<State<K>>> Drop for DrainGuard<'_, K, L> {
    fn drop(&mut self) {
        self.shared.step(|state| _ = state.drains().deregister(self.waiter));
    }
}
