//! A few quick tries, then slow ones.

use std::{hash::Hash, time::Duration};

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::RateLimiter;

/// `fast` for the first `n_fast` attempts of a key, then `slow`.
#[derive(Debug)]
pub struct FastSlow<K> {
    fast: Duration,
    slow: Duration,
    n_fast: u32,
    attempts: Mutex<HashMap<K, u32>>,
}

impl<K: Clone + Eq + Hash + Send + 'static> FastSlow<K> {
    /// `fast` for `n_fast` attempts, then `slow`. Any figures make sense; zero is at once.
    pub fn new(fast: Duration, slow: Duration, n_fast: u32) -> Self {
        Self { fast, slow, n_fast, attempts: Mutex::default() }
    }
}

impl<K: Clone + Eq + Hash + Send + 'static> RateLimiter<K> for FastSlow<K> {
    fn when(&self, key: &K, _now: Instant) -> Duration {
        let mut attempts = self.attempts.lock();
        let attempt = attempts.entry_ref(key).or_insert(0);
        *attempt = attempt.saturating_add(1);
        if *attempt <= self.n_fast { self.fast } else { self.slow }
    }

    fn forget(&self, key: &K) {
        self.attempts.lock().remove(key);
    }

    fn num_requeues(&self, key: &K) -> u32 {
        self.attempts.lock().get(key).copied().unwrap_or(0)
    }

    fn len(&self) -> usize {
        self.attempts.lock().len()
    }
}
