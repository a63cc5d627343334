//! Webhooks behind TLS.
//!
//! # Theory
//!
//! A [`WebhookServer`] is bound first ([`WebhookServerBuilder::bind`]: the address is taken and the
//! certificate read, so that what is wrong with them is known early) and run later. Its run future
//! owns the certificate's watcher and a task per connection; a connection owns a task per HTTP/2
//! stream. Nothing outlives it.
//!
//! When `stop` is cancelled no more connections are taken, connections finish what they are
//! answering, and after [`DRAIN_MAX`] the rest is dropped.
//!
//! What a peer can make this server hold is bounded:
//!
//! | | bound |
//! |---|---|
//! | connections | [`CONNECTIONS_MAX`]; more wait to be accepted |
//! | a TLS handshake | [`HANDSHAKE_MAX`] |
//! | the head of a request | [`HEAD_MAX`], [`HEAD_BYTES_MAX`] |
//! | a connection without a request | [`IDLE_MAX`] |
//! | an answer that nobody takes in | [`STALL_MAX`](setpoint_serve::STALL_MAX) |
//! | the requests of a connection at once | [`STREAMS_MAX`] (HTTP/2), one (HTTP/1) |
//! | a request, from its head to its answer | [`REQUEST_MAX`] |
//! | a body | [`BODY_BYTES_MAX`](crate::BODY_BYTES_MAX); all together [`BODIES_BYTES_MAX`] |

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

/// Connections at once. An API server keeps a few open; this is a hundred API servers.
pub const CONNECTIONS_MAX: usize = 1024;

/// How long connections may finish what they are answering after `stop`: 1 min (MGR-23).
pub const DRAIN_MAX: Duration = Duration::from_secs(60);

/// How long the head of an HTTP/1 request may take, from its first byte; the first of a connection,
/// from the handshake: 32 s (MGR-23). Then the connection is cut.
pub const HEAD_MAX: Duration = Duration::from_secs(32);

/// How long a connection may be without a request: 90 s (MGR-23). Over HTTP/2, bytes that make no
/// request do not prolong it.
pub const IDLE_MAX: Duration = Duration::from_secs(90);

/// How much of a body that is too large is read on, bytes: a client that still writes when the
/// connection closes sees a broken pipe instead of the answer.
const LEFTOVER_BYTES_MAX: usize = 1024 * 1024;

const LIMITS: Limits = Limits {
    connections_max: CONNECTIONS_MAX,
    unauthenticated_max: None,
    head_max: HEAD_MAX,
    idle_max: IDLE_MAX,
    http2_idle_max: Some(IDLE_MAX),
    leftover_bytes_max: LEFTOVER_BYTES_MAX,
    drain_max: DRAIN_MAX,
};

/// A server of webhooks, bound and not yet running.
///
/// As a runnable of a manager it needs no leadership (WHK-2): every replica answers.
#[derive(Debug)]
#[must_use = "a server does nothing until it is run"]
pub struct WebhookServer {
    webhooks: Webhooks,
    /// `None`: disabled.
    bound: Option<Bound>,
    started: StartedCheck,
}

/// What a server that listens has.
#[derive(Debug)]
struct Bound {
    socket: TcpListener,
    address: SocketAddr,
    config: Arc<ServerConfig>,
    /// `None`: the certificate was given and stays.
    watcher: Option<CertificateWatcher>,
}

impl WebhookServer {
    /// A server with these webhooks. `clock` is what client certificates are checked against.
    pub fn builder(webhooks: Webhooks, clock: Clock) -> WebhookServerBuilder {
        WebhookServerBuilder::new(webhooks, clock)
    }

    /// The address it is bound to, with the port that was picked; `None` when it is disabled.
    pub fn address(&self) -> Option<SocketAddr> {
        self.bound.as_ref().map(|bound| bound.address)
    }

    /// A check that the server answers: for readiness.
    pub fn started_check(&self) -> StartedCheck {
        self.started.clone()
    }

    /// Serves until `stop`, then until connections have finished or [`DRAIN_MAX`] is over. Dropping
    /// it drops every connection.
    ///
    /// # Errors
    ///
    /// When a handler panics and the table was told not to recover panics.
    pub async fn run(self, stop: CancellationToken) -> Result<(), ServerError> {
        let Some(bound) = self.bound else {
            stop.cancelled().await;
            return Ok(());
        };
        let Bound { socket, address, config, watcher } = bound;
        tracing::info!(%address, paths = ?self.webhooks.paths(), "serving webhooks");
        // Ends with the server, also when that ends by itself.
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
                // The connections are dropped with it.
                message = serving.panicked() => Err(ServerError::Panicked { message }),
            };
            watching.cancel();
            served
        };
        tokio::join!(serve, watch).0
    }
}
