//! How connections to other servers are made.
//!
//! # Theory
//!
//! A client that connects asks a [`Dialer`] for a [`Socket`] to a host and a port. The default
//! dialer looks the host up and connects over TCP. Any other is a [`Dial`] of its own, such as one
//! that goes through a proxy; then the proxy looks the host up.
//!
//! An API server has three kinds of traffic ([`EgressType`]), named as in Kubernetes. An
//! [`EgressSelector`] has the dialer of each:
//!
//! ```text
//!              ┌─ controlplane ─▶ webhooks by URL, reviews, audit, spans
//! EgressSelector─ etcd ─────────▶ etcd
//!              └─ cluster ──────▶ webhooks by service, APIServices, kubelets, proxied requests
//! ```
//!
//! This crate knows no proxy, no TLS and no configuration.

mod direct;
mod egress;
mod socket;

pub use direct::{ADDRESSES_MAX, dial_unix};
pub use egress::{EgressSelector, EgressType};
pub use socket::{Socket, Wire};

use futures::future::BoxFuture;
use std::fmt;
use std::sync::Arc;

/// Why there is no connection, in the words of Go's network library: `dial tcp 127.0.0.1:1:
/// connect: connection refused`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DialError(pub String);

/// Makes connections.
pub trait Dial: fmt::Debug + Send + Sync {
    /// Connects to a port of a host: an IP address without brackets, or a DNS name.
    ///
    /// # Errors
    ///
    /// There is no connection.
    ///
    /// Dropping the future leaves nothing behind. The caller bounds the time.
    fn dial<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, Result<Socket, DialError>>;
}

/// Makes connections, directly unless it is made [of something else](Self::of). Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Dialer(Option<Arc<dyn Dial>>);

impl Dialer {
    /// Connects as `dial` does.
    pub fn of(dial: Arc<dyn Dial>) -> Self {
        Self(Some(dial))
    }

    /// Connects to a port of a host: an IP address without brackets, or a DNS name. Directly, up to
    /// [`ADDRESSES_MAX`] addresses of a name are tried, and what is written is sent at once.
    ///
    /// # Errors
    ///
    /// There is no connection.
    ///
    /// Dropping the future leaves nothing behind. The caller bounds the time.
    pub async fn dial(&self, host: &str, port: u16) -> Result<Socket, DialError> {
        match &self.0 {
            Some(dial) => dial.dial(host, port).await,
            None => direct::dial(host, port).await.map(Socket::Tcp),
        }
    }
}
