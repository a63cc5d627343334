//! The stages of every request, in order.
//!
//! | stage | over HTTP ([`Inner::answer`]) | in process ([`Inner::enter_in_process`]) |
//! |---|---|---|
//! | HSTS, GOAWAY | headers of every answer; the last one of a connection, by chance (`server.rs`) | no |
//! | readiness | waits a short time for start-up, then 503 | the same |
//! | route | path and catalog → destination and verb | resource and catalog, and its verb |
//! | `Attributes` | made from the above, headers and query | passed by the caller |
//! | deadline | `?timeout=`, at most the server's, a minute by default, else 400 | the caller's |
//! | CORS | headers for pages of allowed origins, and answers to their questions | no |
//! | authenticate | the transport, tokens, `Authenticator`s, anonymous, else 401 | the caller is trusted |
//! | trace | the `Tracer` samples it: spans from here on (`trace.rs`) | not traced |
//! | audit begins | calls `AuditSink`s and `Metrics` | the same |
//! | impersonate | the user that the headers name, if the authorizers allow it, else 403 | the caller is trusted |
//! | intercept | `Interceptor`s of tests may wait, fail the request or change its answer | not asked |
//! | flow control | a seat of priority and fairness, perhaps after a wait, else 429 | the same |
//! | authorize | `Authorizer`s, else 403 | the same |
//! | watches | a limit of open watches, of each user and in all, else 429 | trusted, not counted |
//! | storage versions | with the feature gate, 503 for writes until what is stored is registered | it only reads |
//! | backend | a `Backend` answers for its group version, and the later stages are skipped; 503 while it is unavailable | 501 before the audit begins: backends are called over HTTP only |
//! | peers | a peer answers for a resource that it serves, and this server does not | not asked |
//! | refusals | 404 and 405, for authorized users only | the same, before the audit begins |
//! | answer | a document, an added route, or negotiation and one call of the registry | the call |
//! | audit ends | when the answer is ready; for a watch at its end | the same |

mod begin;
mod document;
mod identify;

use crate::backend::{self, Backend, Found, Generation, Served};
use crate::body::{Body, RequestBody};
use crate::extra::Handler;
use crate::filter::authenticate::{extra_space, strip_credentials};
use crate::filter::fairness::{Page, Schema};
use crate::filter::{cors, deadline, readiness};
use crate::intercept::{ChangeAnswer, Intercepted};
use crate::observe::{AuditSource, EventStored, Observation};
use crate::peers::PEER_PROXIED;
use crate::proxy::Forwarded;
use crate::query::{Query, decode_path};
use crate::resource::{Exchange, Refusal};
use crate::respond::{self, Style};
use crate::route::{self, ResourceRoute, Route, Unrouted};
use crate::server::Inner;
use crate::trace;
use crate::verb::{self, NotServed};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use parking_lot::Mutex;
use setpoint_object::status::Details;
use setpoint_object::{ApiError, Origin, Reason};
use setpoint_registry::{
    Attributes, Catalog, Feature, Identity, Requested, ResourcePath, Verb, is_health,
};
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use tokio::time::{Instant, timeout_at};

/// The message of a server that has not started.
const STARTING: &str =
    "the request has been made before all known HTTP paths have been installed, please try again";

/// A request over HTTP after routing.
struct RoutedRequest<'a> {
    parts: &'a Parts,
    query: Query,
    style: Style,
    catalog: Arc<Catalog>,
    backends: Arc<backend::Table>,
    destination: Destination,
    /// Deadline of the complete answer; `None`: the request is long-running.
    deadline: Option<Instant>,
}

/// Makes the answers for errors, which the observation notes.
fn failed(
    parts: &Parts,
    style: Style,
    observation: &Observation,
) -> impl Fn(&ApiError) -> Response<Body> {
    move |error| {
        observation.failed(error);
        respond::error(error, &parts.headers, style)
    }
}

