//! Listeners: the server behind a socket, with TLS or without.
//!
//! # Theory
//!
//! A [`Listener`] is bound first and run later; its run future owns a task per connection, and a connection owns a task per
//! HTTP/2 stream. When `stop` is cancelled the listener takes no more connections, the server drains (watches end between two
//! events), connections finish what they are answering, and after [`DRAIN_MAX`] the rest is dropped.
//!
//! A peer that does nothing costs a bounded time: the handshake, the head of a request and (through the request's deadline) its
//! body each end after a while, as does a connection that says nothing at all or takes in nothing of its answer. Peers beyond [`CONNECTIONS_MAX`] wait to be accepted.

mod connection;
mod leftover;
mod patience;
mod pki;

pub use pki::{Pki, PkiError};

use crate::identity::Identity;
use crate::server::ApiServer;
use connection::{Acceptor, serve};
use rustls::pki_types::CertificateDer;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Connections at once, per listener. Four thousand idle HTTP/2 connections are some hundred MiB; more clients than that belong
/// behind a proxy.
pub const CONNECTIONS_MAX: usize = 4096;

/// How long connections may finish what they are answering after `stop`.
pub const DRAIN_MAX: Duration = Duration::from_secs(10);

/// How long accepting pauses after the system refused (out of file descriptors), so that it does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

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
    acceptor: Acceptor,
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
        let acceptor = Acceptor::Tls { config: Arc::new(config), admin };
        Self::bind(server, address, acceptor).await
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
        Self::bind(server, address, Acceptor::Plain(Identity::unsecured())).await
    }

    async fn bind(
        server: ApiServer,
        address: SocketAddr,
        acceptor: Acceptor,
    ) -> Result<Self, ListenError> {
        let bind = |source| ListenError::Bind { address, source };
        let socket = TcpListener::bind(address).await.map_err(bind)?;
        let address = socket.local_addr().map_err(bind)?;
        Ok(Self { server, socket, address, acceptor })
    }

    /// The address it is bound to, with the port that was picked.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop`, then until connections have finished or [`DRAIN_MAX`] is over. Dropping it drops every connection.
    pub async fn run(self, stop: CancellationToken) {
        let mut connections = JoinSet::new();
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let place = tokio::select! {
                // Cancel safe: a dropped `acquire` has taken no place.
                place = places.clone().acquire_owned() => place,
                () = stop.cancelled() => break,
            };
            let accepted = tokio::select! {
                // Cancel safe: a dropped `accept` has taken no connection.
                accepted = self.socket.accept() => accepted,
                () = stop.cancelled() => break,
                // Cancel safe: a dropped `join_next` has taken no result.
                Some(_) = connections.join_next() => continue,
            };
            match accepted {
                Ok((stream, peer)) => {
                    let connection =
                        serve(self.server.clone(), self.acceptor.clone(), stream, stop.clone());
                    connections.spawn(async move {
                        let _place = place;
                        if let Err(error) = connection.await {
                            tracing::debug!(%peer, %error, "connection ended");
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(self.socket);
        self.server.drain();
        let drained = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN_MAX, drained).await.is_err() {
            tracing::warn!(left = connections.len(), "connections did not finish in time");
        }
    }
}
