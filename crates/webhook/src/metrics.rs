//! The interface for metrics of webhooks.

use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Receives events as they happen. This crate has no metrics format or registry; an implementation
/// provides them. Every method does nothing by default.
///
/// The usual metric names (spec runtime §11) and the methods that feed them; `webhook` is the path:
///
/// | metric | method |
/// |---|---|
/// | `controller_runtime_webhook_requests_in_flight{webhook}` | [`begun`](Self::begun) one more, [`ended`](Self::ended) one less |
/// | `controller_runtime_webhook_requests_total{webhook, code}` | [`answered`](Self::answered) |
/// | `controller_runtime_webhook_latency_seconds{webhook}` | [`answered`](Self::answered) |
/// | `controller_runtime_webhook_panics_total{webhook}` | [`panicked`](Self::panicked) |
/// | `certwatcher_read_certificate_total` | [`certificate_read`](Self::certificate_read) |
/// | `certwatcher_read_certificate_errors_total` | [`certificate_read_failed`](Self::certificate_read_failed) |
///
/// Called from several threads. Must be fast.
pub trait Metrics: Send + Sync + 'static {
    /// A webhook was registered. Its metrics exist from now on, at zero.
    fn registered(&self, webhook: &str) {
        let _ = webhook;
    }
    /// A request has arrived.
    fn begun(&self, webhook: &str) {
        let _ = webhook;
    }
    /// A request has ended, answered or abandoned.
    fn ended(&self, webhook: &str) {
        let _ = webhook;
    }
    /// A request was answered with this HTTP code after this time. A denial has the code 200.
    fn answered(&self, webhook: &str, code: u16, latency: Duration) {
        let _ = (webhook, code, latency);
    }
    /// The handler panicked.
    fn panicked(&self, webhook: &str) {
        let _ = webhook;
    }
    /// A certificate was read, or an attempt to read it failed. Called for every attempt.
    fn certificate_read(&self) {}
    /// A certificate could not be read or used.
    fn certificate_read_failed(&self) {}
}

/// Counts nothing.
impl Metrics for () {}

/// A request in progress.
pub(crate) struct InFlight {
    metrics: Arc<dyn Metrics>,
    webhook: Arc<str>,
    begun: Instant,
}

impl InFlight {
    pub(crate) fn begin(metrics: Arc<dyn Metrics>, webhook: Arc<str>) -> Self {
        metrics.begun(&webhook);
        Self { metrics, webhook, begun: Instant::now() }
    }

    pub(crate) fn answered(&self, code: u16) {
        self.metrics.answered(&self.webhook, code, self.begun.elapsed());
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.metrics.ended(&self.webhook);
    }
}
