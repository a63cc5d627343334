//! A bounded HTTP server: a socket, and a function from a request to a response.
//!
//! # Theory
//!
//! A [`Server`] is made of a bound socket and run later. Its run future owns a task per connection,
//! and a connection owns its tasks: streams of HTTP/2, what is read of bodies nobody wanted, the
//! [`Conversation`] after an upgrade. Nothing outlives the run future.
//!
//! ```text
//!   accept ──▶ TLS ──▶ pace of the connection ──▶ HTTP/1.1 or HTTP/2 ──▶ your function
//!   (bounded)  (optional)
//! ```
//!
//! Over TLS and HTTP/2, what a connection writes in one poll is sent to the socket at once.
//!
//! A peer that does nothing costs a bounded time and a bounded place:
//!
//! | what a peer can do | its bound |
//! |---|---|
//! | connect | [`Limits::connections_max`]; more wait to be accepted |
//! | not authenticate | [`Limits::unauthenticated_max`]; the oldest ends |
//! | not shake hands | [`HANDSHAKE_MAX`] |
//! | not send a head, or half of one | [`Limits::head_max`], [`HEAD_BYTES_MAX`], [`HEADERS_MAX`] |
//! | be without a request | [`Limits::idle_max`], [`Limits::http2_idle_max`] |
//! | many requests at once | [`STREAMS_MAX`] (HTTP/2), one (HTTP/1) |
//! | not take its answer | [`STALL_MAX`] |
//! | be gone without a word (HTTP/2) | [`PING_INTERVAL`] and [`PING_MAX`] |
//! | send a body that nobody reads | [`Limits::leftover_bytes_max`], [`LEFTOVER_WAIT_MAX`], then [`LINGER_BYTES_MAX`], [`LINGER_MAX`] |
//!
//! How long a request may take, and how large its body may be, is the function's to say: it knows
//! what it answers.
//!
//! When `stop` is cancelled no more connections are taken, connections finish what they are
//! answering, and after [`Limits::drain_max`] the rest is dropped.
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
mod leftover;
mod limits;
mod linger;
mod pace;
mod places;
mod rounds;
mod server;
mod tasks;

pub use connection::{ConnectionError, Protocol, serve_connection};
pub use conversation::Conversation;
pub use leftover::Received;
pub use limits::{
    HANDSHAKE_MAX, HEAD_BYTES_MAX, HEADERS_MAX, LAST_WORDS_MAX, LEFTOVER_WAIT_MAX,
    LINGER_BYTES_MAX, LINGER_MAX, LINGER_PAUSE_MAX, Limits, PING_INTERVAL, PING_MAX, STALL_MAX,
    STREAMS_MAX,
};
pub use pace::Overdue;
pub use places::ConnectionPlace;
pub use server::Server;
