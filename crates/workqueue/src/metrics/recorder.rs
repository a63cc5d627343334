//! Counters and histograms of one queue.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use parking_lot::Mutex;

use super::Metrics;

/// The upper bounds of the histograms' buckets: 10 ns to 1000 s, ten times longer each, as
/// client-go's (`workqueue` metrics of component-base).
pub const BUCKETS: [Duration; 12] = [
    Duration::from_nanos(10),
    Duration::from_nanos(100),
    Duration::from_micros(1),
    Duration::from_micros(10),
    Duration::from_micros(100),
    Duration::from_millis(1),
    Duration::from_millis(10),
    Duration::from_millis(100),
    Duration::from_secs(1),
    Duration::from_secs(10),
    Duration::from_secs(100),
    Duration::from_secs(1000),
];

/// So many distinct priorities are told apart in labels: 25, as in controller-runtime.
pub const PRIORITY_LABELS_MAX: usize = 25;

/// Counts what happens in one queue: a [`Metrics`] handle whose figures
/// [`exposition`](super::exposition()) writes down.
#[derive(Debug, Default)]
pub struct Recorder {
    pub(super) adds: AtomicU64,
    pub(super) retries: AtomicU64,
    pub(super) queued: Histogram,
    pub(super) worked: Histogram,
    /// The priorities that were shown, up to one too many.
    priorities: Mutex<BTreeSet<i32>>,
}

impl Recorder {
    /// With all figures at zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many keys became wanted (`workqueue_adds_total`).
    pub fn adds(&self) -> u64 {
        self.adds.load(Relaxed)
    }

    /// How many adds had a delay (`workqueue_retries_total`).
    pub fn retries(&self) -> u64 {
        self.retries.load(Relaxed)
    }

    /// How many keys were handed out, and given back.
    pub fn passes(&self) -> (u64, u64) {
        (self.queued.count(), self.worked.count())
    }

    /// How long keys were queued (`workqueue_queue_duration_seconds`).
    pub fn queue_durations(&self) -> Distribution {
        self.queued.read()
    }

    /// How long keys were worked on (`workqueue_work_duration_seconds`).
    pub fn work_durations(&self) -> Distribution {
        self.worked.read()
    }

    /// Whether these priorities, and all that were shown before, are few enough for a label each:
    /// at most [`PRIORITY_LABELS_MAX`]. Once they were not, they never are.
    pub fn may_label(&self, shown: impl Iterator<Item = i32>) -> bool {
        let mut priorities = self.priorities.lock();
        for priority in shown {
            if priorities.len() <= PRIORITY_LABELS_MAX {
                priorities.insert(priority);
            }
        }
        priorities.len() <= PRIORITY_LABELS_MAX
    }
}

impl Metrics for Recorder {
    fn added(&self) {
        self.adds.fetch_add(1, Relaxed);
    }

    fn handed_out(&self, queued_for: Duration) {
        self.queued.observe(queued_for);
    }

    fn done(&self, worked_for: Duration) {
        self.worked.observe(worked_for);
    }

    fn retried(&self) {
        self.retries.fetch_add(1, Relaxed);
    }
}

/// A histogram at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Distribution {
    /// Per bucket its upper bound (`None` is unbounded), and how many durations fell into it and
    /// into none before.
    pub buckets: Vec<(Option<Duration>, u64)>,
    /// The sum of all durations.
    pub sum: Duration,
}

/// How often durations fell into each of [`BUCKETS`].
#[derive(Debug, Default)]
pub(super) struct Histogram {
    counts: [AtomicU64; BUCKETS.len() + 1],
    sum_nanos: AtomicU64,
}

impl Histogram {
    fn observe(&self, duration: Duration) {
        let bucket = BUCKETS.partition_point(|bound| *bound < duration);
        self.counts[bucket].fetch_add(1, Relaxed);
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.sum_nanos.fetch_add(nanos, Relaxed);
    }

    pub(super) fn count(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Relaxed)).sum()
    }

    fn read(&self) -> Distribution {
        let bounds = BUCKETS.iter().copied().map(Some).chain([None]);
        let counts = self.counts.iter().map(|count| count.load(Relaxed));
        Distribution { buckets: bounds.zip(counts).collect(), sum: self.sum() }
    }

    pub(super) fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum_nanos.load(Relaxed))
    }

    /// Per bucket its bound (`None` is unbounded) and how many durations are at most that.
    pub(super) fn cumulated(&self) -> impl Iterator<Item = (Option<Duration>, u64)> {
        let bounds = BUCKETS.iter().copied().map(Some).chain([None]);
        let counts = self.counts.iter().scan(0, |sum, count| {
            *sum += count.load(Relaxed);
            Some(*sum)
        });
        bounds.zip(counts)
    }
}
