//! How long a key that failed waits before it is tried again.

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
/// Called outside the queue's lock, possibly by several threads at once. Unless it was told to
/// expire what is idle, it never forgets a key by itself: a worker calls [`forget`](Self::forget)
/// when it succeeded or gave up.
pub trait RateLimiter<K>: Send + Sync + 'static {
    /// How long `key` waits from `now`. Counts an attempt.
    fn when(&self, key: &K, now: Instant) -> Duration;

    /// The same for an attempt that failed with `error`, which a limiter may look at: [`ByError`]
    /// does. By default it does not.
    fn when_failed(&self, key: &K, now: Instant, error: &(dyn Error + 'static)) -> Duration {
        let _ = error;
        self.when(key, now)
    }

    /// Drops what is kept about `key`.
    fn forget(&self, key: &K);

    /// How many attempts have been counted for `key` since it was last forgotten.
    fn num_requeues(&self, key: &K) -> u32;

    /// For how many keys something is kept.
    fn len(&self) -> usize;

    /// Whether nothing is kept about any key.
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

/// A rate limiter that could never work as it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LimiterError {
    /// A delay that grows from zero stays zero.
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
    /// A bucket that is never refilled, or refilled by no number.
    #[error("the rate is {per_second} a second: it must be above zero and finite")]
    Rate {
        /// Tokens a second.
        per_second: f64,
    },
    /// A bucket that holds nothing.
    #[error("the burst is zero")]
    ZeroBurst,
    /// The largest of no delays is none.
    #[error("there is no limiter to take the largest delay of")]
    NoMembers,
    /// A window that allows nothing, or more than is remembered.
    #[error(
        "{n} attempts in {window:?}: from 1 to {WINDOW_ATTEMPTS_MAX} in more than no time are possible"
    )]
    Window {
        /// Attempts in a window.
        n: u32,
        /// Its length.
        window: Duration,
    },
    /// What is kept would expire while it still matters.
    #[error("what is idle expires after {idle:?}: that must be twice {longest:?} at least")]
    Idle {
        /// The time after which it would expire.
        idle: Duration,
        /// The longest delay.
        longest: Duration,
    },
    /// A jitter that is negative or no number.
    #[error("the jitter is {fraction} of the delay: it must be zero or above, and finite")]
    Jitter {
        /// The part of the delay that may be added.
        fraction: f64,
    },
}

/// The limiter that client-go gives a controller: the larger of 5 ms doubling to 1000 s per key,
/// and a bucket of ten a second with a burst of a hundred over all keys
/// (`DefaultTypedControllerRateLimiter`).
pub fn controller_default<K: Clone + Eq + std::hash::Hash + Send + 'static>() -> MaxOf<K> {
    MaxOf::both(
        Exponential::constant(Duration::from_millis(5), Duration::from_secs(1000)),
        Bucket::constant(10.0, 100),
    )
}

/// The limiter that client-go gives a worker of items: 1 ms doubling to 1000 s per key
/// (`DefaultTypedItemBasedRateLimiter`).
pub fn item_default<K: Clone + Eq + std::hash::Hash + Send + 'static>() -> Exponential<K> {
    Exponential::constant(Duration::from_millis(1), Duration::from_secs(1000))
}

/// The limiter that controller-runtime gives its priority queue: 5 ms doubling to 1000 s per key,
/// and no bucket.
pub fn priority_default<K: Clone + Eq + std::hash::Hash + Send + 'static>() -> Exponential<K> {
    Exponential::constant(Duration::from_millis(5), Duration::from_secs(1000))
}

fn check_idle(idle: Duration, longest: Duration) -> Result<(), LimiterError> {
    if idle.is_zero() || idle < longest.saturating_mul(2) {
        return Err(LimiterError::Idle { idle, longest });
    }
    Ok(())
}
