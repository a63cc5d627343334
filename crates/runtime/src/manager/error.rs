//! Errors of a manager.

use std::{fmt, sync::Arc, time::Duration};

#[cfg(doc)]
use super::MEMBERS_MAX;
use crate::{
    error::BoxError,
    source::{IndexRefused, WatchError},
};

/// Why a manager did not add a member.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddError {
    /// Names are labels of logs and metrics. A name is free again when its member has ended.
    #[error("a member named {name:?} already exists")]
    DuplicateName {
        /// The name.
        name: Arc<str>,
    },
    /// Names of clusters are labels too.
    #[error("a cluster named {name:?} already exists")]
    DuplicateCluster {
        /// The name.
        name: Arc<str>,
    },
    /// An index that a watch of the controller declares or needs is not available.
    #[error("add {name:?}")]
    Index {
        /// The controller.
        name: Arc<str>,
        /// The reason.
        #[source]
        source: IndexRefused,
    },
    /// A controller could not add its watches of a cluster:
    /// [`each_cluster`](crate::ControllerBuilder::each_cluster).
    #[error("add the watches of controller {controller:?} of cluster {cluster:?}")]
    Engage {
        /// The controller.
        controller: Arc<str>,
        /// The cluster.
        cluster: Arc<str>,
        /// The reason.
        #[source]
        source: WatchError,
    },
    /// The manager is stopping or has ended (MGR-9).
    #[error("the manager is stopping: {name:?} is not started")]
    Stopping {
        /// The name.
        name: Arc<str>,
    },
    /// There are [`MEMBERS_MAX`] members, or [`CLUSTERS_MAX`](crate::cluster::CLUSTERS_MAX)
    /// clusters.
    #[error("too many members or clusters: {name:?} is not added")]
    TooMany {
        /// The name.
        name: Arc<str>,
    },
}

/// The number of keys of running passes that [`RunningTask::keys`] has at most.
///
/// 16: enough to find what blocks, and still a line of a log.
pub const RUNNING_KEYS_MAX: usize = 16;

/// A task that still ran when the grace period of the stop was over.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct RunningTask {
    /// Its name.
    pub name: Arc<str>,
    /// If it is a controller: the keys of running passes, sorted, at most [`RUNNING_KEYS_MAX`].
    pub keys: Vec<String>,
}

/// The name, and the keys if there are any.
impl fmt::Display for RunningTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.keys.is_empty() {
            true => f.write_str(&self.name),
            false => write!(f, "{} (passes over {})", self.name, self.keys.join(", ")),
        }
    }
}

fn list(tasks: &[RunningTask]) -> String {
    tasks.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The end of the text of [`ManagerError::GraceExpired`].
struct Waiting<'a>(&'a [RunningTask]);

impl fmt::Display for Waiting<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => Ok(()),
            waiting => write!(f, "; not told to stop before that: {}", list(waiting)),
        }
    }
}

/// Why a manager ended on its own, or could not stop cleanly.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// A member failed; the others were stopped.
    #[error("{name} failed")]
    Member {
        /// The member.
        name: Arc<str>,
        /// The cause.
        #[source]
        source: BoxError,
    },
    /// A task panicked; the others were stopped.
    #[error("{name} panicked: {message}")]
    Panic {
        /// The task.
        name: Arc<str>,
        /// The panic's message.
        message: String,
    },
    /// This process has lost the leadership. All tasks were dropped, and the process should exit
    /// (MGR-22).
    #[error("leader election lost")]
    LeadershipLost {
        /// The election's error.
        #[source]
        source: Option<BoxError>,
    },
    /// Signal handlers for SIGINT and SIGTERM could not be installed.
    #[error("listen for signals")]
    Signals(#[source] std::io::Error),
    /// The grace period passed before all tasks had ended. They were dropped.
    #[error(
        "{} had not ended after the grace period of {period:?}{}",
        list(running),
        Waiting(waiting)
    )]
    GraceExpired {
        /// The period.
        period: Duration,
        /// The tasks that had been told to stop and still ran, sorted.
        running: Vec<RunningTask>,
        /// The tasks that are told to stop only after those, sorted.
        waiting: Vec<RunningTask>,
        /// The failure that caused the stop, if any.
        #[source]
        source: Option<Box<ManagerError>>,
    },
}
