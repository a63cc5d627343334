//! What is counted of a signer, under kube-apiserver's names.

use super::error::{Coded, KeysError, SignError};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use setpoint::object::time::Timestamp;
use setpoint::runtime::metrics::Metrics;
use setpoint_grpc::RpcError;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// The upper bounds of the durations of calls in seconds, as kube-apiserver's.
const BUCKETS: [f64; 14] =
    [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

type Labels<const N: usize> = [(&'static str, String); N];

#[derive(Debug, Clone, Copy)]
struct Buckets;

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(BUCKETS)
    }
}

/// The counts.
pub(super) struct SignerMetrics {
    fetched_at: Gauge<f64, AtomicU64>,
    dated: Gauge<f64, AtomicU64>,
    fetches: Family<Labels<1>, Counter>,
    signed: Family<Labels<1>, Counter>,
    calls: Family<Labels<2>, Histogram, Buckets>,
}

impl fmt::Debug for SignerMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignerMetrics").finish_non_exhaustive()
    }
}

impl SignerMetrics {
    pub(super) fn register(metrics: &Metrics) -> Self {
        let new = Self {
            fetched_at: Gauge::default(),
            dated: Gauge::default(),
            fetches: Family::default(),
            signed: Family::default(),
            calls: Family::new_with_constructor(Buckets),
        };
        metrics.update(|registry| {
            let name = |end: &str| format!("apiserver_externaljwt_{end}");
            registry.register(
                name("fetch_keys_success_timestamp"),
                "Time of the last answer with keys",
                new.fetched_at.clone(),
            );
            registry.register(
                name("fetch_keys_data_timestamp"),
                "Time that the last answer with keys states",
                new.dated.clone(),
            );
            registry.register(name("fetch_keys_request"), "Calls for keys", new.fetches.clone());
            registry.register(name("sign_request"), "Calls for signatures", new.signed.clone());
            registry.register(
                name("request_duration_seconds"),
                "Durations of calls of the signer",
                new.calls.clone(),
            );
        });
        new
    }

    /// A call has ended.
    pub(super) fn called(&self, method: &str, error: Option<&RpcError>, took: Duration) {
        let code = error.map_or("OK".to_owned(), |error| error.code.to_string());
        let labels = [("method", method.to_owned()), ("code", code)];
        self.calls.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// The keys were asked for.
    pub(super) fn fetched(&self, error: Option<&KeysError>, now: Timestamp) {
        self.fetches.get_or_create(&[("code", code(error))]).inc();
        if error.is_none() {
            self.fetched_at.set(now.0.as_secs_f64());
        }
    }

    /// The time of the keys, in seconds since 1970.
    pub(super) fn dated(&self, seconds: f64) {
        self.dated.set(seconds);
    }

    /// A token was asked for.
    pub(super) fn signed(&self, error: Option<&SignError>) {
        self.signed.get_or_create(&[("code", code(error))]).inc();
    }
}

fn code(error: Option<&impl Coded>) -> String {
    error.map_or("OK".to_owned(), Coded::code)
}
