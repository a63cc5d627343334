//! A few fast attempts, then slow ones.

use std::{hash::Hash, time::Duration};

use tokio::time::Instant;

use super::{LimiterError, RateLimiter, attempts::Attempts};

/// A delay of `fast` for the first `n_fast` attempts of a key, then `slow`.
#[derive(Debug)]
pub struct FastSlow<K> {
    fast: Duration,
    slow: Duration,
    n_fast: u32,
    attempts: Attempts<K, u32>,
}

impl<K: Clone + Eq + Hash + Send + 'static> FastSlow<K> {
    /// A delay of `fast` for `n_fast` attempts, then `slow`. All values are valid; zero means at
    /// once.
    pub fn new(fast: Duration, slow: Duration, n_fast: u32) -> Self {
        Self { fast, slow, n_fast, attempts: Attempts::default() }
    }

    /// Expires the count of a key that made no attempt for `idle`.
    ///
    /// # Errors
    ///
    /// `idle` is below twice the longer delay: a key must not be forgotten while it waits, or
    /// during its next attempt.
    pub fn expire_idle(mut self, idle: Duration) -> Result<Self, LimiterError> {
        super::check_idle(idle, self.fast.max(self.slow))?;
        self.attempts.expire(idle);
        Ok(self)
    }
}

impl<K: Clone + Eq + Hash + Send + 'static> RateLimiter<K> for FastSlow<K> {
    fn when(&self, key: &K, now: Instant) -> Duration {
        let attempt = self.attempts.with(key, now, |attempts| {
            *attempts = attempts.saturating_add(1);
            *attempts
        });
        if attempt <= self.n_fast { self.fast } else { self.slow }
    }

    fn forget(&self, key: &K) {
        self.attempts.forget(key);
    }

    fn num_requeues(&self, key: &K) -> u32 {
        self.attempts.peek(key, |attempts| *attempts).unwrap_or(0)
    }

    fn len(&self) -> usize {
        self.attempts.len()
    }
}
