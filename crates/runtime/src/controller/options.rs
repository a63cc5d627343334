//! Options of a controller, and their defaults.

use std::{fmt, sync::Arc, time::Duration};

use setpoint_object::{GroupKind, GroupVersionKind};
use setpoint_workqueue::{Bucket, Exponential, LimiterError, MaxOf, RateLimiter};

use super::{CATCH_UP_MAX, SYNC_TIMEOUT};
use crate::{
    request::{Request, RequestKey},
    telemetry::Traces,
};

/// The options set at one level: by a controller's builder, or by its manager.
#[derive(Debug, Clone, Default)]
pub(super) struct Overrides {
    pub(super) n_workers: Option<usize>,
    pub(super) sync_timeout: Option<Option<Duration>>,
    pub(super) reconcile_timeout: Option<Option<Duration>>,
    pub(super) recovers_panics: Option<bool>,
    pub(super) catch_up: Option<Duration>,
    pub(super) leader_only: Option<bool>,
    pub(super) warm_up: Option<bool>,
    pub(super) attempts_max: Option<Option<u32>>,
    pub(super) traces: Option<Traces>,
}

/// Defaults for a manager's controllers, where their own builders set nothing.
///
/// Each method is documented at the method of [`ControllerBuilder`](crate::ControllerBuilder) of
/// the same name.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct ControllerDefaults {
    overrides: Overrides,
    /// By the kind that the controller is for.
    n_workers_of: Vec<(GroupKind, usize)>,
}

impl ControllerDefaults {
    /// Sets nothing: the defaults documented at the builder apply.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many keys of each controller are reconciled concurrently.
    pub fn concurrency(mut self, n_workers: usize) -> Self {
        self.overrides.n_workers = Some(n_workers);
        self
    }

    /// The same for controllers that are [`for_`](crate::ControllerBuilder::for_) this kind;
    /// overrides [`concurrency`](Self::concurrency). The last call per kind applies.
    pub fn concurrency_of(mut self, kind: GroupKind, n_workers: usize) -> Self {
        self.n_workers_of.push((kind, n_workers));
        self
    }

    /// How long the sources of each controller may take to sync; `None`: no limit.
    pub fn sync_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.overrides.sync_timeout = Some(timeout);
        self
    }

    /// How long one pass may take; `None`: no limit.
    pub fn reconcile_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.overrides.reconcile_timeout = Some(timeout);
        self
    }

    /// Whether a pass that panics counts as a failed pass.
    pub fn recover_panics(mut self, recovers: bool) -> Self {
        self.overrides.recovers_panics = Some(recovers);
        self
    }

    /// How long a key is held back after a pass, at most, until the caches show the pass's writes.
    pub fn catch_up(mut self, max: Duration) -> Self {
        self.overrides.catch_up = Some(max);
        self
    }

    /// Whether controllers reconcile only on the leader.
    pub fn leader_only(mut self, leader_only: bool) -> Self {
        self.overrides.leader_only = Some(leader_only);
        self
    }

    /// Whether controllers sync their sources before leadership.
    pub fn warm_up(mut self, warm_up: bool) -> Self {
        self.overrides.warm_up = Some(warm_up);
        self
    }

    /// After how many failures in a row a key is given up; `None`: never.
    pub fn max_attempts(mut self, attempts_max: Option<u32>) -> Self {
        self.overrides.attempts_max = Some(attempts_max);
        self
    }

    /// Where to send traces of passes.
    #[cfg(feature = "otel")]
    pub fn traces(mut self, traces: Traces) -> Self {
        self.overrides.traces = Some(traces);
        self
    }
}

/// The resolved options of one controller.
#[derive(Debug, Clone)]
pub(super) struct Options {
    pub(super) name: Arc<str>,
    /// The kind that the controller is for.
    pub(super) kind: Option<GroupVersionKind>,
    pub(super) n_workers: usize,
    pub(super) sync_timeout: Option<Duration>,
    pub(super) reconcile_timeout: Option<Duration>,
    pub(super) recovers_panics: bool,
    pub(super) catch_up: Duration,
    pub(super) leader_only: bool,
    pub(super) warm_up: bool,
    pub(super) attempts_max: Option<u32>,
    pub(super) traces: Option<Traces>,
}

