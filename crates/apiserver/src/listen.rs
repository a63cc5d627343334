//! Listeners: the server behind a socket, with TLS or without.
//!
//! # Theory
//!
//! A [`Listener`] is bound first and run later, by [`setpoint_serve`]; its run future owns every
//! connection. When `stop` is cancelled the listener takes no more connections, the server drains
//! (watches end between two events), connections finish what they are answering, and after
//! [`DRAIN_MAX`] the rest is dropped.
//!
//! A peer that does nothing costs a bounded time: the handshake, the head of a request and (through
//! the request's deadline) its body each end after a while, as does a connection that says nothing
//! at all or takes in nothing of its answer. Of [`CONNECTIONS_MAX`] connections
//! [`UNAUTHENTICATED_MAX`] may be unauthenticated, and the oldest of those ends when there are
//! more: a connection is authenticated by its client certificate, or by the first request with a
//! token.
//!
//! Over TLS a verified client certificate says who sends a request (common name and organizations),
//! else a token does. Without TLS everyone is `system:masters`, so that such a listener is for this
//! machine only, and refuses what a foreign web page may have sent.

mod pki;
mod same_origin;
mod subject;
mod tls;

pub use pki::{Loaded, Pki, PkiError, PkiFiles};
pub use setpoint_serve::Limits;
pub use setpoint_serve::certificate::{
    Certificate, CertificateError, CertificateFiles, CertificateWatcher, CurrentCertificate,
    read_chain, read_file,
};
pub use tls::Tls;

use crate::Identity;
use crate::filter::authenticate::Credentials;
use crate::server::ApiServer;
use http::Request;
use setpoint_serve::tls::PeerCertificate;
use setpoint_serve::{Received, Server};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Connections at once, per listener. Four thousand idle HTTP/2 connections are some hundred MiB;
/// more clients than that belong behind a proxy.
pub const CONNECTIONS_MAX: usize = 4096;

/// How many of them may be unauthenticated: a quarter. A new client has its place for as long as it
/// takes to connect so many others, and needs it for one handshake and one request.
pub const UNAUTHENTICATED_MAX: usize = CONNECTIONS_MAX / 4;

/// How long connections may finish what they are answering after `stop`.
pub const DRAIN_MAX: Duration = Duration::from_secs(10);

/// How long the head of a request may take, and the first one of a connection to come: 32 s, as
/// kube-apiserver's `ReadHeaderTimeout`.
const HEAD_MAX: Duration = Duration::from_secs(32);
/// How long a connection may be without a request, however it answers pings: 90 s, as
/// kube-apiserver's `IdleTimeout`.
const IDLE_MAX: Duration = Duration::from_secs(90);
/// How much is read of a body that an answer did not need: 256 KiB, as Go's server.
const LEFTOVER_BYTES_MAX: usize = 256 * 1024;

/// What a listener's peers may cost unless [`Listener::limits`] says otherwise.
pub const LIMITS: Limits = Limits {
    connections_max: CONNECTIONS_MAX,
    unauthenticated_max: Some(UNAUTHENTICATED_MAX),
    head_max: HEAD_MAX,
    idle_max: IDLE_MAX,
    http2_idle_max: Some(IDLE_MAX),
    leftover_bytes_max: LEFTOVER_BYTES_MAX,
    drain_max: DRAIN_MAX,
};

/// Why a listener cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// The address cannot be bound.
    #[error("listen on {address}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Without authentication only this machine may get in.
    #[error("{address} is not a loopback address: only those may be served without authentication")]
    NotLoopback {
        /// The address.
        address: SocketAddr,
    },
    /// The certificates do not make a TLS server.
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

/// How a connection says who sends its requests.
#[derive(Debug, Clone)]
enum Peers {
    /// Without TLS: everyone is this identity.
    All(Identity),
    /// With TLS: the client certificate says so, or a token.
    Tls {
        /// TLS.
        config: Arc<rustls::ServerConfig>,
        /// Tokens of this listener's own.
        credentials: Credentials,
    },
}

impl Peers {
    /// Who sends a request, if the connection knows.
    fn identify(&self, request: &mut Request<Received>) -> Option<Identity> {
        match self {
            Self::All(identity) => Some(identity.clone()),
            Self::Tls { credentials, .. } => {
                let peer = request.extensions_mut().remove::<PeerCertificate>();
                peer.and_then(|peer| subject::identity(&peer.0))
                    .or_else(|| credentials.authenticate(request.headers()))
            }
        }
    }
}

impl Listener {
    /// Listens with TLS (HTTP/2 and HTTP/1.1), as a [`Tls`] or a [`Pki`] has it. Port 0 picks a
    /// free one.
    ///
    /// # Errors
    ///
    /// When the address cannot be bound or the certificates do not fit.
    pub async fn secure(
        server: ApiServer,
        address: SocketAddr,
        tls: impl Into<Tls>,
    ) -> Result<Self, ListenError> {
        let config = tls.into().config(server.registry().clock().clone())?;
        let peers = Peers::Tls { config: Arc::new(config), credentials: Credentials::none() };
        Self::bind(server, address, peers).await
    }

    /// Tokens that a listener with TLS accepts besides the server's. Default: none.
    pub fn credentials(mut self, accepted: Credentials) -> Self {
        if let Peers::Tls { credentials, .. } = &mut self.peers {
            *credentials = accepted;
        }
        self
    }

    /// What peers may cost. Default: [`LIMITS`].
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Listens without TLS and without authentication, on a loopback address only: whoever connects
    /// is in `system:masters`. Requests for a host other than `localhost`, `127.0.0.1` and `[::1]`,
    /// and of pages of another origin, are answered with 403.
    ///
    /// # Errors
    ///
    /// When the address is not a loopback one or cannot be bound.
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

    /// The address it is bound to, with the port that was picked.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop`, then until connections have finished or [`DRAIN_MAX`] is over. Dropping
    /// it drops every connection.
    pub async fn run(self, stop: CancellationToken) {
        let Self { server: api, socket, peers, limits, .. } = self;
        let mut server = Server::new(socket, limits);
        if let Peers::Tls { config, .. } = &peers {
            server = server.tls(config.clone());
        }
        let of_requests = api.clone();
        let answer = move |mut request: Request<Received>| {
            let refused = match &peers {
                Peers::All(_) => same_origin::refuse(&request),
                Peers::Tls { .. } => None,
            };
            // What a peer may not bring itself: its connection says who it is.
            if let Some(identity) = peers.identify(&mut request) {
                request.extensions_mut().insert(identity);
            }
            let api = of_requests.clone();
            async move {
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
            _ = served => {}
            // Cancel safe: it only looks, and ends with the connections.
            () = api.end_slow_answers() => {}
        }
    }
}
