//! Until when a lease lets its holder write.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Fence, Fenced, SuspendClock};

/// A moment on the clocks that deadlines are held by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    at: Instant,
    /// On the clock that counts suspended time, if there is one.
    awake: Option<Duration>,
}

/// The deadline of one lease.
///
/// | state  | `check`                      | left by                                     |
/// |--------|------------------------------|---------------------------------------------|
/// | closed | refuses                      | `open`                                      |
/// | open   | lets pass before the deadline| `close`; `extend` stays in it               |
///
/// `extend` is refused once the deadline has passed: within one tenure, no check passes after one
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

    /// Now: to be asked *before* a renewal is sent.
    pub(crate) fn now(&self) -> Moment {
        Moment { at: Instant::now(), awake: self.suspend_clock.as_ref().map(SuspendClock::read) }
    }

    /// The lease was taken by a request sent at `sent`.
    pub(crate) fn open(&self, sent: Moment, term: Duration) {
        *self.until.lock() = Some(sent.plus(term));
    }

    /// The lease was renewed by a request sent at `sent`.
    pub(crate) fn extend(&self, sent: Moment, term: Duration) -> Result<(), Fenced> {
        let now = self.now();
        let mut until = self.until.lock();
        let deadline = until.as_mut().ok_or(Fenced::NotHeld)?;
        deadline.check(now)?;
        *deadline = sent.plus(term);
        Ok(())
    }

    /// The lease is not held any more.
    pub(crate) fn close(&self) {
        *self.until.lock() = None;
    }

    /// When the deadline passes, on tokio's clock; `None` when closed.
    pub(crate) fn until(&self) -> Option<Instant> {
        (*self.until.lock()).map(|until| until.at)
    }

    /// Waits until the deadline has passed, through every extension; returns at once when closed.
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
    /// On tokio's clock.
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
        // The answer took long.
        tokio::time::advance(4 * SECOND).await;
        deadline.open(sent, 10 * SECOND);
        tokio::time::advance(5 * SECOND).await;
        assert_eq!(deadline.check(), Ok(()));
        let sent = deadline.now();
        tokio::time::advance(SECOND).await;
        assert_eq!(deadline.check(), Err(Fenced::Expired { ago: Duration::ZERO }));
        // It was done in time, but is told too late.
        assert!(deadline.extend(sent, 10 * SECOND).is_err());
        assert!(deadline.check().is_err());
        deadline.open(deadline.now(), 10 * SECOND);
        assert_eq!(deadline.extend(deadline.now(), 10 * SECOND), Ok(()));
        deadline.close();
        assert_eq!(deadline.extend(deadline.now(), 10 * SECOND), Err(Fenced::NotHeld));
    }

    #[tokio::test(start_paused = true)]
    async fn suspended_time_counts_where_a_clock_tells_it() {
        let awake = Arc::new(Mutex::new(Duration::ZERO));
        let read = awake.clone();
        let deadline = Deadline::new(Some(SuspendClock::new(move || *read.lock())));
        deadline.open(deadline.now(), 10 * SECOND);
        assert_eq!(deadline.check(), Ok(()));
        // The machine sleeps: tokio's clock stands still.
        *awake.lock() += 11 * SECOND;
        assert_eq!(deadline.check(), Err(Fenced::Expired { ago: SECOND }));
        deadline.passed().await;
    }

    #[test]
    fn machine_tells_the_time_since_it_was_started() {
        if let Some(clock) = SuspendClock::boot_time() {
            assert!(clock.read() > Duration::ZERO);
        }
    }
}
