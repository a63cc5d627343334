//! Listeners: the server behind a socket, with TLS or without.
//!
//! # Theory
//!
//! A [`Listener`] is bound first and run later, by [`setpoint_serve`]; its run future owns every
//! connection. When `stop` is cancelled the listener accepts no more connections, the server drains
//! (watches end between two events), connections finish their present answers, and after
//! [`DRAIN_MAX`] the rest is dropped.
//!
//! An idle or stalled peer has a bounded cost. The handshake, the head of a request and (through
//! the request's deadline) its body each have a timeout, as has a connection that sends nothing or
//! reads nothing of its answer. Of [`CONNECTIONS_MAX`] connections, at most [`UNAUTHENTICATED_MAX`]
//! may be unauthenticated; beyond that, the oldest of those is closed. A connection is
//! authenticated by its client certificate, or by the first request with a token.
//!
//! Over TLS, the headers of a front proxy identify the user ([`Listener::front_proxy`]), or a
//! client certificate that an authority has signed (common name and organizations), or a token.
//! Without TLS every client is `system:masters`. Such a listener therefore binds to a loopback
//! address only, and refuses requests that a foreign web page may have sent.

mod named;
mod pki;
mod same_origin;
mod tls;

pub use named::NamedCertificate;
pub use pki::{FrontProxy, Loaded, Pki, PkiError, PkiFiles};
pub use setpoint_serve::Limits;
pub use setpoint_serve::certificate::{
    Certificate, CertificateError, CertificateFiles, CertificateWatcher, CurrentCertificate,
    read_chain, read_file, read_file_async,
};
pub use setpoint_serve::tls::{TlsPolicy, TlsPolicyError};
pub use tls::Tls;

use crate::Identity;
use crate::figures::ServerFigures;
use crate::filter::authenticate::{
    Authentication, Authenticator as _, ClientAuthorities, Credentials, RequestHeader,
    UnknownCertificate, authenticated,
};
use crate::server::ApiServer;
use http::Request;
use http::request::Parts;
use setpoint_object::error::chain;
use setpoint_object::time::Clock;
use setpoint_serve::tls::PeerCertificate;
use setpoint_serve::{Received, STREAMS_MAX, Server};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Maximum connections per listener. Four thousand idle HTTP/2 connections take some hundred MiB;
/// more clients than that belong behind a proxy.
pub const CONNECTIONS_MAX: usize = 4096;

/// Maximum unauthenticated connections: a quarter. A new client keeps its connection until this
/// many others have connected, and needs it for one handshake and one request only.
pub const UNAUTHENTICATED_MAX: usize = CONNECTIONS_MAX / 4;

/// How long connections may finish their present answers after `stop`.
pub const DRAIN_MAX: Duration = Duration::from_secs(10);

/// Timeout for the head of a request, also for the first one of a connection: 32 s, as
/// kube-apiserver's `ReadHeaderTimeout`.
const HEAD_MAX: Duration = Duration::from_secs(32);
/// How long a connection may be without a request, even if it answers pings: 90 s, as
/// kube-apiserver's `IdleTimeout`.
const IDLE_MAX: Duration = Duration::from_secs(90);
/// How much of an unread request body is read after the answer: 256 KiB, as Go's server.
const LEFTOVER_BYTES_MAX: usize = 256 * 1024;

/// The default limits of a listener's peers; see [`Listener::limits`].
pub const LIMITS: Limits = Limits {
    connections_max: CONNECTIONS_MAX,
    unauthenticated_max: Some(UNAUTHENTICATED_MAX),
    head_max: HEAD_MAX,
    idle_max: IDLE_MAX,
    http2_idle_max: Some(IDLE_MAX),
    streams_max: STREAMS_MAX,
    leftover_bytes_max: LEFTOVER_BYTES_MAX,
    drain_max: DRAIN_MAX,
    pace: 1,
};

/// Why a listener cannot be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// The address cannot be bound.
    #[error("listen on {address}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// Without authentication, only a loopback address is allowed.
    #[error("{address} is not a loopback address: only those may be served without authentication")]
    NotLoopback {
        /// The address.
        address: SocketAddr,
    },
    /// The certificates are not valid for a TLS server.
    #[error("set up TLS")]
    Tls(#[from] PkiError),
}

/// A bound listener.
#[derive(Debug)]
#[must_use]
pub struct Listener {
    server: ApiServer,
    socket: TcpListener,
    address: SocketAddr,
    peers: Peers,
    limits: Limits,
}

/// How the connections of a listener identify users.
#[derive(Debug, Clone)]
enum Peers {
    /// Without TLS: every client is this identity.
    All(Identity),
    /// With TLS.
    Tls(Box<TlsPeers>),
}

/// With TLS: by front proxy, client certificate or token.
#[derive(Debug, Clone)]
struct TlsPeers {
    tls: Tls,
    clock: Clock,
    /// Authorities of the users' certificates.
    authorities: Option<ClientAuthorities>,
    front_proxy: Option<Arc<RequestHeader>>,
    /// Tokens of this listener only.
    credentials: Credentials,
    figures: ServerFigures,
}

