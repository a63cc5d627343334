//! The pages `/metrics` and `/metrics/slis`.

mod exposition;

use crate::process_metrics;
use exposition::{Baseline, adapt, baseline};
use futures::future::BoxFuture;
use futures::{FutureExt as _, TryFutureExt as _};
use http::header::HeaderName;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use parking_lot::Mutex;
use setpoint_apiserver::{Body, Handler, RequestBody};
use setpoint_runtime::metrics::Metrics;
use std::collections::{BTreeMap, BTreeSet};
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

/// What the page of metrics leaves out, as kube-apiserver's flags say it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use]
pub struct MetricsPageOptions {
    /// The allowed values of labels, by family and label.
    allowed: BTreeMap<String, BTreeMap<String, BTreeSet<String>>>,
    disabled: BTreeSet<String>,
}

impl MetricsPageOptions {
    /// Shows these values of a label of a family, and `unexpected` in place of all others, as
    /// `--allow-metric-labels`. The family has its name in Prometheus' text format. Default: all
    /// values.
    pub fn allow(
        mut self,
        family: impl Into<String>,
        label: impl Into<String>,
        values: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let labels = self.allowed.entry(family.into()).or_default();
        labels.insert(label.into(), values.into_iter().map(Into::into).collect());
        self
    }

    /// Leaves families out, as `--disabled-metrics`. Default: none.
    pub fn disable(mut self, families: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.disabled.extend(families.into_iter().map(Into::into));
        self
    }

    fn is_default(&self) -> bool {
        self.allowed.is_empty() && self.disabled.is_empty()
    }
}

/// Serves scrapes at one path. A DELETE resets the counters and histograms that have labels, as in
/// kube-apiserver: the page shows what was counted since then.
pub(crate) struct MetricsPage {
    path: &'static str,
    metrics: Metrics,
    options: MetricsPageOptions,
    baseline: Arc<Mutex<Arc<Baseline>>>,
    /// Allows one page to be written at a time.
    turn: Arc<Semaphore>,
}

impl MetricsPage {
    pub(crate) fn new(path: &'static str, metrics: Metrics) -> Self {
        let (options, baseline) = (MetricsPageOptions::default(), Arc::default());
        Self { path, metrics, options, baseline, turn: Arc::new(Semaphore::new(1)) }
    }

    /// Leaves out what the options say.
    pub(crate) fn options(mut self, options: MetricsPageOptions) -> Self {
        self.options = options;
        self
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
        let (options, known) = (self.options.clone(), self.baseline.clone());
        async move {
            // The semaphore is never closed. Without a permit, at most two pages would be written
            // at once.
            let turn = turn.acquire_owned().await;
            let (parts, _) = request.into_parts();
            // Thousands of series take too long to write on a thread that serves requests.
            let written = tokio::task::spawn_blocking(move || {
                if parts.method == Method::DELETE {
                    let present = baseline(&metrics.prometheus(), &options);
                    *known.lock() = Arc::new(present);
                    let mut response = plain(StatusCode::OK, "metrics reset\n");
                    response.headers_mut().remove(header::X_CONTENT_TYPE_OPTIONS);
                    return response;
                }
                let mut page = metrics.respond(&Request::from_parts(parts, ()));
                drop(turn);
                let known = known.lock().clone();
                if page.status().is_success() && !(known.is_empty() && options.is_default()) {
                    page = page.map(|page| {
                        adapt(&String::from_utf8_lossy(&page), &options, &known).into()
                    });
                }
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
