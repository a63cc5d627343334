//! A delay that doubles with every failure of a key.

use std::{hash::Hash, time::Duration};

use tokio::time::Instant;

use super::{LimiterError, RateLimiter, attempts::Attempts};

/// The delay `base · 2^n` for a key with n failures in a row before, at most `max`. The first
/// failure waits `base`.
///
/// Without jitter: wrap it in a [`Jitter`](super::Jitter) if keys that fail together should not
/// retry together.
#[derive(Debug)]
pub struct Exponential<K> {
    base: Duration,
    max: Duration,
    failures: Attempts<K, u32>,
}

impl<K: Clone + Eq + Hash + Send + 'static> Exponential<K> {
    /// A delay from `base`, doubling up to `max`.
    ///
    /// # Errors
    ///
    /// `base` is zero, or `max` is below it.
    pub fn new(base: Duration, max: Duration) -> Result<Self, LimiterError> {
        if base.is_zero() {
            return Err(LimiterError::ZeroBase);
        }
        if max < base {
            return Err(LimiterError::MaxBelowBase { base, max });
        }
        Ok(Self::constant(base, max))
    }

    /// Expires the count of a key that did not fail for `idle`. Otherwise keys that fail and then
    /// vanish without a `forget` stay forever. Twice the longest delay is a good value.
    ///
    /// # Errors
    ///
    /// `idle` is below twice the longest delay: a key must not be forgotten while it waits, or
    /// during its next attempt.
    pub fn expire_idle(mut self, idle: Duration) -> Result<Self, LimiterError> {
        super::check_idle(idle, self.max)?;
        self.failures.expire(idle);
        Ok(self)
    }

    /// From constants that are known to be valid.
    pub(super) fn constant(base: Duration, max: Duration) -> Self {
        Self { base, max, failures: Attempts::default() }
    }
}

impl<K: Clone + Eq + Hash + Send + 'static> RateLimiter<K> for Exponential<K> {
    fn when(&self, key: &K, now: Instant) -> Duration {
        let failed = self.failures.with(key, now, |failures| {
            let failed = *failures;
            *failures = failures.saturating_add(1);
            failed
        });
        let factor = 1_u32.checked_shl(failed);
        factor
            .and_then(|factor| self.base.checked_mul(factor))
            .map_or(self.max, |delay| delay.min(self.max))
    }

    fn forget(&self, key: &K) {
        self.failures.forget(key);
    }

    fn num_requeues(&self, key: &K) -> u32 {
        self.failures.peek(key, |failures| *failures).unwrap_or(0)
    }

    fn len(&self) -> usize {
        self.failures.len()
    }
}
