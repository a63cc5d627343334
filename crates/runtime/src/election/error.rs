//! What an election refuses, and how it ends.

use std::{sync::Arc, time::Duration};

/// Options under which no election could be held safely.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// LE-1: the lease duration must be longer than the renew deadline, that longer than 1.2 × the
    /// retry period, and all more than zero.
    #[error(
        "lease duration {lease:?} > renew deadline {renew:?} > 1.2 × retry period {retry:?} > 0 does not hold"
    )]
    Timings {
        /// The lease duration.
        lease: Duration,
        /// The renew deadline.
        renew: Duration,
        /// The retry period.
        retry: Duration,
    },
    /// A Lease holds its duration in whole seconds.
    #[error("the lease duration {lease:?} is not a whole number of seconds that fits a Lease")]
    LeaseSeconds {
        /// The lease duration.
        lease: Duration,
    },
    /// LE-3: the Lease has no name.
    #[error("the Lease has no name")]
    NoName,
    /// LE-4: the candidate has no identity, or one that is too long.
    #[error("the candidate has no identity, or one longer than its Lease can hold")]
    NoIdentity,
    /// No identity was given, and the machine gives no randomness to draw one.
    #[error("draw an identity for the candidate")]
    MachineIdentity(#[source] std::io::Error),
    /// LE-3: no namespace was given, and this process runs in no pod.
    #[error("no namespace for the Lease was given, and {path} does not tell one")]
    NoNamespace {
        /// The service account's file.
        path: String,
        /// Why it could not be read.
        #[source]
        source: std::io::Error,
    },
    /// The name of a group of replicas is no DNS label, or too long for the names of its Leases.
    #[error(
        "the group {group:?} must be lower-case letters, digits and '-' between them, at most 46"
    )]
    Group {
        /// The group.
        group: String,
    },
    /// LE-2: only Leases are locks.
    #[error(
        "{lock:?} is no lock: only \"leases\" is. Holders of a ConfigMap or Endpoints lock must first run a version that holds both \
         (client-go up to 0.23: \"configmapsleases\", \"endpointsleases\"), then one that holds \"leases\""
    )]
    Lock {
        /// What was asked for.
        lock: String,
    },
}

/// Why an election ended otherwise than by being stopped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ElectionError {
    /// The lease was held, and is not any more: what ran under it must end.
    #[error("leader election lost: {identity:?} does not hold lease {lease} any more: {why}")]
    Lost {
        /// Namespace and name of the Lease.
        lease: Arc<str>,
        /// Who held it.
        identity: Arc<str>,
        /// What happened.
        why: Loss,
    },
}

/// How a lease was lost.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Loss {
    /// No renewal succeeded within the renew deadline.
    #[error("no renewal succeeded within {within:?}")]
    Deadline {
        /// The renew deadline.
        within: Duration,
    },
    /// The record is somebody else's.
    #[error("it is held by {holder:?}")]
    Taken {
        /// Who holds it now; empty for nobody.
        holder: String,
    },
}

/// A leader that should have ended long ago: LE-16.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the lease has not been renewed for {since:?}, and this process has not noticed that it lost it"
)]
pub struct RenewalOverdue {
    /// How long ago the last renewal that succeeded was sent.
    pub since: Duration,
}
