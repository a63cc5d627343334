//! A limiter that depends on the error.

use std::{error::Error, fmt, time::Duration};

use tokio::time::Instant;

use super::RateLimiter;

/// The effect of an error on the next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Pace {
    /// None: the inner limiter decides.
    #[default]
    Usual,
    /// At least this delay (`Retry-After`), or the inner limiter's if it is longer. The attempt
    /// counts.
    AtLeast(Duration),
    /// Exactly this delay. The inner limiter is not called, so the attempt does not count. For
    /// errors that are not failures, such as a conflict with another writer.
    Instead(Duration),
}

/// Lets the error determine the delay first, and then another limiter.
///
/// ```
/// use std::{error::Error, io, iter, time::Duration};
/// use setpoint_workqueue::{ByError, Exponential, Pace, WorkQueue};
///
/// let back_off = Exponential::new(Duration::from_millis(5), Duration::from_secs(60))?;
/// let limiter = ByError::new(back_off, |error| {
///     let mut chain = iter::successors(Some(error), |error| (*error).source());
///     match chain.find_map(|error| error.downcast_ref::<io::Error>()) {
///         Some(error) if error.kind() == io::ErrorKind::WouldBlock => Pace::AtLeast(Duration::from_secs(30)),
///         _ => Pace::Usual,
///     }
/// });
/// let queue: WorkQueue<&str> = WorkQueue::builder().rate_limiter(limiter).build();
/// let error = io::Error::from(io::ErrorKind::WouldBlock);
/// queue.add_failed("feed", &error, Default::default());
/// assert!(queue.entry(&"feed").and_then(|entry| entry.due_in) > Some(Duration::from_secs(29)));
/// # Ok::<(), Box<dyn Error>>(())
/// ```
pub struct ByError<L, F> {
    inner: L,
    pace: F,
}

impl<L, F: Fn(&(dyn Error + 'static)) -> Pace> ByError<L, F> {
    /// Uses `inner`, unless `pace` returns a delay for the error. `pace` may walk the error's
    /// sources.
    pub fn new(inner: L, pace: F) -> Self {
        Self { inner, pace }
    }
}

impl<K, L, F> RateLimiter<K> for ByError<L, F>
where
    L: RateLimiter<K>,
    F: Fn(&(dyn Error + 'static)) -> Pace + Send + Sync + 'static,
{
    fn when(&self, key: &K, now: Instant) -> Duration {
        self.inner.when(key, now)
    }

    fn when_failed(&self, key: &K, now: Instant, error: &(dyn Error + 'static)) -> Duration {
        match (self.pace)(error) {
            Pace::Usual => self.inner.when_failed(key, now, error),
            Pace::AtLeast(least) => self.inner.when_failed(key, now, error).max(least),
            Pace::Instead(delay) => delay,
        }
    }

    fn forget(&self, key: &K) {
        self.inner.forget(key);
    }

    fn num_requeues(&self, key: &K) -> u32 {
        self.inner.num_requeues(key)
    }

    fn len(&self) -> usize {
        self.inner.len()
    }
}

impl<L: fmt::Debug, F> fmt::Debug for ByError<L, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByError").field("inner", &self.inner).finish_non_exhaustive()
    }
}
