//! Options of a queue.

use std::{
    fmt,
    hash::Hash,
    marker::PhantomData,
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32},
    },
};

use hashbrown::DefaultHashBuilder;
use parking_lot::Mutex;

use super::{
    WorkQueue,
    ages::Ages,
    lanes::Lanes,
    options::{AtShutdown, Group, Priorities},
    ready::Ready,
    shared::{GroupOf, Lock, Shared},
    state::State,
};
use crate::{Metrics, RateLimiter, controller_default, priority_default};

/// Builds a [`WorkQueue`]. Starts nothing.
#[must_use = "a builder does nothing until `build`"]
pub struct Builder<K> {
    limiter: Option<Box<dyn RateLimiter<K>>>,
    metrics: Option<Arc<dyn Metrics>>,
    priorities: Option<Priorities>,
    group_of: Option<GroupOf<K>>,
    held_max: Option<NonZeroU32>,
    at_shutdown: Option<AtShutdown>,
    has_ages: bool,
}

impl<K: Clone + Eq + Hash + Send + 'static> Builder<K> {
    pub(super) fn new() -> Self {
        Self {
            limiter: None,
            metrics: None,
            priorities: None,
            group_of: None,
            held_max: None,
            at_shutdown: None,
            has_ages: false,
        }
    }

    /// Sets the rate limiter of `add_rate_limited`. Default: [`controller_default`], or
    /// [`priority_default`] with priorities.
    pub fn rate_limiter(mut self, limiter: impl RateLimiter<K>) -> Self {
        self.limiter = Some(Box::new(limiter));
        self
    }

    /// Sets the receiver of metrics, and turns [`ages`](Self::ages) on. Default: none.
    pub fn metrics(mut self, metrics: Arc<dyn Metrics>) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// Serves keys by [priority](crate::AddOptions::priority). By default priorities have no
    /// effect: first ready, first served.
    ///
    /// With priorities, a key that is added again while it is held keeps the place of that add.
    /// Without, it goes to the tail when done.
    pub fn priorities(mut self, priorities: Priorities) -> Self {
        self.priorities = Some(priorities);
        self
    }

    /// Serves groups of keys in turn within each priority (deficit round robin, every key costs
    /// one). A storm of one group delays a key of another group by one round. By default all keys
    /// are one group.
    ///
    /// `group_of` is called at each add, outside the lock. It must return the same group for a key
    /// each time.
    pub fn groups(mut self, group_of: impl Fn(&K) -> Group + Send + Sync + 'static) -> Self {
        self.group_of = Some(Box::new(group_of));
        self
    }

    /// Limits the keys of one group that are in flight at a time, so that slow work of one group
    /// does not hold all workers. No limit by default. No effect without [`groups`](Self::groups).
    pub fn group_in_flight_max(mut self, n: NonZeroU32) -> Self {
        self.held_max = Some(n);
        self
    }

    /// Sets what happens to queued keys at a shutdown. By default they are handed out, and with
    /// priorities abandoned.
    pub fn at_shutdown(mut self, at_shutdown: AtShutdown) -> Self {
        self.at_shutdown = Some(at_shutdown);
        self
    }

    /// Whether the queue records the times of transitions, for [`Entry::age`](crate::Entry::age),
    /// [`LevelStats::oldest`](crate::LevelStats::oldest) and the ages in [`Stats`](crate::Stats).
    /// Reads the clock once per add, hand-out and done. Off by default; metrics and
    /// [`Priorities::Ageing`] turn it on.
    pub fn ages(mut self, has_ages: bool) -> Self {
        self.has_ages = has_ages;
        self
    }

    /// Returns the queue: open and empty.
    pub fn build(self) -> WorkQueue<K> {
        WorkQueue { shared: Arc::new(self.shared::<Mutex<State<K>>>()) }
    }

    /// The state that handles share, with a lock of any kind.
    pub(super) fn shared<L: Lock<State<K>>>(self) -> Shared<K, L> {
        let Self { limiter, metrics, priorities, group_of, held_max, at_shutdown, has_ages } = self;
        let has_ages =
            has_ages || metrics.is_some() || matches!(priorities, Some(Priorities::Ageing { .. }));
        let limiter = limiter.unwrap_or_else(|| match priorities {
            None => Box::new(controller_default()),
            Some(_) => Box::new(priority_default()),
        });
        let at_shutdown = at_shutdown.unwrap_or(match priorities {
            None => AtShutdown::HandOut,
            Some(_) => AtShutdown::Abandon,
        });
        let ready = if priorities.is_none() && group_of.is_none() {
            Ready::Fifo(Default::default())
        } else {
            let held_max = held_max.filter(|_| group_of.is_some()).map(NonZeroU32::get);
            Ready::Lanes(Box::new(Lanes::new(priorities, held_max)))
        };
        let state = State::new(ready, at_shutdown, has_ages.then(Ages::default));
        Shared {
            hasher: DefaultHashBuilder::default(),
            epoch: state.epoch,
            limiter,
            metrics,
            group_of,
            has_ages,
            has_priorities: priorities.is_some(),
            state: L::new(state),
            is_closed: AtomicBool::new(false),
            turns: AtomicU32::new(0),
            key: PhantomData,
        }
    }
}

impl<K> fmt::Debug for Builder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("priorities", &self.priorities)
            .field("groups", &self.group_of.is_some())
            .field("metrics", &self.metrics.is_some())
            .finish_non_exhaustive()
    }
}