impl TlsPeers {
    /// The user of a request, if the connection or a token of the listener identifies it. The
    /// headers of a front proxy are removed.
    async fn identify(&self, request: &mut Parts) -> Option<Identity> {
        let mut identity = None;
        if let Some(front_proxy) = &self.front_proxy {
            identity = match front_proxy.authenticate(request).await {
                Authentication::User(identity) => Some(authenticated(identity)),
                _ => None,
            };
            front_proxy.strip(&mut request.headers);
        }
        let peer = request.extensions.remove::<PeerCertificate>();
        if identity.is_some() {
            return identity;
        }
        if let Some(peer) = peer {
            let now = self.clock.now();
            let verified =
                self.authorities.as_ref().and_then(|authorities| authorities.user(&peer, now));
            if let Some((user, until)) = verified {
                if let Some(until) = until {
                    self.figures.certificate(until.since(now));
                }
                return Some(user);
            }
            request.extensions.insert(UnknownCertificate);
        }
        self.credentials.authenticate(&request.headers)
    }
}

impl Listener {
    /// Listens with TLS (HTTP/2 and HTTP/1.1), with the certificates of a [`Tls`] or a [`Pki`].
    /// Port 0 picks a free port.
    ///
    /// # Errors
    ///
    /// The address cannot be bound, or the certificates are not valid.
    pub async fn secure(
        server: ApiServer,
        address: SocketAddr,
        tls: impl Into<Tls>,
    ) -> Result<Self, ListenError> {
        let tls = tls.into();
        let authorities = tls.authorities()?;
        let clock = server.registry().clock().clone();
        // An unusable certificate is found before the address is bound.
        tls.clone().source(clock.clone(), Vec::from_iter(authorities.clone()))?;
        let credentials = Credentials::none();
        let figures = server.figures();
        let peers = TlsPeers { tls, clock, authorities, front_proxy: None, credentials, figures };
        Self::bind(server, address, Peers::Tls(Box::new(peers))).await
    }

    /// Tokens that a listener with TLS accepts in addition to the server's. Default: none.
    pub fn credentials(mut self, accepted: Credentials) -> Self {
        if let Peers::Tls(peers) = &mut self.peers {
            self.server.review_also(&accepted);
            peers.credentials = accepted;
        }
        self
    }

    /// A front proxy whose headers name the user. They are checked before certificates and tokens,
    /// and its headers are removed from every request. Only with TLS. Default: none.
    pub fn front_proxy(mut self, front_proxy: Arc<RequestHeader>) -> Self {
        if let Peers::Tls(peers) = &mut self.peers {
            peers.front_proxy = Some(front_proxy);
        }
        self
    }

    /// The limits of peers. Default: [`LIMITS`].
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Listens without TLS and without authentication, on a loopback address only: every client is
    /// in `system:masters`. Requests for a host other than `localhost`, `127.0.0.1` and `[::1]`,
    /// and requests of pages of another origin, are answered with 403. Clients may begin with the
    /// preface of HTTP/2.
    ///
    /// # Errors
    ///
    /// The address is not a loopback address or cannot be bound.
    pub async fn insecure(server: ApiServer, address: SocketAddr) -> Result<Self, ListenError> {
        if !address.ip().is_loopback() {
            return Err(ListenError::NotLoopback { address });
        }
        Self::bind(server, address, Peers::All(Identity::unsecured())).await
    }

    async fn bind(
        server: ApiServer,
        address: SocketAddr,
        peers: Peers,
    ) -> Result<Self, ListenError> {
        let bind = |source| ListenError::Bind { address, source };
        let socket = TcpListener::bind(address).await.map_err(bind)?;
        let address = socket.local_addr().map_err(bind)?;
        Ok(Self { server, socket, address, peers, limits: LIMITS })
    }

    /// The address it is bound to, with the actual port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop`, then until connections have finished or [`DRAIN_MAX`] has passed.
    /// Dropping the future drops every connection.
    pub async fn run(self, stop: CancellationToken) {
        let Self { server: api, socket, peers, limits, .. } = self;
        let mut server = Server::new(socket, limits).plain_http2();
        if let Peers::Tls(peers) = &peers {
            let proxies = peers.front_proxy.as_ref().map(|proxy| proxy.authorities().clone());
            let authorities = peers.authorities.clone().into_iter().chain(proxies).collect();
            match peers.tls.clone().source(peers.clock.clone(), authorities) {
                Ok(source) => {
                    let failed = peers.figures.failed_handshakes();
                    server = server
                        .tls(source)
                        .address_certificates(peers.tls.of_addresses())
                        .count_failed_handshakes(failed);
                }
                // It was made before.
                Err(error) => {
                    tracing::error!(error = chain(&error), "set up TLS");
                    return;
                }
            }
        }
        let of_requests = api.clone();
        let peers = Arc::new(peers);
        let answer = move |request: Request<Received>| {
            let (api, peers) = (of_requests.clone(), peers.clone());
            async move {
                let (mut parts, body) = request.into_parts();
                // Requests cannot set this extension: only the connection identifies the user.
                let identity = match &*peers {
                    Peers::All(identity) => Some(identity.clone()),
                    Peers::Tls(peers) => peers.identify(&mut parts).await,
                };
                if let Some(identity) = identity {
                    parts.extensions.insert(identity);
                }
                let ending = api.refusal(&parts);
                let request = Request::from_parts(parts, body);
                let refused = ending.or_else(|| match &*peers {
                    Peers::All(_) => same_origin::refuse(&request),
                    Peers::Tls(_) => None,
                });
                match refused {
                    Some(refused) => refused,
                    None => api.serve(request).await,
                }
            }
        };
        let drain = async {
            stop.cancelled().await;
            api.drain();
        };
        let served = async { tokio::join!(server.run(answer, stop.clone()), drain) };
        tokio::select! {
            biased;
            _ = served => {}
            // Cancel safe: it only checks, and ends with the connections.
            () = api.end_slow_answers() => {}
        }
    }
}
