//! Errors of controllers.

use std::{fmt, sync::Arc, time::Duration};

use setpoint_informer::{InformerStatus, ReflectorError};
use setpoint_workqueue::LimiterError;

use super::CONTROLLER_NAME_CHARS_MAX;
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
        /// The time-out.
        timeout: Duration,
        /// What to do about it, from the informer's last error.
        hint: SyncHint,
        /// The informer's last error, if any.
        #[source]
        source: Option<BoxError>,
    },
    /// The start of a source other than a watch did not return in time.
    #[error(
        "controller {name:?}: the start of {of} has not returned within {timeout:?}: return long work as a `SourceRun`"
    )]
    StartTimeout {
        /// The controller.
        name: Arc<str>,
        /// The source's name.
        of: String,
        /// The time-out.
        timeout: Duration,
    },
    /// A source other than a watch failed.
    #[error("controller {name:?}: {of} failed")]
    Source {
        /// The controller.
        name: Arc<str>,
        /// The source's name.
        of: String,
        /// The cause.
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
        /// The informer's last error, if any.
        #[source]
        source: Option<BoxError>,
    },
    /// A pass panicked, and the controller does not recover panics.
    #[error("controller {name:?}: a reconcile panicked: {message}")]
    Panic {
        /// The controller.
        name: Arc<str>,
        /// The panic's message.
        message: String,
    },
}

/// What to do about a cache that does not sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SyncHint {
    /// The server does not know the resource: install it.
    Install,
    /// The server does not accept the program's credentials: renew them.
    Authenticate,
    /// The server denies access to the resource: permit it.
    Permit,
    /// Nothing beyond what the error says.
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
            Some(401) => Self::Authenticate,
            Some(403) => Self::Permit,
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
            Self::Authenticate => {
                ": the server does not accept this program's credentials; they may have expired: renew them"
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

/// Why a controller was not built.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// `for_` was called twice.
    #[error("controller {name:?}: `for_` was called twice; use `watches` for the second type")]
    TwoTypes {
        /// The controller.
        name: Arc<str>,
    },
    /// `owns` was called without `for_`, or before it.
    #[error("controller {name:?}: call `for_` before `owns`")]
    OwnsWithoutType {
        /// The controller.
        name: Arc<str>,
    },
    /// There is nothing to watch.
    #[error("controller {name:?} watches nothing")]
    NoSource {
        /// The controller.
        name: Arc<str>,
    },
    /// The name is empty.
    #[error("the controller has no name")]
    NoName,
    /// The name is not valid in logs, metrics and field managers.
    #[error(
        "the controller name {name:?} must be letters and digits, with '-', '_', '.' or '/' between them, at most {CONTROLLER_NAME_CHARS_MAX}"
    )]
    Name {
        /// The name.
        name: Arc<str>,
    },
    /// The figures of a rate limiter are invalid.
    #[error("build the rate limiter of controller {name:?}")]
    Limiter {
        /// The controller.
        name: Arc<str>,
        /// The cause.
        #[source]
        source: LimiterError,
    },
}
