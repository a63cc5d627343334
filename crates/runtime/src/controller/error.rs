//! Why a controller ended.

use std::{fmt, sync::Arc, time::Duration};

use setpoint_informer::{InformerStatus, ReflectorError};

use crate::error::BoxError;

/// Why a controller ended without being stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControllerError {
    /// A cache did not sync in time.
    #[error("controller {name:?}: the cache of {resource} has not synced within {timeout:?}{hint}")]
    SyncTimeout {
        /// The controller.
        name: Arc<str>,
        /// The resource whose cache has not synced.
        resource: String,
        /// How long it was waited for.
        timeout: Duration,
        /// What to do about it, as far as the informer's last error tells.
        hint: SyncHint,
        /// What kept the informer from syncing, if it said.
        #[source]
        source: Option<BoxError>,
    },
    /// The start of a source that is no watch did not return in time.
    #[error(
        "controller {name:?}: the start of {of} has not returned within {timeout:?}: it must leave what goes on to its run"
    )]
    StartTimeout {
        /// The controller.
        name: Arc<str>,
        /// What the source calls itself.
        of: String,
        /// How long it was waited for.
        timeout: Duration,
    },
    /// A source that is no watch failed.
    #[error("controller {name:?}: {of} failed")]
    Source {
        /// The controller.
        name: Arc<str>,
        /// What the source calls itself.
        of: String,
        /// Why.
        #[source]
        source: BoxError,
    },
    /// An informer that the controller needs has ended.
    #[error("controller {name:?}: the informer of {resource} has stopped")]
    SourceStopped {
        /// The controller.
        name: Arc<str>,
        /// The resource.
        resource: String,
        /// What the informer failed with last, if it said.
        #[source]
        source: Option<BoxError>,
    },
    /// A pass panicked, and the controller was told not to recover.
    #[error("controller {name:?}: a reconcile panicked: {message}")]
    Panic {
        /// The controller.
        name: Arc<str>,
        /// What the panic said.
        message: String,
    },
}

/// What to do about a cache that does not sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SyncHint {
    /// The server does not know the resource: it is to be installed.
    Install,
    /// The server does not let this program read it: it is to be permitted.
    Permit,
    /// The cause says all there is to say.
    None,
}

impl SyncHint {
    pub(super) fn of(status: &InformerStatus) -> Self {
        let error = status.degraded.as_ref().map(|degraded| &*degraded.error);
        let code = match error {
            Some(ReflectorError::List { source, .. } | ReflectorError::Watch { source, .. }) => {
                source.code()
            }
            _ => None,
        };
        match code {
            Some(404) => Self::Install,
            Some(401 | 403) => Self::Permit,
            _ => Self::None,
        }
    }
}

impl fmt::Display for SyncHint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Install => {
                ": the server does not serve it; install it, if it is a custom resource its CustomResourceDefinition"
            }
            Self::Permit => ": this program may not read it; permit it to list and watch it",
            Self::None => "",
        })
    }
}

/// A pass that panicked.
#[derive(Debug, thiserror::Error)]
#[error("panic: {message}")]
pub(super) struct ReconcilePanic {
    pub(super) message: String,
}

/// A pass that took too long.
#[derive(Debug, thiserror::Error)]
#[error("the reconcile has not ended within {timeout:?}")]
pub(super) struct ReconcileTimeout {
    pub(super) timeout: Duration,
}
