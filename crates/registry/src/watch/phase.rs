//! The phases of a stream.
use crate::cache::{Item, Reached, Snapshot, ViewReader, wait_fresh};
use crate::fifo_watch::FifoWatch;
use futures::future::BoxFuture;
use setpoint_object::ApiError;
use std::sync::Arc;

/// See the theory of [`super`].
pub(super) enum Phase {
    /// Until it may begin; `false`: never.
    Starting(BoxFuture<'static, Result<bool, ApiError>>),
    Initial {
        /// The objects that are being sent.
        snapshot: Arc<Snapshot>,
        /// The last object looked at.
        after: Option<Arc<Item>>,
        /// Its revision.
        revision: u64,
    },
    Live,
    /// The last item is an error.
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
    /// Waits until the cache has every change up to a revision, and then until its view has, if the
    /// stream reads a view. For a watch from `after`, the view starts there if possible.
    pub(super) fn starting(
        revision: u64,
        reached: Arc<FifoWatch<Reached>>,
        view: Option<Arc<ViewReader>>,
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
