//! Why a controller ended.

use std::{sync::Arc, time::Duration};

use crate::reconciler::BoxError;

/// Why a controller ended without being stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControllerError {
    /// A cache did not sync in time. If its type is a custom resource, is it installed? If it is, may this program list it?
    #[error(
        "controller {name:?}: the cache of {resource} has not synced within {timeout:?}: is it installed, and may it be listed and watched?"
    )]
    SyncTimeout {
        /// The controller.
        name: Arc<str>,
        /// The resource whose cache has not synced.
        resource: String,
        /// How long it was waited for.
        timeout: Duration,
        /// What kept the informer from syncing, if it said.
        #[source]
        source: Option<BoxError>,
    },
    /// An informer that the controller needs has ended.
    #[error("controller {name:?}: the informer of {resource} has stopped")]
    SourceStopped {
        /// The controller.
        name: Arc<str>,
        /// The resource.
        resource: String,
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

/// What a panic said, if it said it in words.
pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    match (panic.downcast_ref::<&'static str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => "something that is no text".to_owned(),
    }
}