/// Waits until an event is stored, at most until a deadline.
pub(crate) async fn stored(event: Option<EventStored>, deadline: Option<Instant>) {
    let Some(event) = event else { return };
    let is_stored = match deadline {
        Some(deadline) => timeout_at(deadline, event).await.is_ok_and(|stored| stored.is_ok()),
        None => event.await.is_ok(),
    };
    if !is_stored {
        tracing::warn!("a request is answered before its audit event is stored");
    }
}

/// The destination of a path, besides its [`Attributes`].
enum Destination {
    /// A resource. `watch`: the path has the deprecated `/watch/` prefix; `scoped`: it names a
    /// namespace, be it the empty one.
    Resource { watch: bool, scoped: bool },
    /// A document.
    Document(Route),
    /// An added route.
    Extra(Arc<dyn Handler>),
    /// A group version of a backend, or a path below it.
    Backend(Arc<Backend>),
    /// A page about flow control.
    FlowControl(Page),
    /// No route.
    None(Unrouted),
}

impl Inner {
    /// Answers a request over HTTP.
    pub(crate) async fn answer(
        &self,
        parts: &Parts,
        body: RequestBody,
        audit_id: &HeaderValue,
    ) -> Response<Body> {
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let mut style = Style::of(&parts.headers, &query);
        style.gzip &= self.registry.features().is_on(Feature::APIResponseCompression);
        if !is_health(parts.uri.path()) && !readiness::wait(&self.registry).await {
            return unavailable();
        }
        if route::names_nothing(parts.uri.path()) {
            let uri = &parts.uri;
            let why =
                "failed to create RequestInfo: unable to determine kind and namespace from url";
            return respond::internal_error(uri, &format!("{why}, {uri}"));
        }
        if route::lists_resources(parts.uri.path()) {
            self.registry.wait_announced().await;
        }
        let catalog = self.registry.catalog();
        let backends = self.backends.table();
        let (destination, mut attributes) =
            self.route(&catalog, &backends, parts, &query, audit_id);
        let is_long_running = attributes.is_long_running();
        let _in_progress = (!is_long_running).then(|| self.shutdown.request());
        let time = match deadline::of(&query, is_long_running, self.request_timeout) {
            Ok(time) => time,
            Err(error) => return self.refuse(parts, style, attributes, &error).await,
        };
        let deadline = time.map(|time| Instant::now() + time);
        attributes.deadline = deadline;
        let origin = self.cors.as_ref().and_then(|cors| cors.allowed(parts));
        if let Some(origin) = &origin
            && let Some(mut answer) = cors::preflight(parts)
        {
            cors::allow(answer.headers_mut(), origin.clone());
            return answer;
        }
        let request =
            RoutedRequest { parts, query, style, catalog, backends, destination, deadline };
        let (begun, classified) = (OnceLock::new(), OnceLock::new());
        let changes = Mutex::new(Vec::new());
        let mut response = {
            // Ends here, so that only a stream still observes.
            let pass = pin!(self.pass(request, attributes, body, &begun, &classified, &changes));
            let passed = async {
                let mut answer = pass.await;
                origin.into_iter().for_each(|o| cors::allow(answer.headers_mut(), o));
                answer
            };
            deadline::within(time, passed).await.unwrap_or_else(|| {
                begun.get().into_iter().for_each(|observation| observation.terminated());
                deadline::expired()
            })
        };
        // In every answer, also to a request that is refused before it is handled.
        if let Some(observation) = begun.get() {
            respond::add_warnings(response.headers_mut(), &observation.warnings());
        }
        // In every answer: without the token, the user may be another one, who is refused later.
        if let Some(warning) = extra_space(&parts.headers) {
            respond::add_warnings(response.headers_mut(), &[warning.to_owned()]);
        }
        for change in std::mem::take(&mut *changes.lock()) {
            response = change(response);
        }
        if let Some(schema) = classified.get() {
            Schema::add_headers(schema, response.headers_mut());
        }
        if let Some(observation) = begun.get() {
            let code = response.status().as_u16();
            stored(observation.answered(code, is_long_running), deadline).await;
            // What still streams is recorded at its end.
            if Arc::strong_count(observation) == 1 {
                stored(observation.completed(), deadline).await;
            }
            observation.sends(response.body_mut());
        }
        response
    }