impl Options {
    /// The controller's own setting, else its manager's, else the documented default. For the
    /// number of workers, the manager's setting for the kind precedes its setting for all (5.1).
    pub(super) fn resolve(
        name: Arc<str>,
        kind: Option<GroupVersionKind>,
        own: Overrides,
        defaults: &ControllerDefaults,
    ) -> Self {
        let all = &defaults.overrides;
        let of_kind = kind.as_ref().and_then(|kind| {
            let kind = kind.group_kind();
            defaults.n_workers_of.iter().rev().find(|(of, _)| *of == kind).map(|(_, n)| *n)
        });
        let n_workers = own.n_workers.or(of_kind).or(all.n_workers).unwrap_or(1).max(1);
        Self {
            name,
            kind,
            n_workers,
            sync_timeout: own.sync_timeout.or(all.sync_timeout).unwrap_or(Some(SYNC_TIMEOUT)),
            reconcile_timeout: own.reconcile_timeout.or(all.reconcile_timeout).flatten(),
            recovers_panics: own.recovers_panics.or(all.recovers_panics).unwrap_or(true),
            catch_up: own.catch_up.or(all.catch_up).unwrap_or(CATCH_UP_MAX),
            leader_only: own.leader_only.or(all.leader_only).unwrap_or(true),
            warm_up: own.warm_up.or(all.warm_up).unwrap_or(true),
            attempts_max: own.attempts_max.or(all.attempts_max).flatten(),
            traces: own.traces.or_else(|| all.traces.clone()),
        }
    }
}

/// The first back-off of a failed key: 5 ms, as client-go's default limiter.
const BACKOFF_MIN: Duration = Duration::from_millis(5);
/// The longest back-off of a failed key: 1000 s, as client-go's default limiter.
const BACKOFF_MAX: Duration = Duration::from_secs(1000);

/// Limits on how fast a controller's keys come back; for
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

    /// The back-off of a failed key: `min` at first, doubling with each failure in a row up to
    /// `max`. Per key. Default: 5 ms to 1000 s.
    pub fn backoff(mut self, min: Duration, max: Duration) -> Self {
        self.backoff = (min, max);
        self
    }

    /// A limiter that returns the back-off of a failed key, in place of [`backoff`](Self::backoff).
    /// It can use the [error](RateLimiter::when_failed).
    pub fn limiter(mut self, limiter: impl RateLimiter<R>) -> Self {
        self.limiter = Some(Box::new(limiter));
        self
    }

    /// Limits retries over all keys: a token bucket of `burst` tokens, refilled at `per_second`.
    /// The longer of its wait and the key's own back-off applies. Default: no limit, as
    /// controller-runtime's priority queue. client-go has 10 a second with a burst of 100.
    pub fn retries(mut self, per_second: f64, burst: u32) -> Self {
        self.retries = Some((per_second, burst));
        self
    }

    /// Minimum time between the starts of two passes over one key, whatever happens to it. For
    /// expensive reconcilers, and for objects that change all the time. Default: none.
    ///
    /// A key that is handed out earlier is requeued for that time without a pass, and counted as
    /// [`deferred`](crate::controller::ControllerStats).
    pub fn min_interval(mut self, interval: Duration) -> Self {
        self.min_interval = Some(interval).filter(|interval| !interval.is_zero());
        self
    }

    /// Gives a key up after `max` passes in a row that failed or asked for a requeue with back-off.
    /// It is forgotten until a change, counted as [`given_up`](crate::controller::ControllerStats),
    /// and reported in a Warning event with the reason `ReconcileGivenUp`. Default: the manager's
    /// setting, or never.
    ///
    /// Has no effect with a limiter that does not count per key, such as a bucket alone.
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

/// The rate limiter of failed keys.
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
