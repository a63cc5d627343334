//! An HTTPS server for webhooks.
//!
//! # Theory
//!
//! A [`WebhookServer`] is first bound and then run. [`WebhookServerBuilder::bind`] binds the
//! address and reads the certificate, so that errors in them are found early. The run future owns
//! the certificate's watcher and one task per connection; a connection owns one task per HTTP/2
//! stream. No task outlives the run future.
//!
//! When `stop` is cancelled, the server accepts no more connections, lets connections finish their
//! requests, and drops the rest after [`DRAIN_MAX`].
//!
//! Limits on the resources that a peer can use:
//!
//! | | limit |
//! |---|---|
//! | connections | [`CONNECTIONS_MAX`]; more wait to be accepted |
//! | a TLS handshake | [`HANDSHAKE_MAX`] |
//! | the head of a request | [`HEAD_MAX`], [`HEAD_BYTES_MAX`] |
//! | a connection without a request | [`IDLE_MAX`] |
//! | a response that the client does not read | [`STALL_MAX`](setpoint_serve::STALL_MAX) |
//! | concurrent requests of a connection | [`STREAMS_MAX`] (HTTP/2), one (HTTP/1) |
//! | a request, from its head to its response | [`REQUEST_MAX`] |
//! | a body | [`BODY_BYTES_MAX`](crate::BODY_BYTES_MAX); all together [`BODIES_BYTES_MAX`] |
//! | a body of a conversion | [`CONVERSION_BYTES_MAX`](crate::CONVERSION_BYTES_MAX); all together as much again |

mod answer;
mod body;
mod builder;
mod error;
mod started;

pub use answer::REQUEST_MAX;
pub use body::BODIES_BYTES_MAX;
pub use builder::{Listen, PORT, WebhookServerBuilder};
pub use error::ServerError;
pub use setpoint_serve::{HANDSHAKE_MAX, HEAD_BYTES_MAX, STREAMS_MAX};
pub use started::{DIAL_MAX, NotStarted, StartedCheck};

use crate::certificate::CertificateWatcher;
use crate::webhooks::Webhooks;
use answer::Serving;
use rustls::ServerConfig;
use setpoint_object::time::Clock;
use setpoint_serve::{Limits, Server};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Maximum number of connections. An API server keeps a few open, so this serves a hundred API
/// servers.
pub const CONNECTIONS_MAX: usize = 1024;

/// How long connections may finish their requests after `stop`: 1 min (MGR-23).
pub const DRAIN_MAX: Duration = Duration::from_secs(60);

/// Maximum time for the head of an HTTP/1 request, from its first byte, or from the handshake for
/// the first request: 32 s (MGR-23). Then the connection is cut.
pub const HEAD_MAX: Duration = Duration::from_secs(32);

/// Maximum time of a connection without a request: 90 s (MGR-23). Over HTTP/2, bytes that make no
/// request do not extend it.
pub const IDLE_MAX: Duration = Duration::from_secs(90);

/// How many bytes of a body that is too large are still read: a client that is still writing when
/// the connection closes would see a broken pipe instead of the response.
const LEFTOVER_BYTES_MAX: usize = 1024 * 1024;

const LIMITS: Limits = Limits {
    connections_max: CONNECTIONS_MAX,
    unauthenticated_max: None,
    head_max: HEAD_MAX,
    idle_max: IDLE_MAX,
    http2_idle_max: Some(IDLE_MAX),
    streams_max: STREAMS_MAX,
    leftover_bytes_max: LEFTOVER_BYTES_MAX,
    drain_max: DRAIN_MAX,
    pace: 1,
};

/// A server of webhooks, bound but not yet running.
///
/// As a runnable of a manager it does not need leadership (WHK-2): every replica answers.
#[derive(Debug)]
#[must_use = "a server does nothing until it is run"]
pub struct WebhookServer {
    webhooks: Webhooks,
    /// `None` if disabled.
    bound: Option<Bound>,
    started: StartedCheck,
}

/// The parts of a server that listens.
#[derive(Debug)]
struct Bound {
    socket: TcpListener,
    address: SocketAddr,
    config: Arc<ServerConfig>,
    /// `None` if the certificate is fixed.
    watcher: Option<CertificateWatcher>,
}

impl WebhookServer {
    /// A builder for a server with these webhooks. `clock` is used to check the validity of client
    /// certificates.
    pub fn builder(webhooks: Webhooks, clock: Clock) -> WebhookServerBuilder {
        WebhookServerBuilder::new(webhooks, clock)
    }

    /// The bound address, with the chosen port; `None` if the server is disabled.
    pub fn address(&self) -> Option<SocketAddr> {
        self.bound.as_ref().map(|bound| bound.address)
    }

    /// A readiness check that connects to the server.
    pub fn started_check(&self) -> StartedCheck {
        self.started.clone()
    }

    /// Serves until `stop`, then until all connections have finished or [`DRAIN_MAX`] has passed.
    /// Dropping it drops every connection.
    ///
    /// # Errors
    ///
    /// If a handler panics and the table does not recover panics.
    pub async fn run(self, stop: CancellationToken) -> Result<(), ServerError> {
        let Some(bound) = self.bound else {
            stop.cancelled().await;
            return Ok(());
        };
        let Bound { socket, address, config, watcher } = bound;
        tracing::info!(%address, paths = ?self.webhooks.paths(), "serving webhooks");
        // Stops together with the server, also if that ends by itself.
        let watching = stop.child_token();
        let watch = async {
            if let Some(watcher) = watcher {
                watcher.run(watching.clone()).await;
            }
        };
        let serve = async {
            let serving = Serving::new(self.webhooks);
            let of_requests = serving.clone();
            let answer = move |request| of_requests.clone().respond(request);
            let served = tokio::select! {
                () = Server::new(socket, LIMITS).tls(config).run(answer, stop.clone()) => Ok(()),
                // Dropping this drops the connections.
                message = serving.panicked() => Err(ServerError::Panicked { message }),
            };
            watching.cancel();
            served
        };
        tokio::join!(serve, watch).0
    }
}
