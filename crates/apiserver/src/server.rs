//! The server as a service: the pipeline that every request goes through.

use crate::BoxError;
use crate::body::{Body, RequestBody};
use crate::discovery::Aggregated;
use crate::filter::authenticate::Credentials;
use crate::filter::in_flight::InFlight;
use crate::filter::large::LargeAnswers;
use crate::filter::{audit_id, deadline, panics, readiness};
use crate::health::Health;
use crate::openapi;
use crate::query::Query;
use crate::resource::{Exchange, Refusal};
use crate::respond::{self, Style};
use crate::root;
use crate::route::{Miss, Route, route};
use crate::verb::Verb;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use setpoint_object::ApiError;
use setpoint_registry::{Caller, Catalog, Registry};
use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio_util::sync::CancellationToken;

/// A handle to an API server; cheap to clone. Answers requests for as long as the registry's worker runs.
#[derive(Debug, Clone)]
pub struct ApiServer {
    inner: Arc<Inner>,
}

/// What every request shares.
#[derive(Debug)]
struct Inner {
    // Inputs.
    registry: Registry,
    credentials: Credentials,
    address: Option<String>,
    // State.
    rng: Mutex<SmallRng>,
    in_flight: InFlight,
    large: LargeAnswers,
    aggregated: Aggregated,
    open_api: openapi::Documents,
    drain: CancellationToken,
}

/// Builds an [`ApiServer`].
#[derive(Debug)]
#[must_use]
pub struct ApiServerBuilder {
    registry: Registry,
    credentials: Credentials,
    address: Option<String>,
    seed: Option<u64>,
}

impl ApiServerBuilder {
    /// Credentials that are accepted. Default: none.
    pub fn credentials(mut self, credentials: Credentials) -> Self {
        self.credentials = credentials;
        self
    }

    /// The `host:port` that discovery tells clients. Default: where each client found the server (its `Host` header).
    pub fn address(mut self, address: impl Into<String>) -> Self {
        self.address = Some(address.into());
        self
    }

    /// The seed of audit ids. Default: from the operating system.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The server.
    pub fn build(self) -> ApiServer {
        let seed = self.seed.unwrap_or_else(setpoint_object::seed::from_entropy);
        ApiServer {
            inner: Arc::new(Inner {
                registry: self.registry,
                credentials: self.credentials,
                address: self.address,
                rng: Mutex::new(SmallRng::seed_from_u64(seed)),
                in_flight: InFlight::new(),
                large: LargeAnswers::default(),
                aggregated: Aggregated::default(),
                open_api: openapi::Documents::default(),
                drain: CancellationToken::new(),
            }),
        }
    }
}

impl ApiServer {
    /// A builder over a registry, whose worker the caller runs.
    pub fn builder(registry: Registry) -> ApiServerBuilder {
        ApiServerBuilder { registry, credentials: Credentials::none(), address: None, seed: None }
    }

    /// The registry behind it.
    pub fn registry(&self) -> &Registry {
        &self.inner.registry
    }

    /// Begins shutdown: `/readyz` fails and watches end between two events. Ordinary requests are still answered.
    pub fn drain(&self) {
        self.inner.drain.cancel();
    }

    /// Ends when the server begins shutdown ([`ApiServer::drain`]): for streams that do not come through [`ApiServer::serve`].
    pub fn drained(&self) -> impl Future<Output = ()> + Send + use<> {
        self.inner.drain.clone().cancelled_owned()
    }

    /// Ends large lists that their clients take too slowly, until it is dropped. Whoever serves over sockets runs it.
    pub(crate) async fn end_slow_answers(&self) {
        self.inner.large.end_slow().await;
    }

