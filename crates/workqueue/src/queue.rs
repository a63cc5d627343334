//! The queue itself: a lock around [`State`], and the ways to wait for it.

mod builder;
mod item;
mod state;

use std::{fmt, hash::BuildHasher, hash::Hash, pin::pin, sync::Arc, time::Duration};

use hashbrown::DefaultHashBuilder;
use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

use self::state::{State, Taken};
pub use self::{builder::Builder, item::Item};
use crate::{Metrics, RateLimiter, Stats};

/// The longest delay that is honored: ten years. A longer one is cut to this, so that adding it to the present cannot overflow.
pub const DELAY_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// How a key is added; see [`WorkQueue::add_with`]. The default is a plain add.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct AddOptions {
    /// Wait this long first; zero is at once.
    pub after: Option<Duration>,
    /// Wait as long as the rate limiter says, which counts an attempt. With `after` too, the shorter of the two.
    pub rate_limited: bool,
}

impl AddOptions {
    /// The same, after `delay`.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        Self { after: Some(delay), ..self }
    }

    /// The same, but when the rate limiter allows.
    #[must_use]
    pub fn rate_limited(self) -> Self {
        Self { rate_limited: true, ..self }
    }
}

/// A queue of keys that hands each key to one worker at a time. The crate page has the contract.
///
/// A clone is another handle to the same queue. Every method may be called from any thread; those that are not `async` never wait
/// for a worker and need no runtime.
pub struct WorkQueue<K> {
    shared: Arc<Shared<K>>,
}

/// What all handles and all items of a queue share.
struct Shared<K> {
    hasher: DefaultHashBuilder,
    limiter: Box<dyn RateLimiter<K>>,
    metrics: Option<Arc<dyn Metrics>>,

    state: Mutex<State<K>>,

    /// A key became queued, the timekeeper's post is free, or the shutdown has come.
    ready: Notify,
    /// The earliest due time moved forward: for the timekeeper.
    sooner: Notify,
    /// A drain may have ended.
    drained: Notify,
}

impl<K: Clone + Eq + Hash + Send + 'static> WorkQueue<K> {
    /// Starts a queue: with client-go's default rate limiter and no metrics, unless told otherwise.
    pub fn builder() -> Builder<K> {
        Builder::new()
    }

    /// Wants `key` to be handed out, as soon as it may be.
    ///
    /// Consumes the key's waiting entry, if any. Ignored after a shutdown.
    pub fn add(&self, key: K) {
        let hash = self.shared.hasher.hash_one(&key);
        let since = self.shared.metered_now();
        let change = self.shared.state.lock().add(key, hash, since);
        self.shared.announce(change);
    }

    /// Wants `key` to be handed out `delay` from now.
    ///
    /// If it waits already, the earlier due time holds; if it is queued or dirty, the delay is ignored. Zero is a plain add.
    pub fn add_after(&self, key: K, delay: Duration) {
        self.add_with(key, AddOptions::default().after(delay));
    }

    /// Wants `key` to be handed out when the rate limiter allows; counts an attempt.
    pub fn add_rate_limited(&self, key: K) {
        self.add_with(key, AddOptions::default().rate_limited());
    }

    /// Wants `key` to be handed out as `options` say.
    pub fn add_with(&self, key: K, options: AddOptions) {
        if self.is_shutting_down() {
            return;
        }
        let limited = options.rate_limited.then(|| self.shared.limiter.when(&key, Instant::now()));
        let delay = match (limited, options.after) {
            (Some(limited), Some(after)) => limited.min(after),
            (Some(delay), None) | (None, Some(delay)) => delay,
            (None, None) => return self.add(key),
        };
        if let Some(metrics) = &self.shared.metrics {
            metrics.retried();
        }
        if delay.is_zero() {
            return self.add(key);
        }
        let hash = self.shared.hasher.hash_one(&key);
        let due = Instant::now() + delay.min(DELAY_MAX);
        let change = self.shared.state.lock().add_at(key, hash, due);
        self.shared.announce(change);
    }

    /// Clears the rate limiter's count for `key`. The queue itself is not touched.
    pub fn forget(&self, key: &K) {
        self.shared.limiter.forget(key);
    }

    /// How many attempts the rate limiter has counted for `key` since the last [`forget`](Self::forget).
    pub fn num_requeues(&self, key: &K) -> u32 {
        self.shared.limiter.num_requeues(key)
    }

    /// Drops the waiting entry of `key`; says whether there was one. A key that is queued or held stays so.
    pub fn cancel_delayed(&self, key: &K) -> bool {
        let hash = self.shared.hasher.hash_one(key);
        self.shared.look(|state| state.cancel_delayed(key, hash))
    }

    /// The next key, or `None` once the queue is shut down and empty. Waits until there is one or the other.
    ///
    /// Cancel safe: a dropped `get` has taken nothing. Cooperative: under a tokio runtime, a worker that always finds a key still
    /// yields now and then.
    pub async fn get(&self) -> Option<Item<K>> {
        // Cancel safe: nothing is taken yet.
        tokio::task::consume_budget().await;
        match self.take(Patience::None) {
            Taken::Key(key, slot, _) => Some(Item::new(self.shared.clone(), key, slot)),
            Taken::ShutDown => None,
            Taken::Nothing { .. } => self.wait().await,
        }
    }

    /// [`get`](Self::get), when there was nothing at once.
    async fn wait(&self) -> Option<Item<K>> {
        // Kept until this call ends: left and taken again at each turn, the post would wake its own holder for ever.
        let mut waiter = Waiter { shared: &self.shared, is_counted: false, is_timekeeper: false };
        loop {
            let mut ready = pin!(self.shared.ready.notified());
            // From here on an add wakes this call, also one that comes before the await.
            ready.as_mut().enable();
            let patience = if waiter.is_counted { Patience::Counted } else { Patience::New };
            let wake = match self.take(patience) {
                Taken::Key(key, slot, _) => return Some(Item::new(self.shared.clone(), key, slot)),
                Taken::ShutDown => return None,
                Taken::Nothing { wake } => wake,
            };
            waiter.is_counted = true;
            if wake.is_some() && !waiter.is_timekeeper {
                waiter.is_timekeeper = self.shared.state.lock().take_post();
            }
            if !waiter.is_timekeeper {
                // Cancel safe: a dropped notification is passed on to another waiter.
                ready.await;
                continue;
            }
            let falling_due = async {
                match wake {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // Otherwise the first arm to be asked is drawn by lot, and which waiter gets a key could differ from run to run.
                biased;
                // Cancel safe: as above.
                () = ready => {}
                // Cancel safe: the due time is read anew.
                () = self.shared.sooner.notified() => {}
                // Cancel safe: a due key moves only in `take`.
                () = falling_due => {}
            }
        }
    }

    /// The next key if there is one now.
    pub fn try_get(&self) -> Option<Item<K>> {
        match self.take(Patience::None) {
            Taken::Key(key, slot, _) => Some(Item::new(self.shared.clone(), key, slot)),
            Taken::ShutDown | Taken::Nothing { .. } => None,
        }
    }

    fn take(&self, patience: Patience) -> Taken<K> {
        let metered = self.shared.metered_now();
        let taken = self.shared.look(|state| state.take(metered, patience));
        if let (Taken::Key(_, _, Some(queued_for)), Some(metrics)) = (&taken, &self.shared.metrics)
        {
            metrics.handed_out(*queued_for);
        }
        taken
    }

    /// How many keys could be handed out now: without those held by workers and those that wait.
    pub fn len(&self) -> usize {
        self.shared.look(State::len)
    }

    /// Whether no key could be handed out now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many keys wait for their due time.
    pub fn waiting(&self) -> usize {
        self.shared.look(State::waiting)
    }

    /// The gauges at this moment.
    pub fn stats(&self) -> Stats {
        let limited = self.shared.limiter.len();
        let now = self.shared.metered_now();
        Stats { limited, ..self.shared.look(|state| state.stats(now)) }
    }

    /// Whether a shutdown has begun.
    pub fn is_shutting_down(&self) -> bool {
        self.shared.state.lock().is_shutting_down()
    }

    /// Ignores further adds and drops what waits; what is queued is still handed out, then every `get` returns `None`.
    ///
    /// Ends a drain that is under way. Harmless when repeated.
    pub fn shut_down(&self) {
        self.shared.state.lock().shut_down();
        self.shared.ready.notify_waiters();
        self.shared.drained.notify_waiters();
    }

    /// Shuts down and returns when no key is queued and none is held by a worker.
    ///
    /// client-go's drain waits for the held keys only. Somebody must still call `get`, and workers must finish: give it a time-out.
    /// Dropping the call leaves the queue shut down. [`shut_down`](Self::shut_down) from elsewhere ends it at once.
    pub async fn shut_down_with_drain(&self) {
        let drain = self.shared.state.lock().drain();
        self.shared.ready.notify_waiters();
        loop {
            let mut drained = pin!(self.shared.drained.notified());
            drained.as_mut().enable();
            if self.shared.state.lock().is_drained(drain) {
                return;
            }
            drained.await;
        }
    }
}

