//! A rate for all keys together.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{LimiterError, RateLimiter};

/// A token bucket for all keys: `burst` at once, then `per_second`.
///
/// Each attempt reserves a token and waits for it; reservations are not returned. So under overload
/// the delay grows without bound: of a thousand failures at once, at ten per second with a burst of
/// a hundred, the last waits ninety seconds. Has no state per key.
#[derive(Debug)]
pub struct Bucket {
    per_second: f64,
    burst: f64,
    level: Mutex<Option<Level>>,
}

/// The number of tokens at a moment. Negative if tokens are reserved ahead.
#[derive(Debug, Clone, Copy)]
struct Level {
    tokens: f64,
    at: Instant,
}

impl Bucket {
    /// A full bucket.
    ///
    /// # Errors
    ///
    /// `per_second` is not a finite number above zero, or `burst` is zero.
    pub fn new(per_second: f64, burst: u32) -> Result<Self, LimiterError> {
        if !(per_second.is_finite() && per_second > 0.0) {
            return Err(LimiterError::Rate { per_second });
        }
        if burst == 0 {
            return Err(LimiterError::ZeroBurst);
        }
        Ok(Self::constant(per_second, burst))
    }

    /// From constants that are known to be valid.
    pub(super) fn constant(per_second: f64, burst: u32) -> Self {
        Self { per_second, burst: f64::from(burst), level: Mutex::new(None) }
    }
}

impl<K> RateLimiter<K> for Bucket {
    fn when(&self, _key: &K, now: Instant) -> Duration {
        let mut level = self.level.lock();
        let last = level.unwrap_or(Level { tokens: self.burst, at: now });
        let refilled = now.saturating_duration_since(last.at).as_secs_f64() * self.per_second;
        let tokens = (last.tokens + refilled).min(self.burst) - 1.0;
        *level = Some(Level { tokens, at: last.at.max(now) });
        // A sum of many tenths is not exact: less than a nanosecond's worth of a token counts as
        // zero.
        let missing = -tokens;
        if missing <= 1e-9 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(missing / self.per_second).unwrap_or(crate::DELAY_MAX)
    }

    fn forget(&self, _key: &K) {}

    fn num_requeues(&self, _key: &K) -> u32 {
        0
    }

    fn len(&self) -> usize {
        0
    }
}
