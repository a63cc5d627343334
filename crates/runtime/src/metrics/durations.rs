//! How often durations fell into each bucket.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// The upper bounds of the buckets of `controller_runtime_reconcile_time_seconds`, in seconds: the
/// 40 of controller-runtime, 5 ms to 60 s.
pub const RECONCILE_SECONDS: [f64; 40] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9,
    1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0,
    25.0, 30.0, 40.0, 50.0, 60.0,
];

/// A histogram of durations. What is observed at the same time is counted once each; a reader may
/// see one a moment before its sum.
#[derive(Debug)]
pub(crate) struct Durations {
    bounds: &'static [f64],
    counts: Box<[AtomicU64]>,
    sum_nanos: AtomicU64,
}

impl Durations {
    pub(crate) fn new(bounds: &'static [f64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, counts, sum_nanos: AtomicU64::new(0) }
    }

    pub(crate) fn observe(&self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let bucket = self.bounds.partition_point(|bound| *bound < seconds);
        self.counts[bucket].fetch_add(1, Relaxed);
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.sum_nanos.fetch_add(nanos, Relaxed);
    }

    pub(crate) fn sum(&self) -> f64 {
        Duration::from_nanos(self.sum_nanos.load(Relaxed)).as_secs_f64()
    }

    /// Per bucket its bound, the last one unbounded, and how many fell into it and no smaller one.
    pub(crate) fn buckets(&self) -> Vec<(f64, u64)> {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        bounds.zip(self.counts.iter().map(|count| count.load(Relaxed))).collect()
    }
}

/// The passes of a controller.
impl Default for Durations {
    fn default() -> Self {
        Self::new(&RECONCILE_SECONDS)
    }
}
