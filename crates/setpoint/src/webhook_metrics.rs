//! Metrics of webhooks, under controller-runtime's names, in a manager's registry.

use std::{sync::Arc, time::Duration};

use setpoint_runtime::metrics::{
    CertificateReads, Metrics,
    prometheus_client::{
        encoding::EncodeLabelSet,
        metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    },
};

/// Upper bounds of the latency histogram's buckets in seconds: the Prometheus defaults, which
/// controller-runtime uses here.
pub const LATENCY_SECONDS: [f64; 11] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Metrics of a [`WebhookServer`](setpoint_webhook::WebhookServer) in a manager's [`Metrics`].
/// Cheap to clone.
///
/// ```
/// use setpoint::{WebhookMetrics, runtime::metrics::Metrics, webhook::Webhooks};
///
/// let metrics = Metrics::new();
/// let webhooks = Webhooks::builder().metrics(WebhookMetrics::register(&metrics)).build()?;
/// assert!(metrics.prometheus().contains("certwatcher_read_certificate_total 0"));
/// # Ok::<(), setpoint::webhook::RegisterError>(())
/// ```
#[derive(Debug, Clone)]
pub struct WebhookMetrics {
    requests: Family<Request, Counter>,
    in_flight: Family<Webhook, Gauge>,
    latency: Family<Webhook, Histogram, fn() -> Histogram>,
    panics: Family<Webhook, Counter>,
    certificates: CertificateReads,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Webhook {
    webhook: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    webhook: String,
    code: u16,
}

impl Webhook {
    fn of(path: &str) -> Self {
        Self { webhook: path.to_owned() }
    }
}

impl WebhookMetrics {
    /// Registers the metrics. Registering twice in the same [`Metrics`] produces duplicate series.
    /// Reads of certificates are counted together with those of a manager's endpoints.
    pub fn register(metrics: &Metrics) -> Arc<Self> {
        let new = Self::new();
        new.add_to(metrics);
        Arc::new(new)
    }

    /// Metrics that are in no registry yet.
    pub(crate) fn new() -> Self {
        Self {
            requests: Family::default(),
            in_flight: Family::default(),
            latency: Family::new_with_constructor(|| Histogram::new(LATENCY_SECONDS)),
            panics: Family::default(),
            certificates: CertificateReads::default(),
        }
    }

    /// Registers them.
    pub(crate) fn add_to(&self, metrics: &Metrics) {
        metrics.update(|registry| {
            registry.register(
                "controller_runtime_webhook_requests",
                "Admission requests by webhook and HTTP status code",
                self.requests.clone(),
            );
            registry.register(
                "controller_runtime_webhook_requests_in_flight",
                "Admission requests that are being answered",
                self.in_flight.clone(),
            );
            registry.register(
                "controller_runtime_webhook_latency_seconds",
                "How long admission requests took to be answered",
                self.latency.clone(),
            );
            registry.register(
                "controller_runtime_webhook_panics",
                "Panics of webhooks' handlers",
                self.panics.clone(),
            );
        });
        metrics.add_certificate_reads(self.certificates.clone());
    }
}

impl setpoint_webhook::Metrics for WebhookMetrics {
    fn registered(&self, webhook: &str) {
        let webhook = Webhook::of(webhook);
        let ok = Request { webhook: webhook.webhook.clone(), code: 200 };
        let failed = Request { code: 500, ..ok.clone() };
        // Creates the series with the value zero.
        drop(self.requests.get_or_create(&ok));
        drop(self.requests.get_or_create(&failed));
        drop(self.in_flight.get_or_create(&webhook));
        drop(self.panics.get_or_create(&webhook));
        drop(self.latency.get_or_create(&webhook));
    }

    fn begun(&self, webhook: &str) {
        self.in_flight.get_or_create(&Webhook::of(webhook)).inc();
    }

    fn ended(&self, webhook: &str) {
        self.in_flight.get_or_create(&Webhook::of(webhook)).dec();
    }

    fn answered(&self, webhook: &str, code: u16, latency: Duration) {
        let request = Request { webhook: webhook.to_owned(), code };
        self.requests.get_or_create(&request).inc();
        self.latency.get_or_create(&Webhook::of(webhook)).observe(latency.as_secs_f64());
    }

    fn panicked(&self, webhook: &str) {
        self.panics.get_or_create(&Webhook::of(webhook)).inc();
    }

    fn certificate_read(&self) {
        self.certificates.add_read();
    }

    fn certificate_read_failed(&self) {
        self.certificates.add_error();
    }
}
