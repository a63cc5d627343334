//! Counts of events that were not written.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

use prometheus_client::{collector::Collector, encoding::DescriptorEncoder};

use super::EventRecorder;
use crate::metrics::family::counter;

/// How many events of a manager were not written, by cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct EventLosses {
    /// Emitted while the queue was full.
    pub queue_full: u64,
    /// Emitted after the manager had ended, or too late during its end.
    pub after_end: u64,
    /// About no object: the reference has no kind or no name.
    pub invalid: u64,
    /// Refused by the server: no permission, a namespace that is being deleted, an invalid object.
    pub refused: u64,
    /// Not written after all tries: the server was not reachable.
    pub unreachable: u64,
    /// Held back by the spam filter. Counts that are written later include them, so they are not in
    /// [`total`](Self::total).
    pub held_back: u64,
}

impl EventLosses {
    /// How many were lost: all except those held back.
    pub fn total(&self) -> u64 {
        self.queue_full + self.after_end + self.invalid + self.refused + self.unreachable
    }
}

#[derive(Debug, Default)]
pub(super) struct Losses {
    pub(super) queue_full: AtomicU64,
    pub(super) after_end: AtomicU64,
    pub(super) invalid: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) unreachable: AtomicU64,
    pub(super) held_back: AtomicU64,
}

impl Losses {
    pub(super) fn read(&self) -> EventLosses {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        EventLosses {
            queue_full: read(&self.queue_full),
            after_end: read(&self.after_end),
            invalid: read(&self.invalid),
            refused: read(&self.refused),
            unreachable: read(&self.unreachable),
            held_back: read(&self.held_back),
        }
    }
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Writes `setpoint_events_lost_total` by cause, including those held back.
#[derive(Debug)]
pub(crate) struct EventCollector(pub(crate) EventRecorder);

impl Collector for EventCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let losses = self.0.losses();
        let help = "Events that were not written, by cause";
        let mut lost = counter(&mut encoder, "setpoint_events_lost", help)?;
        for (cause, count) in [
            ("queue_full", losses.queue_full),
            ("after_end", losses.after_end),
            ("invalid", losses.invalid),
            ("refused", losses.refused),
            ("unreachable", losses.unreachable),
            ("held_back", losses.held_back),
        ] {
            lost.count(&[("cause", cause)], count)?;
        }
        Ok(())
    }
}
