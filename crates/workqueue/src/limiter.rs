//! Rate limiters: how long a failed key waits before it is tried again.

mod attempts;
mod bucket;
mod by_error;
mod exponential;
mod fast_slow;
mod jitter;
mod max_of;
mod max_wait;
mod windowed;

use std::{error::Error, time::Duration};

use tokio::time::Instant;

pub use self::{
    bucket::Bucket,
    by_error::{ByError, Pace},
    exponential::Exponential,
    fast_slow::FastSlow,
    jitter::Jitter,
    max_of::MaxOf,
    max_wait::MaxWait,
    windowed::{WINDOW_ATTEMPTS_MAX, Windowed},
};

/// Decides how long a key waits, and counts its attempts.
///
/// Called outside the queue's lock, possibly from several threads at once. Unless it expires idle
/// keys, it never forgets a key by itself: a worker calls [`forget`](Self::forget) when it
/// succeeded or gave up.
pub trait RateLimiter<K>: Send + Sync + 'static {
    /// Returns how long `key` waits from `now`. Counts an attempt.
    fn when(&self, key: &K, now: Instant) -> Duration;

    /// As `when`, for an attempt that failed with `error`. By default the error has no effect;
    /// [`ByError`] uses it.
    fn when_failed(&self, key: &K, now: Instant, error: &(dyn Error + 'static)) -> Duration {
        let _ = error;
        self.when(key, now)
    }

    /// Drops the state of `key`.
    fn forget(&self, key: &K);

    /// Number of attempts counted for `key` since it was last forgotten.
    fn num_requeues(&self, key: &K) -> u32;

    /// Number of keys with state.
    fn len(&self) -> usize;

    /// Whether no key has state.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<K> RateLimiter<K> for Box<dyn RateLimiter<K>>
where
    K: 'static,
{
    fn when(&self, key: &K, now: Instant) -> Duration {
        (**self).when(key, now)
    }

    fn when_failed(&self, key: &K, now: Instant, error: &(dyn Error + 'static)) -> Duration {
        (**self).when_failed(key, now, error)
    }

    fn forget(&self, key: &K) {
        (**self).forget(key);
    }

    fn num_requeues(&self, key: &K) -> u32 {
        (**self).num_requeues(key)
    }

    fn len(&self) -> usize {
        (**self).len()
    }
}

/// Invalid parameters of a rate limiter.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LimiterError {
    /// The first delay is zero, so it would never grow.
    #[error("the first delay is zero")]
    ZeroBase,
    /// The cap is below the first delay.
    #[error("the longest delay, {max:?}, is below the first, {base:?}")]
    MaxBelowBase {
        /// The first delay.
        base: Duration,
        /// The cap.
        max: Duration,
    },
    /// The rate of a bucket is not a finite number above zero.
    #[error("the rate is {per_second} a second: it must be above zero and finite")]
    Rate {
        /// Tokens a second.
        per_second: f64,
    },
    /// The burst of a bucket is zero.
    #[error("the burst is zero")]
    ZeroBurst,
    /// `MaxOf` without members.
    #[error("`MaxOf` needs at least one limiter")]
    NoMembers,
    /// A window that allows no attempts, or too many.
    #[error(
        "{n} attempts in {window:?}: use 1 to {WINDOW_ATTEMPTS_MAX} attempts and a window above zero"
    )]
    Window {
        /// Attempts in a window.
        n: u32,
        /// Its length.
        window: Duration,
    },
    /// State would expire while it still matters.
    #[error("idle keys expire after {idle:?}, which must be at least twice {longest:?}")]
    Idle {
        /// The time after which it would expire.
        idle: Duration,
        /// The longest delay.
        longest: Duration,
    },
    /// The jitter is negative or not finite.
    #[error("the jitter is {fraction} of the delay: it must be zero or above, and finite")]
    Jitter {
        /// The maximum jitter as a fraction of the delay.
        fraction: f64,
    },
}

/// client-go's limiter for controllers: the larger of 5 ms doubling to 1000 s per key, and a bucket
/// of ten per second with a burst of a hundred for all keys (`DefaultTypedControllerRateLimiter`).
pub fn controller_default<K: Clone + Eq + std::hash::Hash + Send + 'static>() -> MaxOf<K> {
    MaxOf::both(
        Exponential::constant(Duration::from_millis(5), Duration::from_secs(1000)),
        Bucket::constant(10.0, 100),
    )
}

/// client-go's limiter for items: 1 ms doubling to 1000 s per key
/// (`DefaultTypedItemBasedRateLimiter`).
pub fn item_default<K: Clone + Eq + std::hash::Hash + Send + 'static>() -> Exponential<K> {
    Exponential::constant(Duration::from_millis(1), Duration::from_secs(1000))
}

/// controller-runtime's limiter for its priority queue: 5 ms doubling to 1000 s per key, without a
/// bucket.
pub fn priority_default<K: Clone + Eq + std::hash::Hash + Send + 'static>() -> Exponential<K> {
    Exponential::constant(Duration::from_millis(5), Duration::from_secs(1000))
}

fn check_idle(idle: Duration, longest: Duration) -> Result<(), LimiterError> {
    if idle.is_zero() || idle < longest.saturating_mul(2) {
        return Err(LimiterError::Idle { idle, longest });
    }
    Ok(())
}
