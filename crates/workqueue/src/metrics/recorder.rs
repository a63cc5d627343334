//! Counters and histograms of one queue.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use parking_lot::Mutex;

use super::Metrics;

/// Upper bounds of the histograms' buckets: 10 ns to 1000 s, each ten times the one before, as
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

/// Maximum number of distinct priorities in labels: 25, as in controller-runtime.
pub const PRIORITY_LABELS_MAX: usize = 25;

/// Counts the events of one queue: a [`Metrics`] handle whose figures can be read at any time.
#[derive(Debug, Default)]
pub struct Recorder {
    adds: AtomicU64,
    retries: AtomicU64,
    queued: Histogram,
    worked: Histogram,
    /// The priorities in labels so far, and up to one more.
    priorities: Mutex<BTreeSet<i32>>,
}

impl Recorder {
    /// A recorder with all metrics at zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// How often a key became queued or dirty (`workqueue_adds_total`).
    pub fn adds(&self) -> u64 {
        self.adds.load(Relaxed)
    }

    /// Number of adds with a delay (`workqueue_retries_total`).
    pub fn retries(&self) -> u64 {
        self.retries.load(Relaxed)
    }

    /// Number of keys handed out, and of keys given back.
    pub fn passes(&self) -> (u64, u64) {
        (self.queued.count(), self.worked.count())
    }

    /// Durations for which keys were queued (`workqueue_queue_duration_seconds`).
    pub fn queue_durations(&self) -> Distribution {
        self.queued.read()
    }

    /// Durations for which workers held keys (`workqueue_work_duration_seconds`).
    pub fn work_durations(&self) -> Distribution {
        self.worked.read()
    }

    /// Whether there are few enough priorities, with all before, for a label each: at most
    /// [`PRIORITY_LABELS_MAX`]. Once `false`, always `false`.
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
    /// Per bucket its upper bound (`None` is unbounded), and the number of durations in it and in
    /// no lower bucket.
    pub buckets: Vec<(Option<Duration>, u64)>,
    /// The sum of all durations.
    pub sum: Duration,
}

/// Number of durations in each of [`BUCKETS`].
#[derive(Debug, Default)]
struct Histogram {
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

    fn count(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Relaxed)).sum()
    }

    fn read(&self) -> Distribution {
        let bounds = BUCKETS.iter().copied().map(Some).chain([None]);
        let counts = self.counts.iter().map(|count| count.load(Relaxed));
        let sum = Duration::from_nanos(self.sum_nanos.load(Relaxed));
        Distribution { buckets: bounds.zip(counts).collect(), sum }
    }
}
