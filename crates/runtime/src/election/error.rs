//! Errors of elections.

use std::{sync::Arc, time::Duration};

/// Options that do not allow a safe election.
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
    /// The lease duration is not in whole seconds, as a Lease requires.
    #[error("the lease duration {lease:?} is not a whole number of seconds that fits a Lease")]
    LeaseSeconds {
        /// The lease duration.
        lease: Duration,
    },
    /// LE-3: the Lease has no name.
    #[error("the Lease has no name")]
    NoName,
    /// LE-4: the identity is empty or too long.
    #[error("the candidate has no identity, or one longer than its Lease can hold")]
    NoIdentity,
    /// No identity was given, and the operating system provides no randomness for one.
    #[error("draw an identity for the candidate")]
    MachineIdentity(#[source] std::io::Error),
    /// LE-3: no namespace was given, and this process runs in no pod.
    #[error("no namespace for the Lease was given, and {path} has none")]
    NoNamespace {
        /// The service account's file.
        path: String,
        /// Why the file could not be read.
        #[source]
        source: std::io::Error,
    },
    /// The name of a group of replicas is empty, not a DNS label, or too long for the names of its
    /// Leases.
    #[error("the group {group:?} must be 1 to 46 lower-case letters, digits and '-' between them")]
    Group {
        /// The group.
        group: String,
    },
    /// LE-2: only Leases are supported as locks.
    #[error(
        "{lock:?} is not a supported lock: only \"leases\" is. Holders of a ConfigMap or Endpoints lock must first run a version that holds both \
         (client-go up to 0.23: \"configmapsleases\", \"endpointsleases\"), then one that holds \"leases\""
    )]
    Lock {
        /// The requested lock.
        lock: String,
    },
}

/// Why an election ended on its own.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ElectionError {
    /// The lease was held and is lost: everything that it guards must end.
    #[error("{identity:?} does not hold lease {lease} any more: {why}")]
    Lost {
        /// Namespace and name of the Lease.
        lease: Arc<str>,
        /// The identity of this process.
        identity: Arc<str>,
        /// The reason.
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
    /// Another process, or a person, wrote the record. It may still name this process.
    #[error("{}", held_by(.holder))]
    Taken {
        /// The current holder; empty for none.
        holder: String,
    },
}

fn held_by(holder: &str) -> String {
    if holder.is_empty() {
        "its record was changed, and nobody holds it".to_owned()
    } else {
        format!("its record was changed by another, and names {holder:?}")
    }
}

/// A leader that should have ended already: LE-16.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the lease has not been renewed for {since:?}, and this process has not noticed that it lost it"
)]
pub struct RenewalOverdue {
    /// How long ago the last successful renewal was sent.
    pub since: Duration,
}
