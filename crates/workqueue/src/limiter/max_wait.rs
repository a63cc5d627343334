//! A limiter with a maximum delay.

use std::{error::Error, time::Duration};

use tokio::time::Instant;

use super::RateLimiter;

/// The delay of another limiter, at most `max`. The inner limiter counts every attempt.
#[derive(Debug)]
pub struct MaxWait<L> {
    inner: L,
    max: Duration,
}

impl<L> MaxWait<L> {
    /// Caps the delay of `inner` at `max`.
    pub fn new(inner: L, max: Duration) -> Self {
        Self { inner, max }
    }
}

impl<K, L: RateLimiter<K>> RateLimiter<K> for MaxWait<L> {
    fn when(&self, key: &K, now: Instant) -> Duration {
        self.inner.when(key, now).min(self.max)
    }

    fn when_failed(&self, key: &K, now: Instant, error: &(dyn Error + 'static)) -> Duration {
        self.inner.when_failed(key, now, error).min(self.max)
    }

    fn forget(&self, key: &K) {
        self.inner.forget(key);
    }

    fn num_requeues(&self, key: &K) -> u32 {
        self.inner.num_requeues(key)
    }

    fn len(&self) -> usize {
        self.inner.len()
    }
}
