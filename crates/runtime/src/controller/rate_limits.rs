//! How fast a controller's keys may come back.

use std::{fmt, time::Duration};

use setpoint_workqueue::{Bucket, Exponential, LimiterError, MaxOf, RateLimiter};

use crate::request::{Request, RequestKey};

/// The first wait of a key whose pass failed. 5 ms, as client-go's default limiter.
const BACKOFF_MIN: Duration = Duration::from_millis(5);
/// The longest wait of a key whose passes fail. 1000 s, as client-go's default limiter.
const BACKOFF_MAX: Duration = Duration::from_secs(1000);

/// How fast a controller's keys may come back; for
/// [`ControllerBuilder::rate_limiter`](crate::ControllerBuilder::rate_limiter).
///
/// ```
/// # use std::time::Duration;
/// # use setpoint_runtime::{RateLimits, Request};
/// let limits = RateLimits::<Request>::new()
///     .backoff(Duration::from_secs(1), Duration::from_secs(300))
///     .max_attempts(10);
/// ```
#[must_use]
pub struct RateLimits<R = Request> {
    pub(super) limiter: Option<Box<dyn RateLimiter<R>>>,
    pub(super) backoff: (Duration, Duration),
    pub(super) retries: Option<(f64, u32)>,
    pub(super) min_interval: Option<Duration>,
    pub(super) attempts_max: Option<u32>,
}

impl<R: RequestKey> RateLimits<R> {
    /// The defaults: 5 ms after the first failure, doubling to 1000 s; no other limit.
    pub fn new() -> Self {
        Self {
            limiter: None,
            backoff: (BACKOFF_MIN, BACKOFF_MAX),
            retries: None,
            min_interval: None,
            attempts_max: None,
        }
    }

    /// How long a key waits after a pass that failed: `min` at first, doubling to `max` with each
    /// failure in a row, each key for itself. Default: 5 ms to 1000 s.
    pub fn backoff(mut self, min: Duration, max: Duration) -> Self {
        self.backoff = (min, max);
        self
    }

    /// A limiter that decides how long a key waits after a pass that failed, in place of
    /// [`backoff`](Self::backoff). It may look at the [error](RateLimiter::when_failed).
    pub fn limiter(mut self, limiter: impl RateLimiter<R>) -> Self {
        self.limiter = Some(Box::new(limiter));
        self
    }

    /// How many keys may come back after failures, over all keys: a bucket that holds `burst` and
    /// is filled at `per_second`; the longer of its wait and the key's own counts. Default: no such
    /// limit, as with controller-runtime's priority queue. client-go's is 10 a second with a burst
    /// of 100.
    pub fn retries(mut self, per_second: f64, burst: u32) -> Self {
        self.retries = Some((per_second, burst));
        self
    }

    /// Minimum time between the starts of two passes over one key, whatever happens to it. For
    /// expensive reconcilers, and for objects that change all the time. Default: no such limit.
    ///
    /// A key that is handed out before is left until then, without a pass, counted as
    /// [`deferred`](crate::controller::ControllerStats).
    pub fn min_interval(mut self, interval: Duration) -> Self {
        self.min_interval = Some(interval).filter(|interval| !interval.is_zero());
        self
    }

    /// After how many passes in a row that failed, or asked to be repeated, another failure is the
    /// last: the key is forgotten until something changes, counted as
    /// [`given_up`](crate::controller::ControllerStats), and a Warning event with the reason
    /// `ReconcileGivenUp` says so. `max` failures are made in all. Default: what the manager says,
    /// or never.
    ///
    /// A limiter that does not count per key, as a bucket alone, never comes to it.
    pub fn max_attempts(mut self, max: u32) -> Self {
        self.attempts_max = Some(max);
        self
    }
}

impl<R: RequestKey> Default for RateLimits<R> {
    fn default() -> Self {
        Self::new()
    }
}

impl<R> fmt::Debug for RateLimits<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimits")
            .field("has_own_limiter", &self.limiter.is_some())
            .field("backoff", &self.backoff)
            .field("retries", &self.retries)
            .field("min_interval", &self.min_interval)
            .field("attempts_max", &self.attempts_max)
            .finish()
    }
}

/// What says how long a key that failed waits.
pub(super) fn limiter_of<R: RequestKey>(
    own: Option<Box<dyn RateLimiter<R>>>,
    (min, max): (Duration, Duration),
    retries: Option<(f64, u32)>,
) -> Result<Box<dyn RateLimiter<R>>, LimiterError> {
    let per_key = match own {
        Some(own) => own,
        None => Box::new(Exponential::new(min, max)?),
    };
    let Some((per_second, burst)) = retries else { return Ok(per_key) };
    Ok(Box::new(MaxOf::both(per_key, Bucket::new(per_second, burst)?)))
}
