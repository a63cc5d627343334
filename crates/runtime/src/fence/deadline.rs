//! The deadline of a lease, and the clocks it is checked against.

use std::{fmt, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Fence, Fenced};

/// A time on the clocks of a deadline.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    at: Instant,
    /// On the clock that counts suspended time, if any.
    awake: Option<Duration>,
}

/// The deadline of one lease.
///
/// | state  | `check`                      | left by                                     |
/// |--------|------------------------------|---------------------------------------------|
/// | closed | refuses                      | `open`                                      |
/// | open   | lets pass before the deadline| `close`; `extend` stays in it               |
///
/// `extend` is refused once the deadline has passed: within one tenure, no check succeeds after one
/// has failed.
#[derive(Debug)]
pub(crate) struct Deadline {
    suspend_clock: Option<SuspendClock>,
    until: Mutex<Option<Moment>>,
}

impl Deadline {
    pub(crate) fn new(suspend_clock: Option<SuspendClock>) -> Self {
        Self { suspend_clock, until: Mutex::new(None) }
    }

    /// The current time. Take it *before* a renewal is sent.
    pub(crate) fn now(&self) -> Moment {
        Moment { at: Instant::now(), awake: self.suspend_clock.as_ref().map(SuspendClock::read) }
    }

    /// Opens the deadline: the lease was acquired by a request sent at `sent`.
    pub(crate) fn open(&self, sent: Moment, term: Duration) {
        *self.until.lock() = Some(sent.plus(term));
    }

    /// Extends the deadline: the lease was renewed by a request sent at `sent`.
    pub(crate) fn extend(&self, sent: Moment, term: Duration) -> Result<(), Fenced> {
        let now = self.now();
        let mut until = self.until.lock();
        let deadline = until.as_mut().ok_or(Fenced::NotHeld)?;
        deadline.check(now)?;
        *deadline = sent.plus(term);
        Ok(())
    }

    /// Closes the deadline: the lease is no longer held.
    pub(crate) fn close(&self) {
        *self.until.lock() = None;
    }

    /// The deadline on tokio's clock; `None` when closed.
    pub(crate) fn until(&self) -> Option<Instant> {
        (*self.until.lock()).map(|until| until.at)
    }

    /// Waits until the deadline has passed, including extensions; returns at once when closed.
    /// Cancel safe.
    pub(crate) async fn passed(&self) {
        while self.check().is_ok() {
            match self.until() {
                Some(until) => tokio::time::sleep_until(until).await,
                None => return,
            }
        }
    }
}

impl Fence for Deadline {
    fn check(&self) -> Result<(), Fenced> {
        let now = self.now();
        let until = *self.until.lock();
        until.ok_or(Fenced::NotHeld)?.check(now)
    }
}

impl Moment {
    /// The time on tokio's clock.
    pub(crate) fn instant(self) -> Instant {
        self.at
    }

    fn plus(self, span: Duration) -> Self {
        Self { at: self.at + span, awake: self.awake.map(|awake| awake.saturating_add(span)) }
    }

    /// Whether `now` is before this moment, on both clocks.
    fn check(self, now: Self) -> Result<(), Fenced> {
        let ago = now.at.saturating_duration_since(self.at);
        let ago_awake = match (now.awake, self.awake) {
            (Some(now), Some(until)) => now.saturating_sub(until),
            _ => Duration::ZERO,
        };
        let is_before = now.at < self.at
            && match (now.awake, self.awake) {
                (Some(now), Some(until)) => now < until,
                _ => true,
            };
        if is_before { Ok(()) } else { Err(Fenced::Expired { ago: ago.max(ago_awake) }) }
    }
}

/// A second clock for deadlines: the time since some fixed moment, monotonic, *including* time
/// during which the machine was suspended. Cheap to clone.
///
/// Tokio's clock does not count that time on Linux, so a lease holder needs this one to notice a
/// suspend.
#[derive(Clone)]
pub struct SuspendClock(Arc<dyn Fn() -> Duration + Send + Sync>);

impl SuspendClock {
    /// A clock that reads this function.
    pub fn new(read: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// The machine's clock: `CLOCK_BOOTTIME` on Linux and Android. `None` elsewhere.
    ///
    /// It is real time, even in a test that pauses tokio's clock: use it in `main`.
    pub fn boot_time() -> Option<Self> {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        {
            Some(Self::new(|| {
                let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
                let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
                Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), nanos)
            }))
        }
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        None
    }

    pub(super) fn read(&self) -> Duration {
        (self.0)()
    }
}

impl fmt::Debug for SuspendClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SuspendClock").field(&self.read()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn deadline_counts_from_before_the_renewal_and_stays_passed() {
        let deadline = Deadline::new(None);
        assert_eq!(deadline.check(), Err(Fenced::NotHeld));
        let sent = deadline.now();
        // A slow answer.
        tokio::time::advance(4 * SECOND).await;
        deadline.open(sent, 10 * SECOND);
        tokio::time::advance(5 * SECOND).await;
        assert_eq!(deadline.check(), Ok(()));
        let sent = deadline.now();
        tokio::time::advance(SECOND).await;
        assert_eq!(deadline.check(), Err(Fenced::Expired { ago: Duration::ZERO }));
        // It was done in time, but the answer came too late.
        assert!(deadline.extend(sent, 10 * SECOND).is_err());
        assert!(deadline.check().is_err());
        deadline.open(deadline.now(), 10 * SECOND);
        assert_eq!(deadline.extend(deadline.now(), 10 * SECOND), Ok(()));
        deadline.close();
        assert_eq!(deadline.extend(deadline.now(), 10 * SECOND), Err(Fenced::NotHeld));
    }

    #[tokio::test(start_paused = true)]
    async fn suspended_time_counts_with_a_suspend_clock() {
        let awake = Arc::new(Mutex::new(Duration::ZERO));
        let read = awake.clone();
        let deadline = Deadline::new(Some(SuspendClock::new(move || *read.lock())));
        deadline.open(deadline.now(), 10 * SECOND);
        assert_eq!(deadline.check(), Ok(()));
        // The machine is suspended: tokio's clock stands still.
        *awake.lock() += 11 * SECOND;
        assert_eq!(deadline.check(), Err(Fenced::Expired { ago: SECOND }));
        deadline.passed().await;
    }

    #[test]
    fn boot_time_is_the_time_since_the_machine_started() {
        if let Some(clock) = SuspendClock::boot_time() {
            assert!(clock.read() > Duration::ZERO);
        }
    }
}
