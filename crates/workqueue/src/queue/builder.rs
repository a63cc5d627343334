//! What may be chosen about a queue.

use std::{fmt, hash::Hash, sync::Arc};

use hashbrown::DefaultHashBuilder;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Shared, State, WorkQueue};
use crate::{Metrics, RateLimiter, controller_default};

/// Builds a [`WorkQueue`]. Nothing runs before or after [`build`](Self::build).
#[must_use = "a builder does nothing until `build`"]
pub struct Builder<K> {
    limiter: Box<dyn RateLimiter<K>>,
    metrics: Option<Arc<dyn Metrics>>,
}

impl<K: Clone + Eq + Hash + Send + 'static> Builder<K> {
    pub(super) fn new() -> Self {
        Self { limiter: Box::new(controller_default()), metrics: None }
    }

    /// How long `add_rate_limited` waits. By default [`controller_default`]: 5 ms doubling to 1000 s per key, and ten a second over
    /// all keys after a burst of a hundred.
    pub fn rate_limiter(mut self, limiter: impl RateLimiter<K>) -> Self {
        self.limiter = Box::new(limiter);
        self
    }

    /// Who is told what happens. By default nobody, and then no clock is read for it.
    pub fn metrics(mut self, metrics: Arc<dyn Metrics>) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// The queue: open and empty.
    pub fn build(self) -> WorkQueue<K> {
        let Self { limiter, metrics } = self;
        WorkQueue {
            shared: Arc::new(Shared {
                hasher: DefaultHashBuilder::default(),
                limiter,
                metrics,
                state: Mutex::new(State::new()),
                ready: Notify::new(),
                sooner: Notify::new(),
                drained: Notify::new(),
            }),
        }
    }
}

impl<K> fmt::Debug for Builder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("metrics", &self.metrics.is_some()).finish_non_exhaustive()
    }
}
