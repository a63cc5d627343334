//! What all handles and all items of a queue share: a lock around [`State`], and the ways to wait
//! for it.
//!
//! Every step goes through [`Shared::step`]: take the lock, change the state, release the lock,
//! then wake and tell those whom the change concerns. Nothing of the user's but `Clone`, `Eq` and
//! `Drop` of keys runs under the lock.

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
    lock::Lock,
    moment::{Epoch, Moment},
    options::Group,
    parking::SeatIdx,
    ready::Want,
    state::{Handed, State, Taken},
    tag::Tag,
};
use crate::{Metrics, RateLimiter};

/// One of so many hand-outs costs a worker a unit of its budget, of which tokio gives 128 at a
/// time.
const TURNS: u32 = 4;

/// Says whose a key is.
pub(super) type GroupOf<K> = Box<dyn Fn(&K) -> Group + Send + Sync>;

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
    /// Whether the state is shutting down, to be seen without the lock.
    pub(super) is_closed: AtomicBool,
    /// Counts hand-outs, nearly.
    pub(super) turns: AtomicU32,
    pub(super) key: PhantomData<fn(K)>,
}

impl<K, L: Lock<State<K>>> Shared<K, L> {
    /// Runs one step of the state, then wakes and tells those whom it concerns.
    #[inline]
    pub(super) fn step<T>(&self, step: impl FnOnce(&mut State<K>) -> T) -> T {
        let (seen, effects) = self.state.with(|state| (step(state), state.take_effects()));
        if let Some(effects) = effects {
            if let Some(metrics) = &self.metrics {
                (0..effects.n_wanted).for_each(|_| metrics.added());
            }
            effects.wakes.wake();
        }
        seen
    }

    /// Whether this hand-out is one that is counted against a worker's budget: one of [`TURNS`],
    /// which saves time.
    #[inline]
    pub(super) fn is_turn(&self) -> bool {
        // Two workers at once may count as one: it is about now and then.
        let turn = self.turns.load(Ordering::Relaxed).wrapping_add(1);
        self.turns.store(turn, Ordering::Relaxed);
        turn.is_multiple_of(TURNS)
    }

    /// The time, if ages are kept.
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

    /// Frees the worker of a key, which counts as worked off.
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
        let (drain, seat) = self.step(|state| (state.drain(), state.drains().enter()));
        let _seat = DrainSeat { shared: self, seat };
        loop {
            let is_over = self.step(|state| {
                state.drains().wake_up(seat);
                let is_over = state.is_drained(drain);
                if !is_over {
                    state.drains().fall_asleep(seat);
                }
                is_over
            });
            if is_over {
                return;
            }
            // Cancel safe: the seat is left when it is dropped, and a drain's end is called to all.
            poll_fn(|cx| match self.step(|state| state.drains().is_called(seat, cx.waker())) {
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

    /// Tells how long a key was queued that was handed out.
    #[inline]
    fn tell(&self, queued_for: Option<Duration>) {
        if let (Some(metrics), Some(queued_for)) = (&self.metrics, queued_for) {
            metrics.handed_out(queued_for);
        }
    }

    #[inline(always)]
    pub(super) fn take(&self) -> Taken<K> {
        let now = self.aged_now();
        let (taken, queued_for) = self.step(|state| state.take(now));
        self.tell(queued_for);
        taken
    }

    /// The next key, when there is none at once; `None` when there never will be.
    pub(super) async fn wait(&self) -> Option<Handed<K>> {
        let seat = self.step(|state| state.workers().enter());
        let _seat = WorkerSeat { shared: self, seat };
        loop {
            let now = self.aged_now();
            let (taken, queued_for, wake) = self.step(|state| state.take_or_sleep(seat, now));
            self.tell(queued_for);
            match taken {
                Taken::Key(handed) => return Some(handed),
                Taken::ShutDown => return None,
                Taken::Nothing => {}
            }
            let called = poll_fn(|cx| {
                match self.step(|state| state.workers().is_called(seat, cx.waker())) {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                }
            });
            let Some(wake) = wake else {
                // Cancel safe: a call that is not heard is passed on when the seat is left.
                called.await;
                continue;
            };
            tokio::select! {
                // Otherwise the first arm to be asked is drawn by lot, and which waiter gets a key
                // could differ from run to run.
                biased;
                // Cancel safe: as above.
                () = called => {}
                // Cancel safe: a due key moves only in `take`.
                () = tokio::time::sleep_until(self.epoch.instant(wake)) => {}
            }
        }
    }
}

/// The seat of a worker that waits; perhaps that of the one who keeps the time.
struct WorkerSeat<'a, K, L: Lock<State<K>>> {
    shared: &'a Shared<K, L>,
    seat: SeatIdx,
}

impl<K, L: Lock<State<K>>> Drop for WorkerSeat<'_, K, L> {
    fn drop(&mut self) {
        self.shared.step(|state| state.leave(self.seat));
    }
}

/// The seat of one who waits for the end of a drain.
struct DrainSeat<'a, K, L: Lock<State<K>>> {
    shared: &'a Shared<K, L>,
    seat: SeatIdx,
}

impl<K, L: Lock<State<K>>> Drop for DrainSeat<'_, K, L> {
    fn drop(&mut self) {
        self.shared.step(|state| _ = state.drains().leave(self.seat));
    }
}
