//! A manager's HTTP endpoints.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;

use super::{ManagerBuilder, ManagerHandle};
use crate::{
    client::layer::layered,
    endpoint::{Certificates, Check, Endpoint, Health, METRICS_PATH, Probe},
    error::BoxError,
    metrics::{CountRequests, Metrics},
    runnable::Runnable,
};

/// How long after its lease has expired a process that still considers itself leader fails its
/// health check: 20 s, as controller-runtime (LE-16).
const RENEWAL_TOLERANCE: Duration = Duration::from_secs(20);

/// The endpoints of a manager, and its health checks.
#[derive(Default)]
pub(super) struct Served {
    endpoints: Vec<(&'static str, Endpoint, What)>,
    host: Arc<str>,
    pub(super) health: Health,
}

/// The paths that an endpoint serves.
#[derive(Debug, Clone, Copy)]
struct What {
    health: bool,
    metrics: bool,
}

impl ManagerBuilder {
    /// Serves `/healthz` and `/readyz` at an endpoint: the checks of
    /// [`Manager::health`](crate::Manager::health). A path without checks answers `ok` as long as
    /// the manager runs; [`add_defaults`](Health::add_defaults) adds the manager's own. Default:
    /// not served.
    pub fn health(mut self, endpoint: Endpoint) -> Self {
        let what = What { health: true, metrics: false };
        self.served.endpoints.push(("the health endpoint", endpoint, what));
        self
    }

    /// Serves `/metrics` at an endpoint, and counts the requests of the manager's client. Default:
    /// not served. Call [`build`](Self::build) within a runtime then.
    pub fn serve_metrics(mut self, endpoint: Endpoint) -> Self {
        let what = What { health: false, metrics: true };
        self.served.endpoints.push(("the metrics endpoint", endpoint, what));
        self
    }

    /// Serves all three paths at one endpoint: [`health`](Self::health) and
    /// [`serve_metrics`](Self::serve_metrics) together.
    pub fn serve(mut self, endpoint: Endpoint) -> Self {
        let what = What { health: true, metrics: true };
        self.served.endpoints.push(("the endpoint", endpoint, what));
        self
    }

    /// The API server's `host` label in `rest_client_requests_total`. Default: empty, since a
    /// client does not expose it.
    pub fn server_host(mut self, host: impl Into<Arc<str>>) -> Self {
        self.served.host = host.into();
        self
    }
}

impl Served {
    /// The client; its requests are counted if metrics are served.
    pub(super) fn counted(
        &self,
        client: kube_client::Client,
        metrics: &Metrics,
    ) -> kube_client::Client {
        if !self.endpoints.iter().any(|(_, _, what)| what.metrics) {
            return client;
        }
        layered(client, &CountRequests::new(metrics, self.host.clone()))
    }

    /// Connects the endpoints to this manager.
    pub(super) fn over(mut self, manager: &ManagerHandle) -> Self {
        for probe in [Probe::Healthz, Probe::Readyz] {
            self.health.offer(probe, "ping", Check::ping());
        }
        let cache = manager.environment.cache.clone();
        let synced = Check::new(move || {
            let unsynced = cache.unsynced();
            async move { if unsynced.is_empty() { Ok(()) } else { Err(unsynced.join("; ").into()) } }
        });
        self.health.offer(Probe::Readyz, "caches", synced);

        if let Some(leadership) = manager.leadership().cloned() {
            let renewed = Check::new(move || {
                let renewed = leadership.check_renewal(RENEWAL_TOLERANCE);
                async move { renewed.map_err(BoxError::from) }
            });
            self.health.offer(Probe::Healthz, "leader-election", renewed);
        }

        let metrics = manager.metrics();
        for (_, endpoint, what) in &mut self.endpoints {
            if what.health {
                self.health.serve_at(endpoint);
            }
            if what.metrics {
                let metrics = metrics.clone();
                endpoint.reserved(METRICS_PATH, move |request| scrape(metrics.clone(), request));
            }
            if let Some(reads) = endpoint.certificates().map(Certificates::reads) {
                metrics.add_certificate_reads(reads.clone());
            }
        }
        self
    }

    /// The endpoints as members, which start first.
    pub(super) fn start(self) -> impl Iterator<Item = (&'static str, Runnable)> {
        self.health.start();
        self.endpoints.into_iter().map(|(name, endpoint, _)| (name, endpoint.into_runnable()))
    }
}

/// Answers a scrape on a blocking thread, because it formats all series at once.
async fn scrape(metrics: Metrics, request: http::Request<Bytes>) -> http::Response<Bytes> {
    match tokio::task::spawn_blocking(move || metrics.respond(&request)).await {
        Ok(answer) => answer,
        // The endpoint answers panics of handlers.
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => {
            let mut answer = http::Response::new(Bytes::from_static(b"stopping\n"));
            *answer.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
            answer
        }
    }
}

impl fmt::Debug for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses = self.endpoints.iter().map(|(name, endpoint, _)| (name, endpoint.address()));
        f.debug_map().entries(addresses).finish()
    }
}
