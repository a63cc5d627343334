//! The server: a handle, its builder, and the entry points of requests.

mod builder;
mod shutdown;

pub use builder::ApiServerBuilder;

use crate::BoxError;
use crate::backend::{Backends, Served};
use crate::body::Body;
use crate::discovery::Aggregated;
use crate::extra::Extra;
use crate::figures::ServerFigures;
use crate::filter::authenticate::{Anonymous, Authenticators, Credentials};
use crate::filter::cors::Cors;
use crate::filter::deadline::REQUEST_TIMEOUT;
use crate::filter::fairness::{Fairness, FlowControlReader};
use crate::filter::goaway::GoAwayChance;
use crate::filter::hsts::Hsts;
use crate::filter::in_flight::{InFlight, RequestLimits};
use crate::filter::large::LargeAnswers;
use crate::filter::storage_versions::StorageVersionBarrier;
use crate::filter::watches::Watches;
use crate::filter::{audit_id, panics};
use crate::health::HealthCheck;
use crate::intercept::Interceptor;
use crate::negotiate::Types;
use crate::observe::{Observation, Observers};
use crate::peers::Peers;
use crate::streams::Agents;
use crate::{openapi, pipeline};
use bytes::Bytes;
use futures::Stream;
use futures::future::BoxFuture;
use http::{HeaderValue, Method, Request, Response, header};
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use setpoint_object::ApiError;
use setpoint_object::field_selector::FieldSelector;
use setpoint_object::label::Selector;
use setpoint_object::time::Timestamp;
use setpoint_registry::{Attributes, Event, List, ListOptions, Registry, WatchStream};
use setpoint_serve::GoAway;
use setpoint_spans::Tracer;
use shutdown::Shutdown;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// A handle to an API server; cheap to clone. Answers requests while the registry's worker runs.
#[derive(Debug, Clone)]
pub struct ApiServer {
    inner: Arc<Inner>,
}

/// State shared by all requests.
#[derive(Debug)]
pub(crate) struct Inner {
    // Inputs.
    pub(crate) registry: Registry,
    pub(crate) authenticators: Arc<Authenticators>,
    pub(crate) extra: Extra,
    pub(crate) observers: Arc<Observers>,
    /// Traces requests; `None`: nothing is traced.
    pub(crate) tracer: Option<Tracer>,
    pub(crate) address: Option<String>,
    pub(crate) backends: Backends,
    pub(crate) peers: Peers,
    pub(crate) interceptors: Vec<Arc<dyn Interceptor>>,
    pub(crate) health_checks: Vec<Arc<dyn HealthCheck>>,
    // State.
    pub(crate) served: Mutex<Option<Arc<Served>>>,
    pub(crate) rng: Mutex<SmallRng>,
    pub(crate) in_flight: InFlight,
    pub(crate) watches: Arc<Watches>,
    pub(crate) storage_versions: StorageVersionBarrier,
    /// Priority and fairness; `None`: `in_flight` limits requests.
    pub(crate) fairness: Option<Fairness>,
    pub(crate) large: LargeAnswers,
    pub(crate) figures: ServerFigures,
    pub(crate) aggregated: Aggregated,
    pub(crate) open_api: openapi::Documents,
    pub(crate) drain: CancellationToken,
    pub(crate) shutdown: Shutdown,
    /// Of requests that are not long-running.
    pub(crate) request_timeout: Duration,
    /// How long after the start `/livez` does not wait for it.
    pub(crate) livez_grace_period: Duration,
    pub(crate) agents: Agents,
    pub(crate) types: Types,
    pub(crate) cors: Option<Cors>,
    pub(crate) hsts: Option<Hsts>,
    pub(crate) go_away: GoAwayChance,
    pub(crate) started: Timestamp,
    /// Shown at `/flagz`.
    pub(crate) flags: Option<BTreeMap<String, String>>,
}

