//! Webhooks, and the pool of HTTPS clients below them.

use crate::config::{ClientConfig, ConfigError, Endpoint};
use crate::connect::{ConnectError, Connector, ServiceResolver, io_text};
use crate::credential::Credential;
use crate::error::CallError;
use crate::response::{PERMIT_BYTES, ReadError, interpret, read, retry_after};
use crate::tasks::Tasks;
use crate::tls::{self, Identity, Roots, system_roots};
use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Method, Request};
use http_body_util::Full;
use hyper_util::client::legacy;
use hyper_util::rt::TokioTimer;
use parking_lot::Mutex;
use serde_json::Value;
use setpoint_dial::{Dialer, EgressSelector, EgressType};
use setpoint_object::bounded::{self, LruCache};
use setpoint_object::time::Clock;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OnceCell, Semaphore};

/// Maximum number of calls at a time; further ones wait in order of arrival, within their timeouts.
///
/// 256: with small reviews it is far more than a server needs, and bounds the memory of a server
/// whose webhooks are stuck.
pub const CALLS_MAX: usize = 256;
/// Maximum number of calls at a time to one server, so that a slow one leaves room for others.
pub const CALLS_PER_SERVER_MAX: usize = 64;
/// Maximum bytes of a request: 16 MiB. A review has at most two objects of 3 MiB, a conversion at
/// most 4 MiB of objects or a single one.
pub const REQUEST_BYTES_MAX: usize = 16 << 20;
/// Maximum bytes of an answer, decompressed: 16 MiB. Four times the largest batch of a conversion.
pub const RESPONSE_BYTES_MAX: usize = 16 << 20;
/// Maximum bytes of all answers that are being read: 256 MiB. Beyond it, calls fail.
pub const READ_BYTES_MAX: usize = 256 << 20;
/// Maximum number of pooled HTTPS clients; the one unused for longest makes room.
pub const CLIENTS_MAX: usize = 256;

/// Idle connections per server: 25, as Kubernetes' `MaxIdleConnsPerHost`.
const IDLE_CONNECTIONS_MAX: usize = 25;
/// How long an idle connection is held: 90 s, as Go's default.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// Maximum repetitions of a request that a server asks for: ten, as in client-go.
const RETRIES_MAX: usize = 10;
/// How webhooks know their caller.
const AGENT: &str = "kube-apiserver-admission";

/// Makes webhooks, which share connections and limits. Cheap to clone. Connections are closed when
/// the last clone and the last [`Webhook`] are dropped.
#[derive(Debug, Clone)]
pub struct Webhooks {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    resolver: Arc<dyn ServiceResolver>,
    identity: Option<Identity>,
    egress: EgressSelector,
    clock: Clock,
    tasks: Tasks,
    /// Bounded by [`CLIENTS_MAX`].
    pool: Mutex<LruCache<Key, Arc<HttpClient>>>,
    /// Certificates of the system, read when first needed.
    system_roots: OnceCell<Result<Roots, ConfigError>>,
    calls: Semaphore,
    room: Semaphore,
}

/// A server, whom to trust, and who calls.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    endpoint: Endpoint,
    ca_bundle: Bytes,
    credential: Option<Credential>,
}

/// A pooled HTTPS client of one server.
struct HttpClient {
    http: legacy::Client<Connector, Full<Bytes>>,
    calls: Semaphore,
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HttpClient")
    }
}

/// One webhook. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Webhook {
    inner: Arc<Inner>,
    config: Arc<Result<ClientConfig, ConfigError>>,
    credential: Option<Credential>,
}

impl Webhooks {
    /// Without webhooks yet. Certificates are checked at the clock's time.
    pub fn new(resolver: Arc<dyn ServiceResolver>, clock: Clock) -> Self {
        Self::with(resolver, clock, None, EgressSelector::default())
    }

    /// As [`new`](Self::new), with a certificate for webhooks that ask for one. Webhooks behind
    /// services are [of the cluster](EgressType::Cluster), those at URLs
    /// [of the control plane](EgressType::ControlPlane).
    pub fn with(
        resolver: Arc<dyn ServiceResolver>,
        clock: Clock,
        identity: Option<Identity>,
        egress: EgressSelector,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                resolver,
                identity,
                egress,
                clock,
                tasks: Tasks::default(),
                pool: Mutex::new(bounded::lru(CLIENTS_MAX)),
                system_roots: OnceCell::new(),
                calls: Semaphore::new(CALLS_MAX),
                room: Semaphore::new(READ_BYTES_MAX / PERMIT_BYTES),
            }),
        }
    }

    /// The webhook of a `clientConfig` ([`ClientConfig::from_json`]). Connects when it is first
    /// called. A wrong configuration is the error of each call.
    pub fn webhook(&self, config: &Value) -> Webhook {
        self.webhook_as(config, |_| None)
    }

    /// The same with the credential that `find` has for the webhook's server: `host:port`, or
    /// `name.namespace.svc:port`.
    pub fn webhook_as(
        &self,
        config: &Value,
        find: impl FnOnce(&str) -> Option<Credential>,
    ) -> Webhook {
        let config = ClientConfig::from_json(config);
        let credential = config.as_ref().ok().and_then(|config| find(&config.endpoint.to_string()));
        Webhook { inner: self.inner.clone(), config: Arc::new(config), credential }
    }
}

