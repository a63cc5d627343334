//! What a stream is doing.
use crate::cache::{Index, Item, Reached, Reading, wait_fresh};
use crate::followed::Followed;
use futures::future::BoxFuture;
use setpoint_object::ApiError;
use std::sync::Arc;

/// See the theory of [`super`].
pub(super) enum Phase {
    /// Until it may begin; `false`: never.
    Starting(BoxFuture<'static, Result<bool, ApiError>>),
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
    /// Waits until the cache holds everything up to a revision, and then a view of it, if the
    /// stream is of one. One that watches what comes `after` a revision has the view begin there if
    /// it can.
    pub(super) fn starting(
        revision: u64,
        reached: Arc<Followed<Reached>>,
        view: Option<Arc<Reading>>,
        after: Option<u64>,
    ) -> Self {
        Self::Starting(Box::pin(async move {
            wait_fresh(&reached, revision).await?;
            match view {
                Some(view) => view.wait_from(after.unwrap_or(u64::MAX)).await,
                None => Ok(true),
            }
        }))
    }
}
