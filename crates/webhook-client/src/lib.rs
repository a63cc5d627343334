//! Calls webhooks as an API server does.
//!
//! # Theory
//!
//! ```text
//! clientConfig ─ Webhooks::webhook ─▶ Webhook ─ call(body, timeout) ─▶ bytes of the answer, or CallError
//!                                        │
//!                                        ▼ a pooled HTTPS client per (CA bundle, server)
//!                          dial ─▶ TLS ─▶ HTTP/2 or HTTP/1.1
//!                           ▲
//!                           └── ServiceResolver (service → addresses)
//! ```
//!
//! - A webhook is a URL or a service. The TLS server name is the URL's host, or
//!   `<name>.<namespace>.svc`, whatever address a service has.
//! - Connections are reused by all webhooks with the same CA bundle and server. Another CA bundle
//!   makes new connections.
//! - The timeout of a call covers everything: waiting for its turn, the lookup of the service, the
//!   connection, the answer. A call that is dropped or times out closes its stream.
//! - A webhook may have a [`Credential`]: a client certificate, and headers of each request.
//! - Redirects are not followed. A request that may have reached the server is not repeated, except
//!   if the server asks for it (429 or 5xx with `Retry-After`).
//! - Everything is bounded: [`CALLS_MAX`], [`CALLS_PER_SERVER_MAX`], [`REQUEST_BYTES_MAX`],
//!   [`RESPONSE_BYTES_MAX`], [`READ_BYTES_MAX`], [`CLIENTS_MAX`].
//! - Errors have the words of Kubernetes' API server ([`CallError`]), because clients and tests
//!   look for them.
//! - Tasks of connections belong to the [`Webhooks`] and end with it. Certificates are checked
//!   against a given clock.
//!
//! Sources: Kubernetes' `apiserver/pkg/util/webhook` and `client-go/rest`, observed behavior.
//!
//! A proxy uses the same connections without the pool of webhooks: [`Transport`]. So do clients of
//! other servers, which read [whole answers](Answer) within a limit.
//!
//! This crate knows neither reviews nor the API server.

mod client;
mod config;
mod connect;
mod credential;
mod error;
mod fetch;
mod response;
mod tasks;
mod tls;
mod transport;

pub use client::{
    CALLS_MAX, CALLS_PER_SERVER_MAX, CLIENTS_MAX, READ_BYTES_MAX, REQUEST_BYTES_MAX,
    RESPONSE_BYTES_MAX, Webhook, Webhooks,
};
pub use config::{ClientConfig, ConfigError, Endpoint, Service};
pub use connect::{Address, ResolveError, ServiceResolver, secure};
pub use credential::Credential;
pub use error::CallError;
pub use fetch::{Answer, FetchError};
pub use tls::{Identity, Roots};
pub use transport::{Lane, Transport, TransportError, Trust};
