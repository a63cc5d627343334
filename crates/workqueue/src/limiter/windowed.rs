//! So many attempts of a key in any window of time.

use std::{collections::VecDeque, hash::Hash, time::Duration};

use tokio::time::Instant;

use super::{LimiterError, RateLimiter, attempts::Attempts};

/// The most attempts a [`Windowed`] limiter may allow in a window: it remembers so many times per
/// key.
pub const WINDOW_ATTEMPTS_MAX: u32 = 1024;

/// At once, as long as a key has fewer than `n` attempts in any `window` of time; else when the
/// window allows the next one.
///
/// An attempt counts at the time it is put off to. So in every window of that length, wherever it
/// begins, at most `n` attempts of a key come through; a [`Bucket`](super::Bucket) would let its
/// burst and its rate through. Keeps `n` times per key.
#[derive(Debug)]
pub struct Windowed<K> {
    n: u32,
    window: Duration,
    attempts: Attempts<K, Times>,
}

/// When the last attempts of a key come through.
#[derive(Debug, Default)]
struct Times {
    last: VecDeque<Instant>,
    n_attempts: u32,
}

impl<K: Clone + Eq + Hash + Send + 'static> Windowed<K> {
    /// At most `n` attempts of a key in `window`.
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

    /// The same, but what is kept of a key that made no attempt for `idle` is dropped.
    ///
    /// # Errors
    ///
    /// `idle` is below twice the window: what is dropped must not matter any more.
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
            // Not before one that was put off already.
            let at = free.max(now).max(times.last.back().copied().unwrap_or(now));
            times.last.push_back(at);
            at.saturating_duration_since(now)
        })
    }

    fn forget(&self, key: &K) {
        self.attempts.forget(key);
    }

    fn num_requeues(&self, key: &K) -> u32 {
        self.attempts.see(key, |times| times.n_attempts).unwrap_or(0)
    }

    fn len(&self) -> usize {
        self.attempts.len()
    }
}
