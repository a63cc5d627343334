//! A bounded HTTP server: a socket, and a function from a request to a response.
//!
//! # Theory
//!
//! A [`Server`] is created from a bound socket and run later. Its run future owns a task per
//! connection, and a connection owns its tasks: HTTP/2 streams, reads of unread bodies, and the
//! [`Conversation`] after an upgrade. Nothing outlives the run future.
//!
//! ```text
//!   accept ──▶ TLS ──▶ timeouts of the connection ──▶ HTTP/1.1 or HTTP/2 ──▶ your function
//!   (bounded)  (optional)
//! ```
//!
//! What Go's server refuses before its handler, this one does, too, as far as hyper shows it.
//!
//! A connection that moves large bodies has turns of half a megabyte, so that a small request on
//! another one does not wait long. Over TLS and HTTP/2, all that a connection writes in one poll
//! is sent to the socket at once.
//!
//! A peer that does nothing costs bounded time and a bounded number of slots:
//!
//! | a peer may | limit |
//! |---|---|
//! | connect | [`Limits::connections_max`]; more wait to be accepted |
//! | not authenticate | [`Limits::unauthenticated_max`]; the oldest is closed |
//! | not complete the TLS handshake | [`HANDSHAKE_MAX`] |
//! | not send a head, or only a part | [`Limits::head_max`], [`HEAD_BYTES_MAX`], [`HEADERS_MAX`] |
//! | send no request | [`Limits::idle_max`], [`Limits::http2_idle_max`] |
//! | send many requests at once | [`Limits::streams_max`] (HTTP/2), one (HTTP/1) |
//! | not read its response | [`STALL_MAX`] |
//! | disappear without closing (HTTP/2) | [`PING_INTERVAL`] and [`PING_MAX`] |
//! | send a body that the function does not read | [`Limits::leftover_bytes_max`], [`LEFTOVER_WAIT_MAX`], then [`LINGER_BYTES_MAX`], [`LINGER_MAX`] |
//!
//! The function itself limits the time of a request and the size of its body.
//!
//! After `stop` no more connections are accepted, connections finish their requests, and after
//! [`Limits::drain_max`] the rest is dropped.
//!
//! All time is tokio's. This crate knows no Kubernetes, no routes and no paths. Without the feature
//! `tls` it has no TLS and no cryptography.
//!
//! # Example
//!
//! ```
//! use bytes::Bytes;
//! use http::{Request, Response};
//! use http_body_util::Full;
//! use setpoint_serve::{Limits, Received, Server};
//! use tokio_util::sync::CancellationToken;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! let server = Server::new(socket, Limits::default());
//! let hello = async |_: Request<Received>| Response::new(Full::new(Bytes::from_static(b"hello\n")));
//! let stop = CancellationToken::new();
//! # stop.cancel();
//! server.run(move |request| hello(request), stop).await;
//! # Ok(())
//! # }
//! ```

#[cfg(feature = "tls")]
pub mod certificate;
#[cfg(feature = "tls")]
pub mod tls;

#[cfg(feature = "tls")]
mod batch;
mod connection;
mod conversation;
mod error;
mod head;
mod leftover;
mod limits;
mod linger;
mod repoll;
mod server;
mod slots;
mod tasks;
mod timeouts;
mod turn;

pub use connection::{ConnectionError, GoAway, Protocol, serve_connection};
pub use conversation::Conversation;
pub use leftover::Received;
pub use limits::{
    HANDSHAKE_MAX, HEAD_BYTES_MAX, HEADERS_MAX, LAST_WORDS_MAX, LEFTOVER_WAIT_MAX,
    LINGER_BYTES_MAX, LINGER_MAX, LINGER_PAUSE_MAX, Limits, PING_INTERVAL, PING_MAX, STALL_MAX,
    STREAMS_MAX,
};
pub use server::{PeerAddress, Server};
pub use slots::ConnectionSlot;
pub use timeouts::Overdue;
