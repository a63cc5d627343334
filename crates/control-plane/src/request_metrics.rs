//! Request metrics of the API server, under kube-apiserver's names.

use futures::future::BoxFuture;
use futures::{FutureExt as _, TryFutureExt as _};
use http::{Request, Response, StatusCode};
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use setpoint_apiserver::{
    Attributes, Body, Handler, Metrics as Observer, RequestBody, Requested, Subresource, Verb,
};
use setpoint_runtime::metrics::Metrics;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Upper bounds of the buckets of `apiserver_request_duration_seconds`, in seconds, as in
/// kube-apiserver.
pub const REQUEST_SECONDS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
    10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
];

/// Counts requests to an API server in a manager's or a program's [`Metrics`]:
///
/// | metric | labels |
/// |---|---|
/// | `apiserver_request_total` | those of long-running requests, `dry_run`, `code` |
/// | `apiserver_request_duration_seconds` | the same without `code` |
/// | `apiserver_current_inflight_requests` | `request_kind`: `mutating`, `readOnly` |
/// | `apiserver_longrunning_requests` | `verb`, `group`, `version`, `resource`, `subresource`, `scope`, `component` |
///
/// A request is counted when it has ended, a watch too. The code is 0 if the client disconnected
/// before the response.
///
/// Text chosen by a client never becomes a label. A resource without a row in this server's catalog
/// is `other`, also when a [`Backend`](setpoint_apiserver::Backend) serves it. A verb unknown to
/// kube-apiserver is `other` too. For a path, `subresource` is the server's root (`/healthz`,
/// `/apis`), or empty if the path is not under one. Series of a deleted definition remain. An apply
/// is a `PATCH`. The gauge of requests in flight is the value at the scrape, not the maximum of the
/// last second.
///
/// ```
/// use setpoint_control_plane::ControlPlane;
/// use setpoint_runtime::metrics::Metrics;
///
/// let metrics = Metrics::new();
/// // Counts, and serves `/metrics`.
/// let plane = ControlPlane::builder().serve_metrics(&metrics).build();
/// assert!(metrics.prometheus().contains("apiserver_current_inflight_requests"));
/// ```
#[derive(Debug)]
pub struct RequestMetrics {
    total: Family<Ended, Counter>,
    duration: Family<Timed, Histogram, fn() -> Histogram>,
    long_running: Family<Labels, Gauge>,
    mutating: Gauge,
    read_only: Gauge,
}

/// The labels of a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    verb: &'static str,
    group: LabelValue,
    version: LabelValue,
    resource: LabelValue,
    subresource: LabelValue,
    scope: &'static str,
    component: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Timed {
    #[prometheus(flatten)]
    request: Labels,
    dry_run: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ended {
    #[prometheus(flatten)]
    request: Timed,
    code: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InFlight {
    request_kind: &'static str,
}

/// A label value, shared with the catalog row it comes from, so that a request allocates nothing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum LabelValue {
    Fixed(&'static str),
    OfRow(Arc<str>),
    Subresource(Subresource),
}

impl EncodeLabelValue for LabelValue {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        let text = match self {
            Self::Fixed(text) => text,
            Self::OfRow(text) => &**text,
            Self::Subresource(subresource) => subresource.as_str(),
        };
        EncodeLabelValue::encode(&text, encoder)
    }
}

const NONE: LabelValue = LabelValue::Fixed("");
const OTHER: LabelValue = LabelValue::Fixed("other");

impl Labels {
    fn of(request: &Attributes) -> Self {
        let verb = verb(request);
        match &request.requested {
            Requested::Resource(target) => Self {
                verb,
                group: LabelValue::OfRow(target.resource.gvk.group.clone()),
                version: LabelValue::OfRow(target.resource.gvk.version.clone()),
                resource: LabelValue::OfRow(target.resource.resource.clone()),
                subresource: target.subresource.clone().map_or(NONE, LabelValue::Subresource),
                scope: scope(request),
                component: COMPONENT,
            },
            Requested::Path(path) => Self {
                verb,
                group: NONE,
                version: NONE,
                resource: NONE,
                subresource: LabelValue::Fixed(root(path)),
                scope: "",
                component: "",
            },
            _ => Self {
                verb,
                group: NONE,
                version: NONE,
                resource: OTHER,
                subresource: NONE,
                scope: scope(request),
                component: COMPONENT,
            },
        }
    }
}

const COMPONENT: &str = "apiserver";

/// The verb as kube-apiserver's metrics name it: the HTTP method where there is one.
fn verb(request: &Attributes) -> &'static str {
    use Subresource::{Attach, Exec, PortForward, Proxy};
    if matches!(request.subresource(), Some(Attach | Exec | PortForward | Proxy)) {
        return "CONNECT";
    }
    match &request.verb {
        Verb::Get => "GET",
        Verb::List => "LIST",
        Verb::Watch => "WATCH",
        Verb::Create => "POST",
        Verb::Update => "PUT",
        Verb::Patch => "PATCH",
        Verb::Delete => "DELETE",
        Verb::DeleteCollection => "DELETECOLLECTION",
        Verb::Other(method) => match &**method {
            "head" => "GET",
            "post" => "POST",
            "put" => "PUT",
            _ => "other",
        },
        _ => "other",
    }
}

