//! Why a manager ended.

use std::{sync::Arc, time::Duration};

#[cfg(doc)]
use super::MEMBERS_MAX;
use crate::{error::BoxError, source::IndexRefused};

/// A member that a manager does not take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddError {
    /// Names are labels of logs and metrics: each is one member's, until that has ended.
    #[error("there is a member named {name:?} already")]
    DuplicateName {
        /// The name.
        name: Arc<str>,
    },
    /// Names of clusters are labels, too.
    #[error("there is a cluster named {name:?} already")]
    DuplicateCluster {
        /// The name.
        name: Arc<str>,
    },
    /// An index that a watch of the controller declares or needs cannot be had.
    #[error("add {name:?}")]
    Index {
        /// The controller.
        name: Arc<str>,
        /// Why not.
        #[source]
        source: IndexRefused,
    },
    /// The manager stops, or has ended: nothing starts any more (MGR-9).
    #[error("the manager stops: {name:?} is not started")]
    Stopping {
        /// The name.
        name: Arc<str>,
    },
    /// There are [`MEMBERS_MAX`] members, or [`CLUSTERS_MAX`](crate::cluster::CLUSTERS_MAX)
    /// clusters.
    #[error("there are as many as may be: {name:?} is not taken")]
    TooMany {
        /// The name.
        name: Arc<str>,
    },
}

/// Why a manager ended otherwise than by being stopped, or could not stop as it should.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// A member failed; the others were stopped.
    #[error("{name} failed")]
    Member {
        /// The member.
        name: Arc<str>,
        /// Why.
        #[source]
        source: BoxError,
    },
    /// A task panicked; the others were stopped.
    #[error("{name} panicked: {message}")]
    Panic {
        /// The task.
        name: Arc<str>,
        /// What the panic said.
        message: String,
    },
    /// This process led and does so no more: everything was dropped where it stood, and the process
    /// should exit (MGR-22).
    #[error("leader election lost")]
    LeadershipLost {
        /// What the election says.
        #[source]
        source: Option<BoxError>,
    },
    /// SIGINT and SIGTERM cannot be listened to.
    #[error("listen for signals")]
    Signals(#[source] std::io::Error),
    /// The grace period was over before all tasks had ended: they were dropped.
    #[error("{} had not ended after the grace period of {period:?}", .running.join(", "))]
    GraceExpired {
        /// The period.
        period: Duration,
        /// What still ran, sorted.
        running: Vec<String>,
        /// The failure that had begun the stop, if it was one.
        #[source]
        source: Option<Box<ManagerError>>,
    },
}
