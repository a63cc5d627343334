//! Certificates of endpoints.
#![cfg(feature = "endpoints")]

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, NoLabelSet},
    metrics::MetricType,
};

use crate::endpoint::Certificates;

/// Writes `certwatcher_read_certificate_total` and `…_errors_total`, over all endpoints of a
/// manager.
#[derive(Debug)]
pub(crate) struct CertificateCollector(pub(crate) Vec<Certificates>);

impl Collector for CertificateCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (mut reads, mut errors) = (0, 0);
        for stats in self.0.iter().map(Certificates::stats) {
            reads += stats.reads;
            errors += stats.errors;
        }
        for (name, help, count) in [
            ("certwatcher_read_certificate", "Reads of certificates", reads),
            ("certwatcher_read_certificate_errors", "Reads of certificates that failed", errors),
        ] {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            metric.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
        Ok(())
    }
}
