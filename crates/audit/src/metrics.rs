//! Metrics under kube-apiserver's names.

use crate::event::name as name_of;
use crate::sink::{Audit, AuditStats};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use std::fmt;
use std::sync::Arc;

/// A collector of what sinks have done:
///
/// | metric | labels | counts |
/// |---|---|---|
/// | `apiserver_audit_event_total` | | events that the policy selects |
/// | `apiserver_audit_level_total` | `level` | requests |
/// | `apiserver_audit_error_total` | `plugin`: `buffered`, `truncate`, `log`, `webhook` | lost events: that found the buffer full, that are too large, or that the receiver did not take |
/// | `apiserver_audit_requests_rejected_total` | | requests that were refused because their arrival could not be stored |
///
/// The sinks of one server have one policy, so events and levels are those of the first.
#[derive(Debug)]
pub struct AuditMetrics(Vec<Arc<Audit>>);

impl AuditMetrics {
    /// A collector for a registry.
    pub fn of(sinks: impl IntoIterator<Item = Arc<Audit>>) -> Self {
        Self(sinks.into_iter().collect())
    }
}

impl Collector for AuditMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let all: Vec<(&'static str, AuditStats)> =
            self.0.iter().map(|sink| (sink.plugin(), sink.stats())).collect();
        let first = all.first().map(|(_, stats)| *stats).unwrap_or_default();
        let mut total = |name: &str, help: &str, n: u64| {
            encoder
                .encode_descriptor(name, help, None, MetricType::Counter)?
                .encode_counter::<NoLabelSet, _, u64>(&n, None)
        };
        total("apiserver_audit_event", "Audit events that the policy asks for", first.events)?;
        let refused = all.iter().map(|(_, stats)| stats.refused).sum();
        let help = "Requests that were refused because their audit event could not be stored";
        total("apiserver_audit_requests_rejected", help, refused)?;
        let help = "Requests by their audit level";
        let name = "apiserver_audit_level";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (level, n) in AuditStats::LEVELS.into_iter().zip(first.levels) {
            family
                .encode_family(&[("level", name_of(level))])?
                .encode_counter::<NoLabelSet, _, u64>(&n, None)?;
        }
        let overflown = all.iter().map(|(_, stats)| stats.overflown).sum();
        let too_large = all.iter().map(|(_, stats)| stats.too_large).sum();
        let undelivered = all.iter().map(|(plugin, stats)| (*plugin, stats.undelivered));
        let help = "Audit events that are lost, by the part that lost them";
        let name = "apiserver_audit_error";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (plugin, n) in undelivered.chain([("buffered", overflown), ("truncate", too_large)]) {
            family
                .encode_family(&[("plugin", plugin)])?
                .encode_counter::<NoLabelSet, _, u64>(&n, None)?;
        }
        Ok(())
    }
}
