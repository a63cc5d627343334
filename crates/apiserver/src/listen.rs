//! Listeners: the server behind a socket, with TLS or without.
//!
//! # Theory
//!
//! A [`Listener`] is bound first and run later, by [`setpoint_serve`]; its run future owns every connection. When `stop` is cancelled the listener takes no more connections, the server drains (watches end between two
//! events), connections finish what they are answering, and after [`DRAIN_MAX`] the rest is dropped.
//!
//! A peer that does nothing costs a bounded time: the handshake, the head of a request and (through the request's deadline) its
//! body each end after a while, as does a connection that says nothing at all or takes in nothing of its answer. Peers beyond [`CONNECTIONS_MAX`] wait to be accepted.

mod pki;

pub use pki::{Loaded, Pki, PkiError, PkiFiles};

use crate::Identity;
use crate::server::ApiServer;
use http::Request;
use rustls::pki_types::CertificateDer;
use setpoint_serve::tls::PeerCertificate;
use setpoint_serve::{Limits, Received, Server};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Connections at once, per listener. Four thousand idle HTTP/2 connections are some hundred MiB; more clients than that belong
/// behind a proxy.
pub const CONNECTIONS_MAX: usize = 4096;

/// How long connections may finish what they are answering after `stop`.
pub const DRAIN_MAX: Duration = Duration::from_secs(10);

/// How long the head of a request may take, and the first one of a connection to begin.
const HEAD_MAX: Duration = Duration::from_secs(60);
/// How long an HTTP/1 connection may idle after a request. Clients keep one HTTP/2 connection for as long as they live, and answer
/// its pings.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// How much is read of a body that an answer did not need: 256 KiB, as Go's server.
const LEFTOVER_BYTES_MAX: usize = 256 * 1024;

const LIMITS: Limits = Limits {
    connections_max: CONNECTIONS_MAX,
    head_max: HEAD_MAX,
    idle_max: IDLE_MAX,
    http2_idle_max: None,
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
}

/// How a connection says who sends its requests.
#[derive(Debug, Clone)]
enum Peers {
    /// Without TLS: everyone is this identity.
    All(Identity),
    /// With TLS: a peer with this certificate is the administrator, others bring a token.
    Tls {
        /// TLS.
        config: Arc<rustls::ServerConfig>,
        /// The administrator's certificate.
        admin: CertificateDer<'static>,
    },
}

impl Peers {
    /// Who sends a request, if the connection knows.
    fn identify(&self, request: &mut Request<Received>) -> Option<Identity> {
        match self {
            Self::All(identity) => Some(identity.clone()),
            Self::Tls { admin, .. } => request
                .extensions_mut()
                .remove::<PeerCertificate>()
                .filter(|peer| peer.0 == *admin)
                .map(|_| Identity::admin()),
        }
    }
}

impl Listener {
    /// Listens with TLS (HTTP/2 and HTTP/1.1). A client certificate is asked for; the one in `pki` is the administrator's. Port 0
    /// picks a free one.
    ///
    /// # Errors
    ///
    /// When the address cannot be bound or the certificates do not fit.
    pub async fn secure(
        server: ApiServer,
        address: SocketAddr,
        pki: &Pki,
    ) -> Result<Self, ListenError> {
        let config = pki.server_config(server.registry().clock().clone())?;
        let admin: CertificateDer<'static> = pki.admin_certificate().clone();
        Self::bind(server, address, Peers::Tls { config: Arc::new(config), admin }).await
    }

    /// Listens without TLS and without authentication, on a loopback address only: whoever connects is in `system:masters`.
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
        Ok(Self { server, socket, address, peers })
    }

    /// The address it is bound to, with the port that was picked.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop`, then until connections have finished or [`DRAIN_MAX`] is over. Dropping it drops every connection.
    pub async fn run(self, stop: CancellationToken) {
        let Self { server: api, socket, peers, .. } = self;
        let mut server = Server::new(socket, LIMITS);
        if let Peers::Tls { config, .. } = &peers {
            server = server.tls(config.clone());
        }
        let of_requests = api.clone();
        let answer = move |mut request: Request<Received>| {
            // What a peer may not bring itself: its connection says who it is.
            if let Some(identity) = peers.identify(&mut request) {
                request.extensions_mut().insert(identity);
            }
            let api = of_requests.clone();
            async move { api.serve(request).await }
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
