//! Metrics of a queue.

mod recorder;

use std::time::Duration;

pub use self::recorder::{BUCKETS, Distribution, PRIORITY_LABELS_MAX, Recorder};

/// Receives the events of a queue, for counters and histograms. Gauges are read with
/// [`WorkQueue::stats`].
///
/// Called after the queue's lock has been released, on the thread that caused the event. Must be
/// fast and must not block. There is one handle per queue, which knows the name and labels. A queue
/// without a handle reads no clock for metrics. [`Recorder`] is a handle with the metrics that
/// dashboards expect; `setpoint_runtime::metrics::QueueCollector` writes them for Prometheus.
///
/// [`WorkQueue::stats`]: crate::WorkQueue::stats
pub trait Metrics: Send + Sync + 'static {
    /// A key became queued or dirty (`workqueue_adds_total`). Repeated adds are not
    /// counted.
    fn added(&self) {}
    /// A key was handed out, `queued_for` after it was added (`workqueue_queue_duration_seconds`).
    fn handed_out(&self, queued_for: Duration) {
        let _ = queued_for;
    }
    /// A worker gave a key back, `worked_for` after it was handed out
    /// (`workqueue_work_duration_seconds`).
    fn done(&self, worked_for: Duration) {
        let _ = worked_for;
    }
    /// A key was added with a delay (`workqueue_retries_total`). Zero counts too, except with
    /// priorities.
    fn retried(&self) {}
}

/// The gauges of a queue at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Keys ready to be handed out. Equals `len`, without `dirty` if there are priorities.
    pub queued: usize,
    /// Keys that wait for their due time, including those still held by a worker.
    pub waiting: usize,
    /// Keys held by workers.
    pub in_flight: usize,
    /// Keys that rest after their work: see [`Item::rest`](crate::Item::rest).
    pub resting: usize,
    /// Keys that are held or resting, and were added again. `workqueue_depth` is `queued + dirty`.
    pub dirty: usize,
    /// Keys with state in the rate limiter.
    pub limited: usize,
    /// Sum of the ages of all keys in flight (`workqueue_unfinished_work_seconds`). Zero without
    /// ages.
    pub unfinished: Duration,
    /// Age of the key that has been in flight for longest
    /// (`workqueue_longest_running_processor_seconds`). Zero without ages.
    pub longest_running: Duration,
    /// Age of the key that has been queued for longest, as far as the order of service shows it.
    /// Zero without ages.
    pub oldest_queued: Duration,
}
