//! Points in time of eight bytes.

use std::time::Duration;

use tokio::time::Instant;

/// Nanoseconds since the queue's epoch; negative if a test's clock was before it. Reaches 292 years
/// each way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Moment(pub(super) i64);

impl Moment {
    /// Time from `self` to `now`; zero if `self` is later.
    pub(super) fn age(self, now: Self) -> Duration {
        Duration::from_nanos(now.0.saturating_sub(self.0).max(0) as u64)
    }
}

/// The origin of moments: when the queue was built.
#[derive(Debug, Clone, Copy)]
pub(super) struct Epoch(Instant);

impl Epoch {
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    pub(super) fn now(self) -> Moment {
        self.moment(Instant::now())
    }

    pub(super) fn moment(self, at: Instant) -> Moment {
        let nanos = |span: Duration| i64::try_from(span.as_nanos()).unwrap_or(i64::MAX);
        match at.checked_duration_since(self.0) {
            Some(after) => Moment(nanos(after)),
            None => Moment(-nanos(self.0.saturating_duration_since(at))),
        }
    }

    pub(super) fn instant(self, moment: Moment) -> Instant {
        let span = Duration::from_nanos(moment.0.unsigned_abs());
        let at = if moment.0 >= 0 { self.0.checked_add(span) } else { self.0.checked_sub(span) };
        at.unwrap_or(self.0)
    }
}
