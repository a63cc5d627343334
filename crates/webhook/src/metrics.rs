//! What is counted, told to whoever counts.

use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Told what happens, as it happens. No format and no registry here: an implementation brings them.
/// Every method does nothing by default.
///
/// The field's names for the figures (spec runtime §11), and what feeds them; `webhook` is the
/// path:
///
/// | figure | method |
/// |---|---|
/// | `controller_runtime_webhook_requests_in_flight{webhook}` | [`begun`](Self::begun) one more, [`ended`](Self::ended) one less |
/// | `controller_runtime_webhook_requests_total{webhook, code}` | [`answered`](Self::answered) |
/// | `controller_runtime_webhook_latency_seconds{webhook}` | [`answered`](Self::answered) |
/// | `controller_runtime_webhook_panics_total{webhook}` | [`panicked`](Self::panicked) |
/// | `certwatcher_read_certificate_total` | [`certificate_read`](Self::certificate_read) |
/// | `certwatcher_read_certificate_errors_total` | [`certificate_read_failed`](Self::certificate_read_failed) |
///
/// Calls come from several threads and must be quick.
pub trait Metrics: Send + Sync + 'static {
    /// A webhook is served here: its figures exist from now on, at zero.
    fn registered(&self, webhook: &str) {
        let _ = webhook;
    }
    /// A request has come.
    fn begun(&self, webhook: &str) {
        let _ = webhook;
    }
    /// It is over, answered or given up.
    fn ended(&self, webhook: &str) {
        let _ = webhook;
    }
    /// It was answered with this HTTP code, after this time. A denial is a 200: the code is HTTP's,
    /// as in the field.
    fn answered(&self, webhook: &str, code: u16, latency: Duration) {
        let _ = (webhook, code, latency);
    }
    /// Its handler panicked.
    fn panicked(&self, webhook: &str) {
        let _ = webhook;
    }
    /// A certificate was read, or could not be: every attempt.
    fn certificate_read(&self) {}
    /// A certificate could not be read or used.
    fn certificate_read_failed(&self) {}
}

/// Nobody counts.
impl Metrics for () {}

/// A request that is being answered.
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
