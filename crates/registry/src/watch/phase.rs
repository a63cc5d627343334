//! What a stream is doing.
use crate::cache::{Index, Item, Reached, wait_fresh};
use crate::followed::Followed;
use futures::future::BoxFuture;
use setpoint_object::ApiError;
use std::sync::Arc;

/// See the theory of [`super`].
pub(super) enum Phase {
    Starting(BoxFuture<'static, Result<(), ApiError>>),
    Initial {
        /// The state that is given out.
        index: Index,
        /// The last object looked at.
        after: Option<Arc<Item>>,
        /// Its revision.
        revision: u64,
    },
    Live,
    /// One last item to give.
    Failed(ApiError),
    Ended,
}
impl std::fmt::Debug for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Starting(_) => "Starting",
            Self::Initial { .. } => "Initial",
            Self::Live => "Live",
            Self::Failed(_) => "Failed",
            Self::Ended => "Ended",
        })
    }
}
impl Phase {
    /// Waits until the cache holds everything up to a revision.
    pub(super) fn starting(revision: u64, reached: Arc<Followed<Reached>>) -> Self {
        Self::Starting(Box::pin(async move { wait_fresh(&reached, revision).await }))
    }
}
