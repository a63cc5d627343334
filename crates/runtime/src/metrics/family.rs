//! Encodes families of samples, and counts durations.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use prometheus_client::{
    encoding::{DescriptorEncoder, EncodeGaugeValue, EncodeLabelSet, MetricEncoder, NoLabelSet},
    metrics::MetricType,
};

/// A family of samples being encoded.
pub(crate) struct Family<'a>(MetricEncoder<'a>);

/// Starts a counter; `name` has no `_total`.
pub(crate) fn counter<'a>(
    encoder: &'a mut DescriptorEncoder<'_>,
    name: &'a str,
    help: &str,
) -> Result<Family<'a>, fmt::Error> {
    encoder.encode_descriptor(name, help, None, MetricType::Counter).map(Family)
}

/// Starts a gauge.
pub(crate) fn gauge<'a>(
    encoder: &'a mut DescriptorEncoder<'_>,
    name: &'a str,
    help: &str,
) -> Result<Family<'a>, fmt::Error> {
    encoder.encode_descriptor(name, help, None, MetricType::Gauge).map(Family)
}

/// Starts a histogram.
pub(crate) fn histogram<'a>(
    encoder: &'a mut DescriptorEncoder<'_>,
    name: &'a str,
    help: &str,
) -> Result<Family<'a>, fmt::Error> {
    encoder.encode_descriptor(name, help, None, MetricType::Histogram).map(Family)
}

impl Family<'_> {
    pub(crate) fn count(&mut self, labels: &impl EncodeLabelSet, value: u64) -> fmt::Result {
        self.0.encode_family(labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)
    }

    pub(crate) fn value(
        &mut self,
        labels: &impl EncodeLabelSet,
        value: &impl EncodeGaugeValue,
    ) -> fmt::Result {
        self.0.encode_family(labels)?.encode_gauge(value)
    }

    /// `buckets` are not cumulative; the last one is unbounded.
    pub(crate) fn distribution(
        &mut self,
        labels: &impl EncodeLabelSet,
        sum: f64,
        buckets: &[(f64, u64)],
    ) -> fmt::Result {
        let count = buckets.iter().map(|(_, count)| count).sum();
        let mut metric = self.0.encode_family(labels)?;
        metric.encode_histogram::<NoLabelSet>(sum, count, buckets, None)
    }
}

/// The upper bounds of the buckets of `controller_runtime_reconcile_time_seconds`, in seconds: the
/// 40 buckets of controller-runtime, 5 ms to 60 s.
pub const RECONCILE_SECONDS: [f64; 40] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9,
    1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0,
    25.0, 30.0, 40.0, 50.0, 60.0,
];

/// A histogram of durations. Concurrent observations are all counted; a reader may see a count
/// before its sum.
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

    /// The upper bound and the count of each bucket. Not cumulative; the last one is unbounded.
    pub(crate) fn buckets(&self) -> Vec<(f64, u64)> {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        bounds.zip(self.counts.iter().map(|count| count.load(Relaxed))).collect()
    }
}

/// The buckets of a controller's passes.
impl Default for Durations {
    fn default() -> Self {
        Self::new(&RECONCILE_SECONDS)
    }
}