impl ApiServer {
    /// A builder over a registry. The caller runs the registry's worker.
    pub fn builder(registry: Registry) -> ApiServerBuilder {
        ApiServerBuilder {
            registry,
            credentials: Credentials::none(),
            bootstrap_tokens: false,
            authenticators: Vec::new(),
            anonymous: Anonymous::default(),
            extra: Extra::default(),
            audit: Vec::new(),
            metrics: Vec::new(),
            backends: Vec::new(),
            interceptors: Vec::new(),
            health_checks: Vec::new(),
            tracer: None,
            address: None,
            seed: None,
            limits: RequestLimits::default(),
            agents: Agents::default(),
            cors: None,
            hsts: None,
            go_away: GoAwayChance::default(),
            request_timeout: REQUEST_TIMEOUT,
            livez_grace_period: Duration::ZERO,
            descriptions: None,
            flags: None,
        }
    }

    /// The server's registry.
    pub fn registry(&self) -> &Registry {
        &self.inner.registry
    }

    /// Other servers, which answer for what this one does not serve.
    pub fn peers(&self) -> &Peers {
        &self.inner.peers
    }

    /// The backends. They can be added and removed at any time.
    pub fn backends(&self) -> &Backends {
        &self.inner.backends
    }

    /// Which writes wait for StorageVersions. Default: none.
    pub fn storage_versions(&self) -> &StorageVersionBarrier {
        &self.inner.storage_versions
    }

    /// Has reviews of tokens know those that one listener accepts.
    pub(crate) fn review_also(&self, credentials: &Credentials) {
        self.inner.authenticators.add_listener(credentials);
    }

    /// Ends watches between two events, and fails `/readyz`. Ordinary requests are still answered.
    pub fn drain(&self) {
        self.inner.drain.cancel();
    }

    /// Lists a resource in process: the same stages as a request over HTTP, with objects as the
    /// result. The request names the resource
    /// ([`Requested::Unrouted`](setpoint_registry::Requested::Unrouted)) and its user is trusted;
    /// the selectors come from it.
    ///
    /// # Errors
    ///
    /// The `Status` of the same request over HTTP; 501 for a resource of a
    /// [`Backend`](crate::Backend), which is called over HTTP only: use `ApiServer::client` (crate
    /// feature `client`).
    pub async fn list(&self, request: Attributes, options: ListOptions) -> Result<List, ApiError> {
        let request = self.inner.enter_in_process(request).await?;
        let observation = self.inner.observe(&request).await?;
        let listed = async {
            let _permit = self.inner.begin_in_process(&request).await?;
            let options = selected(&request, options)?;
            self.inner.registry.list(&request, &options).await
        }
        .await;
        // Nothing follows, so it waits for its end only.
        observation.answered(code(&listed), false);
        pipeline::stored(observation.completed(), None).await;
        listed
    }

    /// Watches a resource in process; see [`ApiServer::list`].
    ///
    /// # Errors
    ///
    /// As [`ApiServer::list`].
    pub async fn watch(
        &self,
        request: Attributes,
        options: ListOptions,
    ) -> Result<Events, ApiError> {
        let request = self.inner.enter_in_process(request).await?;
        let observation = self.inner.observe(&request).await?;
        let events = async {
            let _permit = self.inner.begin_in_process(&request).await?;
            let options = selected(&request, options)?;
            self.inner.registry.watch(&request, &options).await
        }
        .await;
        pipeline::stored(observation.answered(code(&events), events.is_ok()), None).await;
        Ok(Events::new(events?, self.inner.drain.clone(), observation))
    }

    /// A reader of the figures of priority and fairness, for metrics; `None`: it is off.
    pub fn flow_control(&self) -> Option<FlowControlReader> {
        self.inner.fairness.as_ref().map(FlowControlReader::new)
    }

    /// What the server counts of health checks and connections, for metrics.
    pub fn figures(&self) -> ServerFigures {
        self.inner.figures.clone()
    }

