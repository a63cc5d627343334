//! Reads of certificates, of all servers of a manager together.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, NoLabelSet},
    metrics::MetricType,
};

/// Counts how often one server has read its certificate. Cheap to clone; clones share the counts.
#[derive(Debug, Clone, Default)]
pub struct CertificateReads(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    n_reads: AtomicU64,
    n_errors: AtomicU64,
}

impl CertificateReads {
    /// Counts a read, or a failed one.
    pub fn add_read(&self) {
        self.0.n_reads.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts that a read failed, or that its pair does not match; in addition to
    /// [`add_read`](Self::add_read).
    pub fn add_error(&self) {
        self.0.n_errors.fetch_add(1, Ordering::Relaxed);
    }

    /// Reads, including failed ones.
    pub fn reads(&self) -> u64 {
        self.0.n_reads.load(Ordering::Relaxed)
    }

    /// Reads that failed, or whose pair does not match.
    pub fn errors(&self) -> u64 {
        self.0.n_errors.load(Ordering::Relaxed)
    }
}

/// The servers of a manager that read certificates.
#[derive(Debug, Clone, Default)]
pub(super) struct CertificateCollector(Arc<Mutex<Vec<CertificateReads>>>);

impl CertificateCollector {
    /// Adds a server; returns whether it is the first.
    pub(super) fn add(&self, reads: CertificateReads) -> bool {
        let mut all = self.0.lock();
        let is_first = all.is_empty();
        if !all.iter().any(|known| Arc::ptr_eq(&known.0, &reads.0)) {
            all.push(reads);
        }
        is_first
    }
}

/// Writes `certwatcher_read_certificate_total` and `…_errors_total`, over all servers.
impl Collector for CertificateCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (mut reads, mut errors) = (0, 0);
        for counts in &*self.0.lock() {
            reads += counts.reads();
            errors += counts.errors();
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
