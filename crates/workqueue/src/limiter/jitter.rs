//! A limiter with random delays.

use std::{error::Error, time::Duration};

use parking_lot::Mutex;
use rand::{Rng, SeedableRng, rngs::SmallRng};
use tokio::time::Instant;

use super::{LimiterError, RateLimiter};

/// The delay of another limiter plus a uniform random part of it, so that keys that failed together
/// retry at different times.
///
/// Never less than the inner delay. To cap it, wrap it: `MaxWait::new(Jitter::new(…)?, max)`.
#[derive(Debug)]
pub struct Jitter<L> {
    inner: L,
    fraction: f64,
    rng: Mutex<SmallRng>,
}

impl<L> Jitter<L> {
    /// Adds up to `fraction` of the delay of `inner`: 0.2 is up to a fifth more.
    ///
    /// # Errors
    ///
    /// `fraction` is negative or not finite.
    pub fn new(inner: L, fraction: f64) -> Result<Self, LimiterError> {
        if !(fraction.is_finite() && fraction >= 0.0) {
            return Err(LimiterError::Jitter { fraction });
        }
        Ok(Self { inner, fraction, rng: Mutex::new(SmallRng::from_os_rng()) })
    }

    /// Sets the seed of the random parts: the same seed gives the same delays. Default: from the
    /// operating system's entropy.
    pub fn seed(mut self, seed: u64) -> Self {
        self.rng = Mutex::new(SmallRng::seed_from_u64(seed));
        self
    }

    fn spread(&self, delay: Duration) -> Duration {
        let part = self.rng.lock().random::<f64>() * self.fraction;
        let more =
            Duration::try_from_secs_f64(delay.as_secs_f64() * part).unwrap_or(crate::DELAY_MAX);
        delay.saturating_add(more)
    }
}

impl<K, L: RateLimiter<K>> RateLimiter<K> for Jitter<L> {
    fn when(&self, key: &K, now: Instant) -> Duration {
        self.spread(self.inner.when(key, now))
    }

    fn when_failed(&self, key: &K, now: Instant, error: &(dyn Error + 'static)) -> Duration {
        self.spread(self.inner.when_failed(key, now, error))
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
