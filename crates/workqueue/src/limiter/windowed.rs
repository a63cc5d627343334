//! A maximum number of attempts of a key in any window of time.

use std::{collections::VecDeque, hash::Hash, time::Duration};

use tokio::time::Instant;

use super::{LimiterError, RateLimiter, attempts::Attempts};

/// The maximum number of attempts per window of a [`Windowed`] limiter, which stores that many
/// times per key.
pub const WINDOW_ATTEMPTS_MAX: u32 = 1024;

/// No delay while a key has fewer than `n` attempts in any `window` of time; otherwise the time
/// until the window allows the next one.
///
/// An attempt counts at the time it is delayed to. So in every window of that length, wherever it
/// begins, a key has at most `n` attempts. A [`Bucket`](super::Bucket) would allow its burst and
/// its rate. Stores `n` times per key.
#[derive(Debug)]
pub struct Windowed<K> {
    n: u32,
    window: Duration,
    attempts: Attempts<K, Times>,
}

/// The times of the last attempts of a key.
#[derive(Debug, Default)]
struct Times {
    last: VecDeque<Instant>,
    n_attempts: u32,
}

impl<K: Clone + Eq + Hash + Send + 'static> Windowed<K> {
    /// Allows at most `n` attempts of a key in `window`.
    ///
    /// # Errors
    ///
    /// `n` is zero or above [`WINDOW_ATTEMPTS_MAX`], or `window` is zero.
    pub fn new(n: u32, window: Duration) -> Result<Self, LimiterError> {
        if n == 0 || n > WINDOW_ATTEMPTS_MAX || window.is_zero() {
            return Err(LimiterError::Window { n, window });
        }
        Ok(Self { n, window, attempts: Attempts::default() })
    }

    /// Expires the state of a key that made no attempt for `idle`.
    ///
    /// # Errors
    ///
    /// `idle` is below twice the window: expired state must not matter any more.
    pub fn expire_idle(mut self, idle: Duration) -> Result<Self, LimiterError> {
        super::check_idle(idle, self.window)?;
        self.attempts.expire(idle);
        Ok(self)
    }
}

impl<K: Clone + Eq + Hash + Send + 'static> RateLimiter<K> for Windowed<K> {
    fn when(&self, key: &K, now: Instant) -> Duration {
        self.attempts.with(key, now, |times| {
            times.n_attempts = times.n_attempts.saturating_add(1);
            let first =
                if times.last.len() == self.n as usize { times.last.pop_front() } else { None };
            let free = first.and_then(|first| first.checked_add(self.window)).unwrap_or(now);
            // Not before an earlier attempt that was delayed.
            let at = free.max(now).max(times.last.back().copied().unwrap_or(now));
            times.last.push_back(at);
            at.saturating_duration_since(now)
        })
    }

    fn forget(&self, key: &K) {
        self.attempts.forget(key);
    }

    fn num_requeues(&self, key: &K) -> u32 {
        self.attempts.peek(key, |times| times.n_attempts).unwrap_or(0)
    }

    fn len(&self) -> usize {
        self.attempts.len()
    }
}
