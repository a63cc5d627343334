//! What a queue tells about itself.

mod exposition;
mod recorder;

use std::time::Duration;

pub use self::{
    exposition::{Exposed, exposition},
    recorder::{BUCKETS, Distribution, PRIORITY_LABELS_MAX, Recorder},
};

/// Receives what happens in a queue, as counters and histograms need it; gauges are read with
/// [`WorkQueue::stats`].
///
/// Called after the queue's lock has been released, on the thread that caused the event: quick and
/// non-blocking, please. The handle given to a queue stands for that queue: it carries the name and
/// the labels. Without a handle a queue reads no clock for its metrics. [`Recorder`] is a handle
/// that keeps what dashboards expect.
///
/// [`WorkQueue::stats`]: crate::WorkQueue::stats
pub trait Metrics: Send + Sync + 'static {
    /// A key became wanted (`workqueue_adds_total`). Adds of a key that is already wanted are not
    /// counted.
    fn added(&self) {}
    /// A key was handed out, `queued_for` after it became wanted
    /// (`workqueue_queue_duration_seconds`).
    fn handed_out(&self, queued_for: Duration) {
        let _ = queued_for;
    }
    /// A worker gave a key back, `worked_for` after it was handed out
    /// (`workqueue_work_duration_seconds`).
    fn done(&self, worked_for: Duration) {
        let _ = worked_for;
    }
    /// A key was added with a delay; zero is counted too, except with priorities
    /// (`workqueue_retries_total`).
    fn retried(&self) {}
}

/// A queue's gauges at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Keys ready to be handed out: what `len` says, but for `dirty` with priorities.
    pub queued: usize,
    /// Keys that wait for their due time, those still held by a worker included.
    pub waiting: usize,
    /// Keys held by workers.
    pub in_flight: usize,
    /// Keys that rest after their work: see [`Item::rest`](crate::Item::rest).
    pub resting: usize,
    /// Keys held by workers or resting, and wanted again. `workqueue_depth` is `queued + dirty`.
    pub dirty: usize,
    /// Keys for which the rate limiter keeps state.
    pub limited: usize,
    /// Sum of the ages of all keys in flight (`workqueue_unfinished_work_seconds`). Zero without
    /// ages.
    pub unfinished: Duration,
    /// Age of the key in flight for longest (`workqueue_longest_running_processor_seconds`). Zero
    /// without ages.
    pub longest_running: Duration,
    /// Age of the key that has been queued for longest, as far as the order of service tells. Zero
    /// without ages.
    pub oldest_queued: Duration,
}