fn scope(request: &Attributes) -> &'static str {
    if !request.name().is_empty() || request.verb == Verb::Create {
        "resource"
    } else if !request.namespace().is_empty() {
        "namespace"
    } else {
        "cluster"
    }
}

/// The root of a path, if it is one of the server's own.
fn root(path: &str) -> &'static str {
    const ROOTS: [&str; 9] = [
        "/healthz",
        "/livez",
        "/readyz",
        "/metrics",
        "/version",
        "/openapi/v2",
        "/openapi/v3",
        "/apis",
        "/api",
    ];
    let is_root = |root: &&str| {
        path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    ROOTS.into_iter().find(|root| is_root(root)).unwrap_or_default()
}

impl RequestMetrics {
    /// Registers the metrics. Registering twice in the same [`Metrics`] produces duplicate series.
    pub fn register(metrics: &Metrics) -> Arc<Self> {
        let in_flight: Family<InFlight, Gauge> = Family::default();
        let kind = |request_kind| in_flight.get_or_create(&InFlight { request_kind }).clone();
        let new = Self {
            total: Family::default(),
            duration: Family::new_with_constructor(|| Histogram::new(REQUEST_SECONDS)),
            long_running: Family::default(),
            mutating: kind("mutating"),
            read_only: kind("readOnly"),
        };
        metrics.update(|registry| {
            registry.register(
                "apiserver_request",
                "Requests that are over, by what they were and the HTTP status code",
                new.total.clone(),
            );
            registry.register(
                "apiserver_request_duration_seconds",
                "How long requests took; watches as long as they were open",
                new.duration.clone(),
            );
            registry.register(
                "apiserver_longrunning_requests",
                "Watches and streams that are open",
                new.long_running.clone(),
            );
            registry.register(
                "apiserver_current_inflight_requests",
                "Requests that are being answered, without long-running ones",
                in_flight.clone(),
            );
        });
        Arc::new(new)
    }

    fn in_flight(&self, request: &Attributes) -> &Gauge {
        if request.verb.is_read_only() { &self.read_only } else { &self.mutating }
    }
}

impl Observer for RequestMetrics {
    fn begun(&self, request: &Attributes) {
        if request.is_long_running() {
            self.long_running.get_or_create(&Labels::of(request)).inc();
        } else {
            self.in_flight(request).inc();
        }
    }

    fn ended(&self, request: &Attributes, code: Option<u16>, elapsed: Duration) {
        let labels = Labels::of(request);
        if request.is_long_running() {
            self.long_running.get_or_create(&labels).dec();
        } else {
            self.in_flight(request).dec();
        }
        let dry_run = if request.dry_run { "All" } else { "" };
        let timed = Timed { request: labels, dry_run };
        self.duration.get_or_create(&timed).observe(elapsed.as_secs_f64());
        let ended = Ended { request: timed, code: code.unwrap_or_default() };
        self.total.get_or_create(&ended).inc();
    }
}

/// Serves scrapes at `/metrics`.
pub(crate) struct MetricsPage {
    metrics: Metrics,
    /// Allows one page to be written at a time.
    turn: Arc<Semaphore>,
}

impl MetricsPage {
    pub(crate) fn new(metrics: Metrics) -> Self {
        Self { metrics, turn: Arc::new(Semaphore::new(1)) }
    }
}

impl Handler for MetricsPage {
    fn handle(&self, request: Request<RequestBody>) -> BoxFuture<'static, Response<Body>> {
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
