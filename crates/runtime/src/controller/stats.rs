//! What a controller's passes have come to.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of a controller's passes since it was built, named as controller-runtime's `controller_runtime_reconcile_*` metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ControllerStats {
    /// Passes that succeeded and asked for nothing.
    pub success: u64,
    /// Passes that succeeded and asked to come back after a time.
    pub requeue_after: u64,
    /// Passes that succeeded and asked to come back with back-off.
    pub requeue: u64,
    /// Passes that failed: terminal errors, panics and time-outs included.
    pub error: u64,
    /// Passes that failed for good.
    pub terminal: u64,
    /// Passes that panicked.
    pub panics: u64,
    /// Passes that took too long.
    pub timeouts: u64,
    /// Passes that run now.
    pub active: u64,
}

impl ControllerStats {
    /// How many passes have ended.
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
    active: AtomicU64,
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