impl<K> Shared<K> {
    /// The time, if somebody measures.
    fn metered_now(&self) -> Option<Instant> {
        self.metrics.is_some().then(Instant::now)
    }

    /// Runs a step that notices what has fallen due, then tells the waiters about it.
    fn look<T>(&self, step: impl FnOnce(&mut State<K>) -> T) -> T {
        let (found, fired) = {
            let mut state = self.state.lock();
            (step(&mut state), state.take_fired())
        };
        for _ in 0..fired.wanted {
            if let Some(metrics) = &self.metrics {
                metrics.added();
            }
        }
        for _ in 0..fired.ready {
            self.ready.notify_one();
        }
        found
    }

    /// Tells those concerned what a change of state means to them.
    fn announce(&self, change: Change) {
        if change.wanted
            && let Some(metrics) = &self.metrics
        {
            metrics.added();
        }
        if change.ready {
            self.ready.notify_one();
        }
        if change.sooner {
            self.sooner.notify_one();
        }
        if change.drained {
            self.drained.notify_waiters();
        }
    }
}

/// What a change of state means to others.
#[derive(Debug, Clone, Copy, Default)]
struct Change {
    /// A key became wanted.
    wanted: bool,
    /// One who waits is to look: a key became queued, or the post of the timekeeper is to be taken.
    ready: bool,
    /// The timekeeper sleeps too long: the earliest due time moved forward.
    sooner: bool,
    /// Nothing is queued or held any more, and somebody drains.
    drained: bool,
}

/// Whether whoever takes a key will wait if there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Patience {
    /// It will not.
    None,
    /// It will, and is to be counted among the waiters then.
    New,
    /// It will, and is counted already.
    Counted,
}

/// One who waits; perhaps the one among them that sleeps until the earliest due time.
struct Waiter<'a, K> {
    shared: &'a Shared<K>,
    is_counted: bool,
    is_timekeeper: bool,
}

impl<K> Drop for Waiter<'_, K> {
    fn drop(&mut self) {
        if !self.is_counted {
            return;
        }
        let is_missed = self.shared.state.lock().leave(self.is_timekeeper);
        if is_missed {
            self.shared.ready.notify_one();
        }
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
