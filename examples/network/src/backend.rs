//! Where networks are created: a trait, and the three back ends that implement it.
//!
//! # Theory
//!
//! A back end maps the uid of an object to at most one network. [`Backend::ensure`] creates or
//! changes the network, [`Backend::release`] deletes it, [`Backend::get`] reads it. All are
//! idempotent, also after a crash at any point: a reconciler needs nothing else. The ranges of two
//! uids never overlap.

mod linux;
mod local;
pub mod neutron;

pub use linux::LinuxBackend;
pub use local::LocalBackend;
pub use neutron::NeutronBackend;

use crate::subnet::Subnet;
use futures::future::BoxFuture;
use std::net::Ipv4Addr;
use std::time::Duration;

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
    /// Its name in the back end: a registry entry, a bridge, or the id of a network in Neutron.
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
    /// The cloud does not answer, or not as expected.
    #[error("{what} the {kind} of {network}")]
    Cloud {
        /// The operation that failed.
        what: &'static str,
        /// Of what kind: `network`, `subnet`, `port`.
        kind: &'static str,
        /// The name of the owner's network in the cloud.
        network: String,
        /// The cause.
        #[source]
        source: Box<neutron::HttpError>,
    },
    /// A quota of the project is used up. A retry succeeds once something is deleted, or the quota
    /// is raised.
    #[error("a quota leaves no room for {network}: {message}")]
    Quota {
        /// The name of the owner's network in the cloud.
        network: String,
        /// The cloud's message.
        message: String,
    },
    /// The cloud refuses what the spec asks for. A retry cannot help.
    #[error("the cloud refuses {network}: {message}")]
    Rejected {
        /// The name of the owner's network in the cloud.
        network: String,
        /// The cloud's message.
        message: String,
    },
    /// Others use the network, so it cannot be deleted or changed now.
    #[error("{network} is in use: {user}")]
    InUse {
        /// The name of the owner's network in the cloud.
        network: String,
        /// Who uses it.
        user: String,
    },
}

/// When a failed call is worth another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// With back-off.
    WithBackoff,
    /// After some time: somebody has to do something first.
    Slowly,
    /// Only after a change of the spec.
    AfterChange,
}

impl BackendError {
    /// The reason in the condition.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Overlap { .. } => "RangeTaken",
            Self::Quota { .. } => "QuotaExceeded",
            Self::Rejected { .. } => "Rejected",
            Self::InUse { .. } => "InUse",
            Self::Registry { .. } | Self::Kernel { .. } | Self::Cloud { .. } => "BackendFailed",
        }
    }

    /// When to call again.
    pub fn again(&self) -> Again {
        match self {
            Self::Quota { .. } | Self::InUse { .. } => Again::Slowly,
            Self::Rejected { .. } => Again::AfterChange,
            Self::Overlap { .. }
            | Self::Registry { .. }
            | Self::Kernel { .. }
            | Self::Cloud { .. } => Again::WithBackoff,
        }
    }
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

    /// How often a network that matches is compared again, because others may change it. Default:
    /// never.
    fn check_period(&self) -> Option<Duration> {
        None
    }
}
