//! Why a controller was not built.

use std::sync::Arc;

use setpoint_workqueue::LimiterError;

use super::CONTROLLER_NAME_CHARS_MAX;

/// A controller that could not work as it was asked for.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// `for_` was called twice.
    #[error("controller {name:?} is for two types: let it watch the second")]
    TwoTypes {
        /// The controller.
        name: Arc<str>,
    },
    /// `owns` without `for_`, or before it.
    #[error("controller {name:?} owns objects, but it was not said before for which type it is")]
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
    /// The name does not suit logs, metrics and the records of who wrote what.
    #[error(
        "the controller name {name:?} must be letters and digits, with '-', '_', '.' or '/' between them, at most {CONTROLLER_NAME_CHARS_MAX}"
    )]
    Name {
        /// The name.
        name: Arc<str>,
    },
    /// A rate limiter's figures are wrong.
    #[error("make the rate limiter of controller {name:?}")]
    Limiter {
        /// The controller.
        name: Arc<str>,
        /// What is wrong.
        #[source]
        source: LimiterError,
    },
}