    /// Routes a request over HTTP and makes its attributes. The user is not known yet.
    fn route(
        &self,
        catalog: &Catalog,
        backends: &backend::Table,
        parts: &Parts,
        query: &Query,
        audit_id: &HeaderValue,
    ) -> (Destination, Attributes) {
        let (destination, requested, special) =
            self.destination(catalog, backends, parts.uri.path());
        let named = match &requested {
            Requested::Resource(target) => Some(!target.name.is_empty()),
            Requested::Unrouted(path) => Some(!path.name.is_empty()),
            _ => None,
        };
        let has_prefix = special.is_some();
        let verb = special.unwrap_or_else(|| match named {
            Some(named) => verb::of_resource(&parts.method, named, query),
            None => verb::of_path(&parts.method),
        });
        let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok());
        // A selector restricts nothing else, so it must give no right to anything else. Nor does
        // it count below a deprecated prefix, where watches of one object ignore it.
        let is_selective = matches!(verb, Verb::List | Verb::Watch | Verb::DeleteCollection);
        let selector = |name: &str| match is_selective && !has_prefix {
            true => query.text(name).to_owned(),
            false => String::new(),
        };
        let origin = match parts.extensions.get::<Origin>() {
            Some(origin) => Some(origin.clone()),
            None => header(Origin::HEADER).and_then(Origin::parse),
        };
        let attributes = Attributes {
            origin: origin.map(Arc::new),
            user_agent: header("user-agent").unwrap_or_default().to_owned(),
            label_selector: selector("labelSelector"),
            field_selector: selector("fieldSelector"),
            dry_run: query.get("dryRun").is_some(),
            audit_id: String::from_utf8_lossy(audit_id.as_bytes()).into_owned(),
            ..Attributes::new(Identity::anonymous(), verb, requested)
        };
        (destination, attributes)
    }

    /// The destination of a path, its subject, and the verb of every method, if it has a deprecated
    /// prefix.
    fn destination(
        &self,
        catalog: &Catalog,
        backends: &backend::Table,
        path: &str,
    ) -> (Destination, Requested, Option<Verb>) {
        // As in the reference, an escaped path is the one that it stands for.
        let decoded = decode_path(path).unwrap_or_else(|| path.into());
        let as_path = || Requested::Path(decoded.clone().into_owned());
        match backends.find(path) {
            Some(Found::Resource { backend, path, verb }) => {
                return (Destination::Backend(backend), Requested::Unrouted(path), verb);
            }
            Some(Found::Version(backend)) => {
                return (Destination::Backend(backend), as_path(), None);
            }
            Some(Found::Group(name)) => {
                return (Destination::Document(Route::ApiGroup(name)), as_path(), None);
            }
            None => {}
        }
        match route::route(catalog, path) {
            Ok(Route::Resource(found)) => {
                let ResourceRoute { target, watch, scoped } = found;
                let verb = watch.then_some(Verb::Watch);
                (Destination::Resource { watch, scoped }, Requested::Resource(target), verb)
            }
            Ok(document) => {
                let of_backend = match &document {
                    Route::OpenApi(rest) => rest
                        .strip_prefix("v3/")
                        .and_then(|key| backends.document(catalog, key).cloned()),
                    _ => None,
                };
                let destination = match of_backend {
                    Some(backend) => Destination::Backend(backend),
                    None => Destination::Document(document),
                };
                (destination, as_path(), None)
            }
            Err(miss) => {
                if let Some(group) = backends.registered_group(path) {
                    return (Destination::Document(Route::ApiGroup(group)), as_path(), None);
                }
                let page = self.fairness.as_ref().and_then(|_| Page::of(&decoded));
                let destination = match (self.extra.find(&decoded), page) {
                    (Some(handler), _) => Destination::Extra(handler),
                    (None, Some(page)) => Destination::FlowControl(page),
                    (None, None) => Destination::None(miss),
                };
                match route::unserved(path) {
                    Some(named) => (destination, Requested::Unrouted(named.path), named.verb),
                    None => (destination, as_path(), None),
                }
            }
        }
    }

    /// The stages within the deadline.
    async fn pass(
        &self,
        request: RoutedRequest<'_>,
        attributes: Attributes,
        body: RequestBody,
        begun: &OnceLock<Arc<Observation>>,
        classified: &OnceLock<Arc<Schema>>,
        changes: &Mutex<Vec<ChangeAnswer>>,
    ) -> Response<Body> {
        let (attributes, observation) =
            match self.identify(request.parts, request.style, attributes, begun).await {
                ControlFlow::Continue(identified) => identified,
                ControlFlow::Break(answer) => return answer,
            };
        let failed = failed(request.parts, request.style, observation);
        for interceptor in &self.interceptors {
            match interceptor.intercept(request.parts, &attributes).await {
                Intercepted::Continue => {}
                Intercepted::Fail(error) => return failed(&error),
                Intercepted::Change(change) => changes.lock().push(change),
            }
        }
        let permit = match self.admit(&request, &attributes, observation, classified).await {
            ControlFlow::Continue(permit) => permit,
            ControlFlow::Break(answer) => return answer,
        };
        if let Err(error) = self.storage_versions.check(&attributes) {
            return failed(&error);
        }
        let RoutedRequest { parts, query, style, catalog, backends, destination, deadline } =
            request;
        let forwarded = || Forwarded {
            parts,
            style,
            attributes: attributes.clone(),
            observation: observation.clone(),
            permit,
            deadline,
            drain: &self.drain,
        };
        let (watch, scoped) = match destination {
            Destination::Resource { watch, scoped } => (watch, scoped),
            Destination::Document(route) => {
                // Other endpoints do not wait for the store.
                let asks_store =
                    matches!(&route, Route::Health { endpoint, .. } if *endpoint != "readyz");
                let store = !asks_store || self.registry.store_answers().await;
                let served = self.served(catalog, backends);
                let document = self.document(&route, parts, &query, style, &served, store);
                return Box::pin(document).await.unwrap_or_else(|error| failed(&error));
            }
            Destination::Extra(handler) => {
                let mut request = Request::from_parts(parts.clone(), body);
                strip_credentials(request.headers_mut());
                request.extensions_mut().insert(attributes);
                return handler.handle(request).await;
            }
            Destination::Backend(backend) => {
                return forwarded().of_backend(&backend, body).await;
            }
            Destination::FlowControl(page) => {
                let with_details = query.flag("includeRequestDetails") == Some(true);
                let clock = self.registry.clock();
                let dump = self.fairness.as_ref().map(|f| f.dump(page, clock, with_details));
                return respond::text(StatusCode::OK, dump.unwrap_or_default());
            }
            Destination::None(unrouted) => {
                if let Some(peer) = self.peer(parts, &attributes).await {
                    return forwarded().of(&*peer, body).await;
                }
                return match unrouted {
                    Unrouted::Page => respond::page_not_found(),
                    Unrouted::Status(error) => failed(&error),
                };
            }
        };
        let served =
            attributes.target().map_err(|error| NotServed::Status(Box::new(error))).and_then(
                |target| verb::check(&parts.method, &attributes.verb, target, (watch, scoped)),
            );
        match served {
            Ok(()) => {}
            Err(NotServed::Page) => return respond::page_not_found(),
            Err(NotServed::Status(error)) => return failed(&error),
        }
        let exchange = Exchange {
            registry: &self.registry,
            parts,
            query: &query,
            style,
            attributes: &attributes,
            observation,
            large: &self.large,
            drain: &self.drain,
            agents: &self.agents,
            types: self.types,
            span: trace::verb(&attributes, parts),
        };
        match exchange.answer(body).await {
            Ok(response) => response,
            Err(Refusal(error)) => {
                let failure = Arc::from(error.0);
                observation.failed_with(&failure);
                let large = (&self.large, &attributes.identity.user);
                respond::refusal(failure, &parts.headers, style, self.types, large).await
            }
        }
    }

    /// A peer that serves a resource which is not served here.
    async fn peer(&self, parts: &Parts, attributes: &Attributes) -> Option<Arc<dyn Handler>> {
        let Requested::Unrouted(path) = &attributes.requested else { return None };
        match parts.headers.contains_key(PEER_PROXIED) {
            true => None,
            false => self.peers.find(path).await,
        }
    }

    /// Starts the observation of a request in process.
    ///
    /// # Errors
    ///
    /// 500 if its arrival has to be recorded, and cannot be.
    pub(crate) async fn observe(
        &self,
        request: &Arc<Attributes>,
    ) -> Result<Arc<Observation>, ApiError> {
        let observation = self.observers.begin(request, AuditSource::default);
        if let Some(stored) = observation.received()
            && let Err(error) = stored.await
        {
            observation.refused();
            return Err(ApiError::internal(error.to_string()));
        }
        Ok(observation)
    }

    /// Waits for start-up and routes a request in process.
    ///
    /// # Errors
    ///
    /// 503 before start-up is done, 404 and 405 for resources and verbs that are not served, 501
    /// for a backend's resources.
    pub(crate) async fn enter_in_process(
        &self,
        mut request: Attributes,
    ) -> Result<Arc<Attributes>, ApiError> {
        if !readiness::wait(&self.registry).await {
            let mut error = ApiError::new(503, Reason::ServiceUnavailable, STARTING);
            error.0.details = Some(Details { retry_after_seconds: 1, ..Details::default() });
            return Err(error);
        }
        if let Requested::Unrouted(path) = &mut request.requested {
            let path = std::mem::take(path);
            if self.backends.table().get(&path.group, &path.version).is_some() {
                return Err(only_over_http(&path));
            }
            let scoped = !path.namespace.is_empty();
            let target = route::find(&self.registry.catalog(), path, scoped)
                .map_err(Unrouted::into_error)?;
            request.requested = Requested::Resource(target);
        }
        match verb::check(&Method::GET, &request.verb, request.target()?, (false, false)) {
            Ok(()) => Ok(Arc::new(request)),
            Err(NotServed::Page) => Err(ApiError::no_route()),
            Err(NotServed::Status(error)) => Err(*error),
        }
    }

    /// The catalog and the backends combined, made once for each pair of them.
    fn served(&self, catalog: Arc<Catalog>, backends: Arc<backend::Table>) -> Arc<Served> {
        let generation = Generation::of(&catalog, &backends);
        if let Some(served) = &*self.served.lock()
            && served.generation() == generation
        {
            return served.clone();
        }
        let served = Arc::new(Served::new(catalog, backends));
        let former = self.served.lock().replace(served.clone());
        drop(former);
        served
    }
}

/// The error for a backend's resource in process: backends are called over HTTP only.
fn only_over_http(path: &ResourcePath) -> ApiError {
    let ResourcePath { group, version, resource, .. } = path;
    let message = format!(
        "{resource}.{version}.{group} is served by a backend, which is asked over HTTP only: use a client of this server"
    );
    ApiError::new(501, Reason::Unknown, message)
}

/// The answer before start-up is done.
fn unavailable() -> Response<Body> {
    let mut response = respond::plain(StatusCode::SERVICE_UNAVAILABLE, format!("{STARTING}\n"));
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}
