//! Where networks are created: a trait, and the two back ends that implement it.
//!
//! # Theory
//!
//! A back end maps the uid of an object to at most one network. [`Backend::ensure`] creates or
//! changes the network, [`Backend::release`] deletes it, [`Backend::get`] reads it. All are
//! idempotent, also after a crash at any point: a reconciler needs nothing else. The ranges of two
//! uids never overlap.

mod linux;
mod local;

pub use linux::LinuxBackend;
pub use local::LocalBackend;

use crate::subnet::Subnet;
use futures::future::BoxFuture;
use std::net::Ipv4Addr;

/// The validated spec of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Desired {
    /// The range.
    pub subnet: Subnet,
    /// The gateway, a host address of the range.
    pub gateway: Ipv4Addr,
}

/// The object that a network belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The object's uid, the key of the network.
    pub uid: String,
    /// `namespace/name`, for messages.
    pub name: String,
}

/// The result of [`Backend::ensure`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    /// Its name in the back end: a registry entry or a bridge.
    pub device: String,
    /// Whether this call changed anything.
    pub changed: bool,
}

/// A network that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Existing {
    /// Its range and gateway.
    pub desired: Desired,
    /// Its name in the back end, as in [`Allocation`].
    pub device: String,
}

/// Why a call of a back end failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// Another network uses a part of the range. A retry succeeds once that one is deleted.
    #[error("{wanted} overlaps {held}, which {holder} holds")]
    Overlap {
        /// The requested range.
        wanted: Subnet,
        /// The range of the other network.
        held: Subnet,
        /// The owner of the other network.
        holder: String,
    },
    /// The address registry cannot be read or written.
    #[error("{what} the address registry {path}")]
    Registry {
        /// The operation that failed.
        what: &'static str,
        /// The file.
        path: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The kernel returned an error.
    #[error("{what} the bridge {device}")]
    Kernel {
        /// The operation that failed.
        what: &'static str,
        /// The bridge.
        device: String,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Creates and deletes networks. Every call is idempotent.
pub trait Backend: Send + Sync + 'static {
    /// Makes the owner's network match `desired`. Dropping the future may leave it incomplete;
    /// another call completes it.
    fn ensure<'a>(
        &'a self,
        owner: &'a Owner,
        desired: Desired,
    ) -> BoxFuture<'a, Result<Allocation, BackendError>>;

    /// The owner's network; `None` if there is none, or an incomplete one.
    fn get<'a>(&'a self, owner: &'a Owner)
    -> BoxFuture<'a, Result<Option<Existing>, BackendError>>;

    /// Deletes the owner's network; returns whether there was one.
    fn release<'a>(&'a self, owner: &'a Owner) -> BoxFuture<'a, Result<bool, BackendError>>;
}
