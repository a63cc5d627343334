//! The pages `/metrics` and `/metrics/slis`.

use crate::process_metrics;
use futures::future::BoxFuture;
use futures::{FutureExt as _, TryFutureExt as _};
use http::header::HeaderName;
use http::{HeaderValue, Request, Response, StatusCode, header};
use setpoint_apiserver::{Body, Handler, RequestBody};
use setpoint_runtime::metrics::Metrics;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// The page of all metrics.
pub(crate) const METRICS: &str = "/metrics";
/// The page of the results of health checks.
pub(crate) const SLIS: &str = "/metrics/slis";

/// The form of a page for scrapers that know none of OpenMetrics.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
/// The same, with how names are written, as kube-apiserver says it.
const ESCAPED_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

/// When the process started, for scrapers that know nothing else of it.
const STARTED: HeaderName = HeaderName::from_static("process-start-time-unix");

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
        if request.uri().path() != self.path {
            let response = plain(StatusCode::NOT_FOUND, "404 page not found\n");
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
                let mut page = metrics.respond(&Request::from_parts(parts, ()));
                drop(turn);
                let headers = page.headers_mut();
                headers.extend(process_metrics::start().map(|start| (STARTED, start)));
                // Names of metrics are escaped in no other way.
                let content_type = headers.get_mut(header::CONTENT_TYPE);
                content_type.filter(|found| *found == TEXT).into_iter().for_each(|found| {
                    *found = HeaderValue::from_static(ESCAPED_TEXT);
                });
                page.map(Body::once)
            });
            written.unwrap_or_else(|_| failed()).await
        }
        .boxed()
    }
}

fn failed() -> Response<Body> {
    plain(StatusCode::INTERNAL_SERVER_ERROR, "the metrics could not be written\n")
}

fn plain(code: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::once(text));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
