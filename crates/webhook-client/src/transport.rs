//! HTTP to servers at addresses that the caller chooses: what a proxy needs.

use crate::client::{cause, hyper_text};
use crate::config::ConfigError;
use crate::connect::{Address, ConnectError, Stream, handshake};
use crate::tasks::Tasks;
use crate::tls::{self, Identity, Roots, system_roots};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::uri::Scheme;
use http::{Request, Response, Uri, Version};
use http_body::Body;
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::rt::TokioTimer;
use rustls::ClientConfig;
use setpoint_dial::Dialer;
use setpoint_object::time::Clock;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::timeout;

/// Bytes of an answer over HTTP/2 that may wait for a slow reader: 256 KiB. Then the server waits.
const STREAM_BYTES_MAX: u32 = 256 << 10;
/// The same for all answers of a connection together, so that slow readers do not block others.
/// The number of requests at a time bounds it in practice.
const CONNECTION_BYTES_MAX: u32 = 1 << 30;
/// How long an idle connection is held: 90 s, as Go's default.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// Idle connections per address.
const IDLE_CONNECTIONS_MAX: usize = 25;
/// When a silent HTTP/2 connection is checked, and how long the server has to answer, as in Go.
const PING_AFTER: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// How long a connection may take to be made: 30 s, as Go's default.
const DIAL_MAX: Duration = Duration::from_secs(30);
/// How long a TLS handshake may take: 10 s, as Go's default.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// Interim answers (1xx) before an answer: a hundred. An endless row of them is no answer.
const INTERIM_ANSWERS_MAX: usize = 100;

/// Whose certificates a client accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// Those of authorities in PEM. A text without certificates is an error.
    Bundle(Bytes),
    /// Those of the system's authorities.
    System,
    /// All certificates are accepted: the server is not authenticated.
    Anyone,
}

impl Trust {
    /// The configuration of TLS, with a client certificate. Servers are asked for HTTP/2 or
    /// HTTP/1.1.
    ///
    /// # Errors
    ///
    /// The certificates cannot be used.
    pub async fn tls(
        &self,
        identity: Option<&Identity>,
        clock: &Clock,
    ) -> Result<ClientConfig, ConfigError> {
        let roots = match self {
            Self::Bundle(pem) => Some(Roots::parse(pem)?),
            Self::System => Some(system_roots().await?),
            Self::Anyone => None,
        };
        tls::config(roots, identity, clock)
    }
}

/// How a request travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// With others on one connection, if the server speaks HTTP/2.
    Shared,
    /// Over HTTP/1.1 on a connection that no other request uses at the same time: for requests that
    /// last, and for upgrades.
    Own,
}

/// Why a request has no answer, in the words of Go's HTTP client: `EOF`, `dial tcp 127.0.0.1:1:
/// connect: connection refused`. Whether the server has seen the request is not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TransportError(pub String);

impl TransportError {
    /// Why an answer broke off.
    pub fn of_body(error: &hyper::Error) -> Self {
        Self(hyper_text(error))
    }
}

/// HTTP to one server, wherever it is, or to all servers of one kind. Connections are pooled by
/// address, and closed when it is dropped.
pub struct Transport<B> {
    shared: legacy::Client<Connector, B>,
    own: legacy::Client<Connector, B>,
    _tasks: Tasks,
}

impl<B> fmt::Debug for Transport<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Transport")
    }
}

