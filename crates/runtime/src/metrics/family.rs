//! Writing one family of samples.

use std::fmt;

use prometheus_client::{
    encoding::{DescriptorEncoder, EncodeGaugeValue, EncodeLabelSet, MetricEncoder, NoLabelSet},
    metrics::MetricType,
};

/// A family whose samples are being written.
pub(crate) struct Family<'a>(MetricEncoder<'a>);

/// Begins a counter; `name` is without `_total`.
pub(crate) fn counter<'a>(
    encoder: &'a mut DescriptorEncoder<'_>,
    name: &'a str,
    help: &str,
) -> Result<Family<'a>, fmt::Error> {
    encoder.encode_descriptor(name, help, None, MetricType::Counter).map(Family)
}

/// Begins a gauge.
pub(crate) fn gauge<'a>(
    encoder: &'a mut DescriptorEncoder<'_>,
    name: &'a str,
    help: &str,
) -> Result<Family<'a>, fmt::Error> {
    encoder.encode_descriptor(name, help, None, MetricType::Gauge).map(Family)
}

/// Begins a histogram.
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

    /// `buckets` are not cumulated, and the last one is unbounded.
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
