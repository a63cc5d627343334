//! Where networks are made: a trait, and the two back ends that implement it.
//!
//! # Theory
//!
//! A back end maps the uid of an object to at most one network. [`Backend::ensure`] makes the
//! network what is desired, whatever it was before; [`Backend::release`] makes it not exist;
//! [`Backend::held`] looks. All may be called again at any time with the same arguments, after a
//! crash at any point, and then change nothing more: a reconciler needs nothing else. Two uids
//! never hold overlapping ranges.

mod linux;
mod local;

pub use linux::LinuxBackend;
pub use local::LocalBackend;

use crate::subnet::Subnet;
use futures::future::BoxFuture;
use std::net::Ipv4Addr;

/// What a network should be, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Desired {
    /// The range.
    pub subnet: Subnet,
    /// The gateway, a host address of the range.
    pub gateway: Ipv4Addr,
}

/// Who asks: a network belongs to one object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The object's uid: what the network is kept under.
    pub uid: String,
    /// `namespace/name`, for people.
    pub name: String,
}

/// What a back end has given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    /// What it is called where it is: a registry entry, a bridge.
    pub device: String,
    /// Whether this call changed anything.
    pub changed: bool,
}

/// What a network is at present.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Its range and gateway.
    pub desired: Desired,
    /// What it is called where it is, as in [`Allocation`].
    pub device: String,
}

/// Why a back end could not do as asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// Another network holds part of the range. Trying again helps once that one is gone.
    #[error("{wanted} overlaps {held}, which {holder} holds")]
    Overlap {
        /// The range asked for.
        wanted: Subnet,
        /// The range in the way.
        held: Subnet,
        /// Whose it is.
        holder: String,
    },
    /// The address registry cannot be read or written.
    #[error("{what} the address registry {path}")]
    Registry {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: String,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
    /// The kernel refused.
    #[error("{what} the bridge {device}")]
    Kernel {
        /// What was tried.
        what: &'static str,
        /// The bridge.
        device: String,
        /// Why it failed.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Makes and frees networks. Every call is idempotent.
pub trait Backend: Send + Sync + 'static {
    /// Makes the owner's network what is desired. Dropping the future may leave it half made;
    /// calling again completes it.
    fn ensure<'a>(
        &'a self,
        owner: &'a Owner,
        desired: Desired,
    ) -> BoxFuture<'a, Result<Allocation, BackendError>>;

    /// What the owner's network is, if there is one that is whole.
    fn held<'a>(&'a self, owner: &'a Owner) -> BoxFuture<'a, Result<Option<Held>, BackendError>>;

    /// Frees the owner's network, if there is one. Says whether there was.
    fn release<'a>(&'a self, owner: &'a Owner) -> BoxFuture<'a, Result<bool, BackendError>>;
}