    /// Answers one request. Dropping it drops the request's handler; a write it had begun may still have happened.
    pub async fn serve<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (parts, body) = request.into_parts();
        let body = body.map_err(Into::into).boxed_unsync();
        let audit_id = audit_id::of(&parts.headers, &self.inner.rng);
        let mut response = panics::catch(self.inner.pipeline(&parts, body)).await;
        let headers = response.headers_mut();
        headers.insert(audit_id::HEADER, audit_id);
        headers
            .entry(header::CACHE_CONTROL)
            .or_insert(HeaderValue::from_static("no-cache, private"));
        tracing::debug!(
            method = %parts.method, path = parts.uri.path(), code = response.status().as_u16(), "answered"
        );
        if parts.method == Method::HEAD {
            *response.body_mut() = Body::empty();
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

impl Inner {
    async fn pipeline(&self, parts: &Parts, body: RequestBody) -> Response<Body> {
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let style = Style::of(&parts.headers, &query);
        let health = parts.uri.path().starts_with("/healthz")
            || parts.uri.path().starts_with("/livez")
            || parts.uri.path().starts_with("/readyz");
        if !health && !readiness::wait(&self.registry).await {
            return unavailable();
        }
        let catalog = self.registry.catalog();
        let route = route(&catalog, parts.uri.path());
        let verb = match &route {
            Ok(Route::Resource(route)) => Some(Verb::of(&parts.method, route, &query)),
            _ => None,
        };
        let long_running = matches!(&verb, Some(Ok(Verb::Watch)));
        let time = match deadline::of(&query, long_running) {
            Ok(time) => time,
            Err(error) => return respond::error(&error, &parts.headers, style),
        };
        deadline::within(time, self.answer(parts, body, &query, style, &catalog, route, verb)).await
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the stages of one function, split at the deadline"
    )]
    async fn answer(
        &self,
        parts: &Parts,
        body: RequestBody,
        query: &Query,
        style: Style,
        catalog: &Arc<Catalog>,
        route: Result<Route, Miss>,
        verb: Option<Result<Verb, Option<Box<ApiError>>>>,
    ) -> Response<Body> {
        let failed = |error: &ApiError| respond::error(error, &parts.headers, style);
        let route_ok = route.as_ref().ok();
        let identity = self.credentials.authenticate(&parts.headers, &parts.extensions, route_ok);
        let Some(identity) = identity else { return failed(&ApiError::unauthorized()) };
        let reads = match &verb {
            Some(Ok(verb)) => verb.reads(),
            _ => true,
        };
        let _place = match verb {
            // A watch holds no place while it lasts.
            Some(Ok(Verb::Watch)) => None,
            _ => match self.in_flight.enter(&identity, reads) {
                Ok(place) => place,
                Err(crowded) => return crowded.respond(),
            },
        };
        let route = match route {
            Ok(route) => route,
            Err(Miss::Page) => return respond::page_not_found(),
            Err(Miss::Status(error)) => return failed(&error),
        };
        let Route::Resource(route) = route else {
            // Others do not wait for the store.
            let asks_store =
                matches!(&route, Route::Health { endpoint, .. } if *endpoint != "readyz");
            let store = !asks_store || self.registry.store_answers().await;
            return self.document(&route, parts, query, style, catalog, store);
        };
        let verb = match verb {
            Some(Ok(verb)) => verb,
            Some(Err(Some(error))) => return failed(&error),
            Some(Err(None)) | None => return respond::page_not_found(),
        };
        let caller = caller(parts, &identity);
        let exchange = Exchange {
            registry: &self.registry,
            catalog,
            parts,
            query,
            style,
            caller: &caller,
            user: identity.user.clone(),
            large: &self.large,
            drain: &self.drain,
        };
        let mut response = match exchange.answer(verb, route, body).await {
            Ok(response) => response,
            Err(Refusal(error)) => failed(&error),
        };
        respond::add_warnings(response.headers_mut(), &caller.warnings.lock());
        response
    }

    /// Everything that is not a resource. `store`: whether the store answers, where that is asked.
    fn document(
        &self,
        route: &Route,
        parts: &Parts,
        query: &Query,
        style: Style,
        catalog: &Catalog,
        store: bool,
    ) -> Response<Body> {
        if let Route::Health { endpoint, check } = route {
            let health = Health {
                started: *self.registry.ready().borrow(),
                draining: self.drain.is_cancelled(),
                store,
            };
            return health.respond(endpoint, check.as_deref(), query);
        }
        if parts.method != Method::GET {
            return respond::error(&ApiError::method_not_allowed(), &parts.headers, style);
        }
        if let Route::OpenApi(path) = route {
            let now = self.registry.clock().now();
            return self.open_api.respond(catalog, path, query, &parts.headers, style, now);
        }
        let host = || parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let authority = || parts.uri.authority().map(|authority| authority.as_str());
        let address = self.address.as_deref().or_else(authority).or_else(host).unwrap_or_default();
        let site = root::Site { catalog, aggregated: &self.aggregated, address };
        site.respond(route, &parts.headers, style)
            .unwrap_or_else(|error| respond::error(&error, &parts.headers, style))
    }
}

/// Start-up is not done.
fn unavailable() -> Response<Body> {
    let mut response = respond::plain(
        StatusCode::SERVICE_UNAVAILABLE,
        "the request has been made before all known HTTP paths have been installed, please try again\n",
    );
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// Who sends a request, as the registry sees it.
fn caller(parts: &Parts, identity: &crate::Identity) -> Caller {
    let text = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok());
    let origin = match parts.extensions.get::<crate::Origin>() {
        Some(origin) => Some(origin.0.clone()),
        None => text(crate::Origin::HEADER).map(Arc::from),
    };
    Caller {
        user: identity.user.to_string(),
        groups: identity.groups.iter().map(|group| group.to_string()).collect(),
        user_agent: text("user-agent").unwrap_or_default().to_owned(),
        origin,
        ..Caller::default()
    }
}
