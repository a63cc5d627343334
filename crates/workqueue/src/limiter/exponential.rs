//! A delay that doubles with every failure of a key.

use std::{hash::Hash, time::Duration};

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{LimiterError, RateLimiter};

/// `base · 2^n` for the n-th failure in a row of a key, at most `max`. The first failure waits `base`.
///
/// No jitter: wrap it in a [`Jitter`](super::Jitter) where keys that fail together should not come back together.
#[derive(Debug)]
pub struct Exponential<K> {
    base: Duration,
    max: Duration,
    failures: Mutex<HashMap<K, u32>>,
}

impl<K: Clone + Eq + Hash + Send + 'static> Exponential<K> {
    /// From `base` doubling to `max`.
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

    /// From figures that are known to be right.
    pub(super) fn constant(base: Duration, max: Duration) -> Self {
        Self { base, max, failures: Mutex::default() }
    }
}

impl<K: Clone + Eq + Hash + Send + 'static> RateLimiter<K> for Exponential<K> {
    fn when(&self, key: &K, _now: Instant) -> Duration {
        let failed = {
            let mut failures = self.failures.lock();
            match failures.get_mut(key) {
                Some(failures) => {
                    let failed = *failures;
                    *failures = failures.saturating_add(1);
                    failed
                }
                None => {
                    failures.insert(key.clone(), 1);
                    0
                }
            }
        };
        let factor = 1_u32.checked_shl(failed);
        factor
            .and_then(|factor| self.base.checked_mul(factor))
            .map_or(self.max, |delay| delay.min(self.max))
    }

    fn forget(&self, key: &K) {
        self.failures.lock().remove(key);
    }

    fn num_requeues(&self, key: &K) -> u32 {
        self.failures.lock().get(key).copied().unwrap_or(0)
    }

    fn len(&self) -> usize {
        self.failures.lock().len()
    }
}
