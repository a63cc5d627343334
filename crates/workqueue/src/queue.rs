//! The queue's public handle.

mod ages;
mod builder;
mod due;
mod get;
mod inspect;
#[cfg(test)]
mod interleavings;
mod item;
mod keys;
mod lanes;
mod moment;
mod options;
mod ready;
mod shared;
mod state;
mod table;
mod tag;
mod waiters;

use std::{error::Error, fmt, hash::Hash, sync::Arc, time::Duration};

use tokio::time::Instant;

pub use self::{
    builder::Builder,
    get::Get,
    inspect::{Entry, Phase},
    item::{Item, OwnedItem, RestingItem},
    lanes::LevelStats,
    options::{AddOptions, AtShutdown, Group, PRIORITY_LOW, Priorities},
    tag::Tag,
};
use self::{
    shared::Shared,
    state::{State, Taken},
};
use crate::Stats;

/// The longest delay: ten years. A longer one is cut to this, so that adding it to the current time
/// cannot overflow.
pub const DELAY_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Maximum count of adds of a key between two hand-outs; see [`Item::n_adds`].
pub const ADDS_MAX: u32 = u16::MAX as u32;

/// A queue of keys that hands each key to one worker at a time. The crate page has the contract.
///
/// A clone is another handle of the same queue. Every method may be called from any thread. Those
/// that are not `async` never wait for a worker and need no runtime.
pub struct WorkQueue<K> {
    shared: Arc<Shared<K>>,
}

