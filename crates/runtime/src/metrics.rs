//! Metrics of a manager, with the names that existing dashboards expect.
//!
//! # Theory
//!
//! There is no global registry: each manager has its own [`Metrics`]. The runtime counts in place,
//! in atomic numbers, and reads them on request; nothing is copied in between. So a removed
//! controller's series disappear.
//!
//! | source                    | families                                                                       |
//! |---------------------------|--------------------------------------------------------------------------------|
//! | controllers               | `controller_runtime_reconcile_total`, `…_errors_total`, `…_time_seconds`, …    |
//! | their queues, and others by [`QueueCollector`] | `workqueue_*`                                             |
//! | informers                 | `informer_*`, `reflector_*`                                                    |
//! | requests to the API server | `rest_client_requests_total`                                                  |
//! | the election              | `leader_election_master_status`, `leader_election_slowpath_total`              |
//! | events                    | `setpoint_events_lost_total`                                                   |
//! | certificates of endpoints, and others by [`Metrics::add_certificate_reads`] | `certwatcher_read_certificate_total`, `…_errors_total` |
//! | the program               | metrics registered through [`Metrics::update`]                                 |
//!
//! Labels are names of controllers, informers, resources, codes and causes. Their number is bounded
//! by the program's code. Names of objects are never labels.

mod certificates;
pub(crate) mod family;
mod informers;
mod queues;
mod requests;
#[cfg(test)]
mod tests;
mod text;

use std::{fmt, sync::Arc};

use parking_lot::Mutex;
pub use prometheus_client;
use prometheus_client::registry::Registry;

use self::certificates::CertificateCollector;
pub use self::{
    certificates::CertificateReads,
    family::RECONCILE_SECONDS,
    queues::{QueueCollector, QueueMetrics},
    requests::{CountRequests, Counted},
};
pub(crate) use self::{
    family::Durations,
    informers::{InformerCollector, InformerFigures},
};

/// The metrics of one manager. Cheap to clone; outlives the manager.
#[derive(Clone, Default)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    certificates: CertificateCollector,
}

impl Metrics {
    /// Without metrics.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers the program's own metrics.
    ///
    /// ```
    /// # use setpoint_runtime::metrics::{Metrics, prometheus_client::metrics::counter::Counter};
    /// let metrics = Metrics::new();
    /// let printed: Counter = Counter::default();
    /// metrics.update(|registry| registry.register("pages_printed", "Pages", printed.clone()));
    /// printed.inc();
    /// assert!(metrics.prometheus().contains("\npages_printed_total 1\n"));
    /// ```
    pub fn update<T>(&self, update: impl FnOnce(&mut Registry) -> T) -> T {
        update(&mut self.registry.lock())
    }

    /// Adds the reads of a server's certificate to `certwatcher_read_certificate_total` and
    /// `…_errors_total`. Adding the same again changes nothing.
    pub fn add_certificate_reads(&self, reads: CertificateReads) {
        if self.certificates.add(reads) {
            let certificates = Box::new(self.certificates.clone());
            self.registry.lock().register_collector(certificates);
        }
    }

    /// All metrics as OpenMetrics 1.0 text.
    pub fn openmetrics(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail, and no metric here returns an error.
        if prometheus_client::encoding::text::encode(&mut text, &self.registry.lock()).is_err() {
            tracing::error!("a metric could not be written");
        }
        text
    }

    /// All metrics in Prometheus' text format 0.0.4.
    pub fn prometheus(&self) -> String {
        text::prometheus(&self.openmetrics())
    }

    /// Answers a scrape: OpenMetrics if the client accepts it, otherwise Prometheus' format; 405
    /// for methods other than reads. Formats all series at once: with thousands of series, call it
    /// on a blocking thread.
    #[cfg(feature = "endpoints")]
    pub fn respond<B>(&self, request: &http::Request<B>) -> http::Response<bytes::Bytes> {
        text::answer(self, request)
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}