impl Webhook {
    /// Posts a JSON body and returns the body of the answer, which is not empty. `traceparent` is
    /// the value of that header (W3C Trace Context), if the call is traced.
    ///
    /// # Errors
    ///
    /// [`CallError`]. Whether the webhook has seen the request is not known then.
    ///
    /// Dropping the future ends the call.
    pub async fn call(
        &self,
        body: Bytes,
        timeout: Duration,
        traceparent: Option<&str>,
    ) -> Result<Bytes, CallError> {
        let config = self.config.as_ref().as_ref().map_err(Clone::clone)?;
        if body.len() > REQUEST_BYTES_MAX {
            return Err(CallError::RequestTooLarge(REQUEST_BYTES_MAX));
        }
        let url = config.url_with(timeout);
        let call = self.inner.call(config, self.credential.as_ref(), &url, body, traceparent);
        match tokio::time::timeout(timeout, call).await {
            Ok(answered) => answered,
            Err(_) => Err(CallError::Timeout { url }),
        }
    }
}

impl Inner {
    async fn call(
        &self,
        config: &ClientConfig,
        credential: Option<&Credential>,
        url: &str,
        body: Bytes,
        traceparent: Option<&str>,
    ) -> Result<Bytes, CallError> {
        let broken = |cause: String| CallError::Transport { url: url.to_owned(), cause };
        let closed = |error: tokio::sync::AcquireError| broken(error.to_string());
        let client = self.client(config, credential).await?;
        let _at_server = client.calls.acquire().await.map_err(closed)?;
        let _in_sum = self.calls.acquire().await.map_err(closed)?;
        for attempt in 0.. {
            let mut request = Request::builder()
                .method(Method::POST)
                .uri(url)
                .header(CONTENT_TYPE, "application/json")
                .header(ACCEPT, "application/json, */*")
                .header(ACCEPT_ENCODING, "gzip")
                .header(USER_AGENT, AGENT)
                .body(Full::new(body.clone()))
                .map_err(|error| broken(error.to_string()))?;
            if let Some(parent) = traceparent.and_then(|text| HeaderValue::try_from(text).ok()) {
                request.headers_mut().insert("traceparent", parent);
            }
            if let Some(credential) = credential {
                request.headers_mut().extend(credential.headers().await.map_err(broken)?);
            }
            let answer = client.http.request(request).await;
            let answer = answer.map_err(|error| broken(cause(&error)))?;
            let (head, incoming) = answer.into_parts();
            let code = head.status.as_u16();
            let answer = match read(&head.headers, incoming, &self.room).await {
                Ok(answer) => answer,
                Err(ReadError::Call(error)) => return Err(error),
                Err(ReadError::Broken(error)) => return Err(broken(hyper_text(&error))),
                Err(ReadError::Gzip(error)) => return Err(broken(format!("gzip: {error}"))),
            };
            match retry_after(code, &head.headers) {
                Some(pause) if attempt < RETRIES_MAX => tokio::time::sleep(pause).await,
                _ => return interpret(code, &head.headers, answer).await,
            }
        }
        Err(CallError::Busy)
    }

    /// The pooled client of a server.
    async fn client(
        &self,
        config: &ClientConfig,
        credential: Option<&Credential>,
    ) -> Result<Arc<HttpClient>, CallError> {
        let key = Key {
            endpoint: config.endpoint.clone(),
            ca_bundle: config.ca_bundle.clone(),
            credential: credential.cloned(),
        };
        if let Some(found) = self.pool.lock().get(&key).cloned() {
            return Ok(found);
        }
        let mut tls = self.tls(config).await?;
        if let Some(certificate) = credential.and_then(Credential::certificate) {
            tls.client_auth_cert_resolver = certificate;
        }
        let tls = Arc::new(tls);
        let connector = Connector {
            endpoint: config.endpoint.clone(),
            server_name: config.server_name(),
            tls,
            resolver: self.resolver.clone(),
            dialer: self.dialer(&config.endpoint),
            turn: Arc::default(),
        };
        let http = legacy::Client::builder(self.tasks.spawner())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
            .build(connector);
        let client = HttpClient { http, calls: Semaphore::new(CALLS_PER_SERVER_MAX) };
        // Another call may have been faster.
        Ok(self.pool.lock().get_or_insert(key, || Arc::new(client)).clone())
    }

    fn dialer(&self, endpoint: &Endpoint) -> Dialer {
        self.egress.dialer(match endpoint {
            Endpoint::Host(..) => EgressType::ControlPlane,
            Endpoint::Service(_) => EgressType::Cluster,
        })
    }

    async fn tls(&self, config: &ClientConfig) -> Result<rustls::ClientConfig, ConfigError> {
        let roots = match config.ca_bundle.is_empty() {
            true => self.system_roots.get_or_init(system_roots).await.clone()?,
            false => Roots::parse(&config.ca_bundle)?,
        };
        tls::config(Some(roots), self.identity.as_ref(), &self.clock)
    }
}

/// The cause of a failed request, in Go's words where they are known.
pub(crate) fn cause(error: &legacy::Error) -> String {
    let mut source: Option<&(dyn Error + 'static)> = error.source();
    let mut last = error.to_string();
    while let Some(error) = source {
        if let Some(connect) = error.downcast_ref::<ConnectError>() {
            return connect.0.clone();
        }
        if let Some(error) = error.downcast_ref::<hyper::Error>() {
            return hyper_text(error);
        }
        last = error.to_string();
        source = error.source();
    }
    last
}

pub(crate) fn hyper_text(error: &hyper::Error) -> String {
    if error.is_incomplete_message() || error.is_closed() || error.is_canceled() {
        return "EOF".to_owned();
    }
    let source = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
    source.map_or_else(|| error.to_string(), io_text)
}