impl<B> Transport<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    /// A transport to a server whose certificate has this name; `None`: the host of its address.
    /// Connects when it is first used, with the dialer.
    ///
    /// # Errors
    ///
    /// The certificates cannot be used.
    pub async fn new(
        trust: &Trust,
        server_name: Option<&str>,
        identity: Option<&Identity>,
        clock: &Clock,
        dialer: Dialer,
    ) -> Result<Self, ConfigError> {
        Ok(Self::with_tls(trust.tls(identity, clock).await?, server_name, dialer))
    }

    /// The same with a configuration of TLS: whom to trust, and the certificate to show. Its
    /// protocols are replaced by those of the lanes.
    pub fn with_tls(mut tls: ClientConfig, server_name: Option<&str>, dialer: Dialer) -> Self {
        let tasks = Tasks::default();
        let client = |tls: ClientConfig| {
            let server_name = server_name.map(Arc::from);
            let connector = Connector { tls: Arc::new(tls), server_name, dialer: dialer.clone() };
            legacy::Client::builder(tasks.spawner())
                .timer(TokioTimer::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(IDLE_TIMEOUT)
                .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
                .http2_initial_stream_window_size(STREAM_BYTES_MAX)
                .http2_initial_connection_window_size(CONNECTION_BYTES_MAX)
                .http2_keep_alive_interval(PING_AFTER)
                .http2_keep_alive_timeout(PING_TIMEOUT)
                .build(connector)
        };
        let mut http1 = tls.clone();
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        http1.alpn_protocols = vec![b"http/1.1".to_vec()];
        Self { shared: client(tls), own: client(http1), _tasks: tasks }
    }

    /// Sends a request to an address, and returns the answer as soon as its head is there. The URI
    /// has the path and the query, and perhaps the scheme `http`: otherwise it is `https`. Without
    /// a header `Host`, it is the address.
    ///
    /// # Errors
    ///
    /// [`TransportError`]; also after 30 seconds without a connection, after 10 seconds of a TLS
    /// handshake, and after a hundred interim answers (1xx). Dropping the future, or the answer,
    /// ends the request.
    pub async fn send(
        &self,
        address: &Address,
        mut request: Request<B>,
        lane: Lane,
    ) -> Result<Response<Incoming>, TransportError> {
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        let scheme = request.uri().scheme().unwrap_or(&Scheme::HTTPS).clone();
        let uri = Uri::builder().scheme(scheme).authority(address.to_string());
        let uri = uri.path_and_query(path).build();
        *request.uri_mut() = uri.map_err(|error| TransportError(error.to_string()))?;
        *request.version_mut() = Version::HTTP_11;
        let client = match lane {
            Lane::Shared => &self.shared,
            Lane::Own => &self.own,
        };
        let flood = stop_interim_answers(&mut request);
        tokio::select! {
            // Cancel safe: the request ends.
            answer = client.request(request) => {
                answer.map_err(|error| TransportError(cause(&error)))
            }
            () = flood.notified() => {
                Err(TransportError("net/http: too many 1xx informational responses".to_owned()))
            }
        }
    }
}

/// Notifies when there have been more than [`INTERIM_ANSWERS_MAX`].
fn stop_interim_answers<B>(request: &mut Request<B>) -> Arc<Notify> {
    let (flood, n_interim) = (Arc::new(Notify::new()), AtomicUsize::new(0));
    let notified = flood.clone();
    hyper::ext::on_informational(request, move |_| {
        if n_interim.fetch_add(1, Ordering::Relaxed) == INTERIM_ANSWERS_MAX {
            notified.notify_one();
        }
    });
    flood
}

/// Connects to the address in a request's URI.
#[derive(Clone)]
struct Connector {
    tls: Arc<ClientConfig>,
    server_name: Option<Arc<str>>,
    dialer: Dialer,
}

impl tower_service::Service<Uri> for Connector {
    type Response = Stream;
    type Error = ConnectError;
    type Future = BoxFuture<'static, Result<Stream, ConnectError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let Self { tls, server_name, dialer } = self.clone();
        Box::pin(async move {
            let address = Address::of(&uri);
            let is_plain = uri.scheme() == Some(&Scheme::HTTP);
            let late = |_| ConnectError(format!("dial tcp {address}: i/o timeout"));
            let dialed = timeout(DIAL_MAX, dialer.dial(&address.host, address.port)).await;
            let socket = dialed.map_err(late)??;
            if is_plain {
                return Ok(Stream::plain(socket));
            }
            let late = |_| ConnectError("net/http: TLS handshake timeout".to_owned());
            let name = server_name.as_deref().unwrap_or(&address.host);
            timeout(HANDSHAKE_MAX, handshake(tls, name, socket)).await.map_err(late)?
        })
    }
}
