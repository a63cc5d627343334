//! What became of ended spans, as Prometheus metrics.

use crate::queue::SpanQueue;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use std::fmt;
use std::sync::Arc;

/// A collector of a queue's metrics:
///
/// | metric | type | |
/// |---|---|---|
/// | `setpoint_spans_queued` | gauge | ended spans that wait for the exporter |
/// | `setpoint_spans_lost_total` | counter | spans that did not fit into the queue or could not be sent |
#[derive(Debug)]
pub struct SpanMetrics(Arc<SpanQueue>);

impl SpanMetrics {
    /// A collector for a registry.
    pub fn of(queue: Arc<SpanQueue>) -> Self {
        Self(queue)
    }
}

impl Collector for SpanMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Ended spans that wait for the exporter";
        let queued = i64::try_from(self.0.len()).unwrap_or(i64::MAX);
        encoder
            .encode_descriptor("setpoint_spans_queued", help, None, MetricType::Gauge)?
            .encode_gauge(&queued)?;
        let help = "Spans that did not fit into the queue or could not be sent";
        encoder
            .encode_descriptor("setpoint_spans_lost", help, None, MetricType::Counter)?
            .encode_counter::<NoLabelSet, _, u64>(&self.0.dropped(), None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::registry::Registry;

    #[test]
    fn lost_spans_are_counted() {
        let queue = Arc::new(SpanQueue::default());
        let mut registry = Registry::default();
        registry.register_collector(Box::new(SpanMetrics::of(queue.clone())));
        queue.lost(3);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        assert!(text.contains("\nsetpoint_spans_lost_total 3\n"), "{text}");
        assert!(text.contains("\nsetpoint_spans_queued 0\n"), "{text}");
    }
}
