//! The pages `/metrics` and `/metrics/slis`.

use futures::future::BoxFuture;
use futures::{FutureExt as _, TryFutureExt as _};
use http::{Request, Response, StatusCode};
use setpoint_apiserver::{Body, Handler, RequestBody};
use setpoint_runtime::metrics::Metrics;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// The page of all metrics.
pub(crate) const METRICS: &str = "/metrics";
/// The page of the results of health checks.
pub(crate) const SLIS: &str = "/metrics/slis";

/// Serves scrapes at one path.
pub(crate) struct MetricsPage {
    path: &'static str,
    metrics: Metrics,
    /// Allows one page to be written at a time.
    turn: Arc<Semaphore>,
}

impl MetricsPage {
    pub(crate) fn new(path: &'static str, metrics: Metrics) -> Self {
        Self { path, metrics, turn: Arc::new(Semaphore::new(1)) }
    }
}

impl Handler for MetricsPage {
    fn handle(&self, request: Request<RequestBody>) -> BoxFuture<'static, Response<Body>> {
        // Routes are prefixes.
        if request.uri().path().trim_end_matches('/') != self.path {
            let mut response = Response::new(Body::once("404 page not found\n"));
            *response.status_mut() = StatusCode::NOT_FOUND;
            return std::future::ready(response).boxed();
        }
        let (metrics, turn) = (self.metrics.clone(), self.turn.clone());
        async move {
            // The semaphore is never closed. Without a permit, at most two pages would be written
            // at once.
            let turn = turn.acquire_owned().await;
            let (parts, _) = request.into_parts();
            // Thousands of series take too long to write on a thread that serves requests.
            let written = tokio::task::spawn_blocking(move || {
                let page = metrics.respond(&Request::from_parts(parts, ()));
                drop(turn);
                page.map(Body::once)
            });
            written.unwrap_or_else(|_| failed()).await
        }
        .boxed()
    }
}

fn failed() -> Response<Body> {
    let mut response = Response::new(Body::once("the metrics could not be written\n"));
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    response
}
