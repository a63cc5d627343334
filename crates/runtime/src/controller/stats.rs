//! Counts of a controller's passes.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::metrics::Durations;

/// Counts of a controller's passes since it was built, named as controller-runtime's
/// `controller_runtime_reconcile_*` metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ControllerStats {
    /// Passes that succeeded without a requeue.
    pub success: u64,
    /// Passes that succeeded with a requeue after a delay.
    pub requeue_after: u64,
    /// Passes that succeeded with a requeue with back-off.
    pub requeue: u64,
    /// Passes that failed, including terminal errors, panics and time-outs.
    pub error: u64,
    /// Passes with a terminal error.
    pub terminal: u64,
    /// Passes that panicked.
    pub panics: u64,
    /// Passes that timed out.
    pub timeouts: u64,
    /// Keys given up after too many failures in a row. The last failure counts as an error too.
    pub given_up: u64,
    /// Keys handed out and left without a pass, because another replica owns them.
    pub not_ours: u64,
    /// Keys handed out before their minimum interval had passed, and requeued.
    pub deferred: u64,
    /// Keys that were held back for the [whole time](crate::ControllerBuilder::catch_up) because a
    /// cache did not show what their pass wrote.
    pub catch_up_timeouts: u64,
    /// Running passes.
    pub active: u64,
}

impl ControllerStats {
    /// The number of passes that have ended.
    pub fn total(&self) -> u64 {
        self.success + self.requeue_after + self.requeue + self.error
    }
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) success: AtomicU64,
    pub(super) requeue_after: AtomicU64,
    pub(super) requeue: AtomicU64,
    pub(super) error: AtomicU64,
    pub(super) terminal: AtomicU64,
    pub(super) panics: AtomicU64,
    pub(super) timeouts: AtomicU64,
    pub(super) given_up: AtomicU64,
    pub(super) not_ours: AtomicU64,
    pub(super) deferred: AtomicU64,
    pub(super) catch_up_timeouts: AtomicU64,
    active: AtomicU64,
    /// The durations of passes.
    pub(super) took: Durations,
    /// The number of workers; zero before they start.
    pub(super) n_workers: AtomicU64,
}

/// Counts one pass as active until it is dropped.
pub(super) struct Active<'a>(&'a AtomicU64);

impl Counters {
    pub(super) fn begin(&self) -> Active<'_> {
        self.active.fetch_add(1, Ordering::Relaxed);
        Active(&self.active)
    }

    pub(super) fn read(&self) -> ControllerStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ControllerStats {
            success: read(&self.success),
            requeue_after: read(&self.requeue_after),
            requeue: read(&self.requeue),
            error: read(&self.error),
            terminal: read(&self.terminal),
            panics: read(&self.panics),
            timeouts: read(&self.timeouts),
            given_up: read(&self.given_up),
            not_ours: read(&self.not_ours),
            deferred: read(&self.deferred),
            catch_up_timeouts: read(&self.catch_up_timeouts),
            active: read(&self.active),
        }
    }
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