    /// Ends large lists that their clients read too slowly. Never returns. Run by listeners.
    pub(crate) async fn end_slow_answers(&self) {
        self.inner.large.end_slow().await;
    }

    /// Answers one request. Dropping the future drops the request's handler; a write in progress
    /// may still succeed.
    pub async fn serve<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (parts, body) = request.into_parts();
        let body = body.map_err(Into::into).boxed_unsync();
        let audit_id = audit_id::of(&parts.headers, &self.inner.rng);
        let is_last = self.inner.go_away.falls(parts.version, &self.inner.rng);
        let mut response = {
            // Pinned here, so that wrappers move only a reference.
            let answer = pin!(self.inner.answer(&parts, body, &audit_id));
            panics::catch(answer).await
        };
        let headers = response.headers_mut();
        headers.insert(audit_id::HEADER, audit_id);
        headers
            .entry(header::CACHE_CONTROL)
            .or_insert(HeaderValue::from_static("no-cache, private"));
        if let Some(Hsts(directives)) = &self.inner.hsts {
            headers.entry(header::STRICT_TRANSPORT_SECURITY).or_insert(directives.clone());
        }
        if is_last {
            response.extensions_mut().insert(GoAway);
        }
        tracing::debug!(
            method = %parts.method, path = parts.uri.path(), code = response.status().as_u16(), "answered"
        );
        if parts.method == Method::HEAD {
            let body = std::mem::replace(response.body_mut(), Body::empty());
            if let Some(bytes) = body.as_bytes() {
                let length = HeaderValue::from(bytes.len());
                response.headers_mut().entry(header::CONTENT_LENGTH).or_insert(length);
            }
        }
        response
    }
}

impl<B> tower_service::Service<Request<B>> for ApiServer
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let server = self.clone();
        Box::pin(async move { Ok(server.serve(request).await) })
    }
}

/// The HTTP code of a result.
fn code<T>(result: &Result<T, ApiError>) -> u16 {
    result.as_ref().err().map_or(200, ApiError::code)
}

/// The options of an in-process request, with the selectors in its attributes.
fn selected(request: &Attributes, options: ListOptions) -> Result<ListOptions, ApiError> {
    let labels = match &*request.label_selector {
        "" => Selector::everything(),
        text => Selector::parse(text).map_err(|error| ApiError::bad_request(error.0))?,
    };
    let fields = FieldSelector::parse(&request.field_selector)
        .map_err(|error| ApiError::bad_request(error.0))?;
    Ok(ListOptions { labels, fields, ..options })
}

/// The events of a watch. It ends when the registry ends it, or when the server drains and no event
/// is ready.
#[must_use = "a stream does nothing unless polled"]
pub struct Events {
    // Inputs.
    events: WatchStream,
    drained: Pin<Box<WaitForCancellationFutureOwned>>,
    /// The request lasts as long as this value.
    _observation: Arc<Observation>,
    // State.
    is_over: bool,
}

impl Events {
    pub(crate) fn new(
        events: WatchStream,
        drain: CancellationToken,
        observation: Arc<Observation>,
    ) -> Self {
        let drained = Box::pin(drain.cancelled_owned());
        Self { events, drained, _observation: observation, is_over: false }
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").field("is_over", &self.is_over).finish_non_exhaustive()
    }
}

impl Stream for Events {
    type Item = Result<Arc<Event>, ApiError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        // Ready events are sent before the drain is checked: a watch ends between events and holds
        // none back.
        let next = match Pin::new(&mut self.events).poll_next(cx) {
            Poll::Ready(Some(Ok(event))) => return Poll::Ready(Some(Ok(event))),
            Poll::Ready(end) => end,
            Poll::Pending => match self.drained.as_mut().poll(cx) {
                Poll::Ready(()) => None,
                Poll::Pending => return Poll::Pending,
            },
        };
        self.is_over = true;
        Poll::Ready(next)
    }
}
