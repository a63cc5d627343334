//! A limiter that looks at what went wrong.

use std::{error::Error, fmt, time::Duration};

use tokio::time::Instant;

use super::RateLimiter;

/// What an error says about the next try.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Pace {
    /// Nothing: the other limiter decides.
    #[default]
    Usual,
    /// Not before this time has passed (`Retry-After`); later if the other limiter says so. The
    /// attempt counts.
    AtLeast(Duration),
    /// After this time, whatever the other limiter would say, which is not asked: the attempt does
    /// not count. For what is nobody's fault, as a conflict with another writer.
    Instead(Duration),
}

/// Asks the error first, then another limiter.
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
    /// `inner`, unless `pace` finds something in the error. It may walk the error's sources.
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
