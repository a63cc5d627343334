//! What a manager tells about itself, with the names that dashboards of the field expect.
//!
//! # Theory
//!
//! There is no global registry: each manager has its own [`Metrics`], by handle. What the runtime
//! counts is counted where it happens, in atomic numbers, and read when somebody asks; nothing is
//! copied in between. So a controller that is removed takes its series along.
//!
//! | source                    | families                                                                       |
//! |---------------------------|--------------------------------------------------------------------------------|
//! | controllers               | `controller_runtime_reconcile_total`, `…_errors_total`, `…_time_seconds`, …    |
//! | their queues              | `workqueue_*`                                                                  |
//! | informers                 | `informer_*`, `reflector_*`                                                    |
//! | requests to the API server | `rest_client_requests_total`                                                  |
//! | the election              | `leader_election_master_status`, `leader_election_slowpath_total`              |
//! | events                    | `setpoint_events_lost_total`                                                   |
//! | certificates of endpoints | `certwatcher_read_certificate_total`, `…_errors_total`                         |
//! | the program               | what it registers by [`Metrics::update`]                                       |
//!
//! Labels are names of controllers, informers, resources, codes and causes, all of which a
//! program's code bounds: never an object's.

mod durations;
pub(crate) mod family;
mod informers;
mod requests;
#[cfg(test)]
mod tests;
mod text;

use std::{fmt, sync::Arc};

use parking_lot::Mutex;
pub use prometheus_client;
use prometheus_client::registry::Registry;

pub(crate) use self::{
    durations::Durations,
    informers::{InformerCollector, InformerFigures},
};
pub use self::{
    durations::RECONCILE_SECONDS,
    requests::{CountRequests, Counted},
};

/// The metrics of one manager. Cheap to clone; outlives the manager.
#[derive(Clone, Default)]
pub struct Metrics(Arc<Mutex<Registry>>);

impl Metrics {
    /// With nothing in it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers metrics of the program's own.
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
        update(&mut self.0.lock())
    }

    /// All of them as OpenMetrics 1.0 text.
    pub fn openmetrics(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail, and nothing here refuses to be written.
        if prometheus_client::encoding::text::encode(&mut text, &self.0.lock()).is_err() {
            tracing::error!("a metric could not be written");
        }
        text
    }

    /// All of them in Prometheus' text format 0.0.4.
    pub fn prometheus(&self) -> String {
        text::prometheus(&self.openmetrics())
    }

    /// Answers a scrape: OpenMetrics for who accepts it, and otherwise Prometheus' own format; 405
    /// for what reads nothing. Writes all series at once: where there are thousands, call it off
    /// the threads that serve.
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