impl<K: Clone + Eq + Hash + Send + 'static> WorkQueue<K> {
    /// Returns a builder. Default: first come, first served, client-go's default rate limiter, no
    /// metrics.
    pub fn builder() -> Builder<K> {
        Builder::new()
    }

    /// Adds `key`, to be handed out as soon as possible.
    ///
    /// Consumes the key's waiting entry, if any. Ignored after a shutdown.
    #[inline]
    pub fn add(&self, key: K) {
        self.shared.add(key, 0, Tag::NONE);
    }

    /// Adds `key`, to be handed out after `delay`.
    ///
    /// If the key already waits, the earlier due time wins. If it is queued or dirty, the delay is
    /// ignored. Zero is a plain add.
    pub fn add_after(&self, key: K, delay: Duration) {
        self.add_with(key, AddOptions::default().after(delay));
    }

    /// Adds `key`, to be handed out after the rate limiter's delay. Counts an attempt.
    pub fn add_rate_limited(&self, key: K) {
        self.add_with(key, AddOptions::default().rate_limited());
    }

    /// Adds `key` with options.
    ///
    /// Of several adds before a hand-out, the earliest time and the highest priority apply, in any
    /// order of the adds.
    pub fn add_with(&self, key: K, options: AddOptions) {
        if self.shared.is_closed() {
            return;
        }
        let limited = options.rate_limited.then(|| self.shared.limiter.when(&key, Instant::now()));
        self.add_limited(key, limited, options);
    }

    /// Adds `key` after its work failed with `error`, to be handed out after the rate limiter's
    /// delay, which may depend on the error. Counts an attempt. The other options apply; it is rate
    /// limited in any case.
    pub fn add_failed(&self, key: K, error: &(dyn Error + 'static), options: AddOptions) {
        if self.shared.is_closed() {
            return;
        }
        let limited = self.shared.limiter.when_failed(&key, Instant::now(), error);
        self.add_limited(key, Some(limited), options);
    }

    /// `limited` is the rate limiter's delay, if it was called.
    fn add_limited(&self, key: K, limited: Option<Duration>, options: AddOptions) {
        let (priority, tag) = (options.priority.unwrap_or(0), options.tag);
        let delay = match (limited, options.after) {
            (Some(limited), Some(after)) => limited.min(after),
            (Some(delay), None) | (None, Some(delay)) => delay,
            (None, None) => return self.shared.add(key, priority, tag),
        };
        if let Some(metrics) = &self.shared.metrics
            && !(self.shared.has_priorities && delay.is_zero())
        {
            metrics.retried();
        }
        if delay.is_zero() {
            return self.shared.add(key, priority, tag);
        }
        self.shared.add_at(key, priority, tag, Instant::now() + delay.min(DELAY_MAX));
    }

    /// Clears the rate limiter's count for `key`. Does not change the queue itself.
    pub fn forget(&self, key: &K) {
        self.shared.limiter.forget(key);
    }

    /// Number of attempts that the rate limiter has counted for `key` since the last
    /// [`forget`](Self::forget).
    pub fn num_requeues(&self, key: &K) -> u32 {
        self.shared.limiter.num_requeues(key)
    }

    /// Drops the waiting entry of `key` and returns whether there was one. A key that is queued or
    /// held stays so.
    pub fn cancel_delayed(&self, key: &K) -> bool {
        let hash = self.shared.hash(key);
        self.shared.step_when_fired(|state| state.cancel_delayed(key, hash))
    }

    /// Waits for the next key. `None` once the queue is shut down and empty.
    ///
    /// Cancel safe: dropping the future takes no key. Cooperative: under a tokio runtime, a worker
    /// that always finds a key still yields regularly.
    pub fn get(&self) -> Get<'_, K> {
        Get::new(&self.shared)
    }

    /// The next key. `None` if no key is ready now.
    pub fn try_get(&self) -> Option<Item<'_, K>> {
        match self.shared.take() {
            Taken::Key(handed) => Some(Item::new(&self.shared, handed)),
            Taken::ShutDown | Taken::Nothing { .. } => None,
        }
    }

    /// Number of keys that are ready to be handed out, without those that are held or waiting.
    ///
    /// With [`priorities`](Builder::priorities), dirty keys count too, as in controller-runtime.
    pub fn len(&self) -> usize {
        self.shared.step_when_fired(State::len)
    }

    /// Whether no key is ready to be handed out.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of keys that wait for their due time.
    pub fn waiting(&self) -> usize {
        self.shared.step_when_fired(State::waiting)
    }

    /// The current gauges. Takes time proportional to the keys in flight and the groups, not to all
    /// keys.
    pub fn stats(&self) -> Stats {
        let limited = self.shared.limiter.len();
        let now = self.shared.aged_now();
        Stats { limited, ..self.shared.step_when_fired(|state| state.stats(now)) }
    }

    /// The number of ready keys per priority, the highest first. Empty without
    /// [`priorities`](Builder::priorities).
    pub fn levels(&self) -> Vec<LevelStats> {
        let now = self.shared.aged_now();
        self.shared.step_when_fired(|state| state.levels(now))
    }

    /// The state of `key`; `None` if it is absent.
    pub fn entry(&self, key: &K) -> Option<Entry<K>> {
        let hash = self.shared.hash(key);
        let mut entry = self.shared.step_when_fired(|state| state.entry(key, hash))?;
        entry.requeues = self.shared.limiter.num_requeues(key);
        Some(entry)
    }

    /// The state of up to `n_max` keys, in no particular order. Holds the queue's lock meanwhile,
    /// so choose a small `n_max`.
    pub fn entries(&self, n_max: usize) -> Vec<Entry<K>> {
        let mut entries = self.shared.step_when_fired(|state| state.entries(n_max));
        for entry in &mut entries {
            entry.requeues = self.shared.limiter.num_requeues(&entry.key);
        }
        entries
    }

    /// Whether the queue is shut down.
    pub fn is_shutting_down(&self) -> bool {
        self.shared.is_closed()
    }

    /// Ignores further adds and drops waiting keys. Queued keys are handed out or dropped, by
    /// [`Builder::at_shutdown`]; after that every `get` returns `None`.
    ///
    /// Ends a drain that is in progress. May be called repeatedly.
    pub fn shut_down(&self) {
        self.shared.shut_down();
    }

    /// Shuts down, and returns when no key is queued and none is held by a worker.
    ///
    /// client-go's drain waits for the held keys only, controller-runtime's for nothing. Workers
    /// must still call `get` and finish, so use a timeout. Dropping the future leaves the queue
    /// shut down. [`shut_down`](Self::shut_down) from elsewhere ends it at once.
    pub async fn shut_down_with_drain(&self) {
        self.shared.shut_down_with_drain().await;
    }
}

impl<K> Clone for WorkQueue<K> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<K: Clone + Eq + Hash + Send + 'static> fmt::Debug for WorkQueue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkQueue").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
