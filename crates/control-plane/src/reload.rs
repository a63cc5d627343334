//! When files are read again while a control plane runs.

use std::time::Duration;
use tokio::time::{Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

/// The times at which files are read again. A late reading delays the later ones.
#[derive(Debug)]
pub(crate) struct Reloads(Interval);

impl Reloads {
    /// Every `period`, first after one, because the files have just been read.
    pub(crate) fn every(period: Duration) -> Self {
        let mut ticks = tokio::time::interval(period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.reset();
        Self(ticks)
    }

    /// Waits for the next time; `false` if `stop` comes first. Cancel safe: a dropped wait is over
    /// at the same time.
    pub(crate) async fn next(&mut self, stop: &CancellationToken) -> bool {
        tokio::select! {
            biased;
            () = stop.cancelled() => false,
            // Cancel safe: a dropped `tick` fires next time.
            _ = self.0.tick() => true,
        }
    }
}
