//! What a stream is doing.
use crate::cache::{Begin, Index, Reached, wait_fresh};
use crate::read::{Fresh, WatchStart};
use bytes::Bytes;
use futures::future::BoxFuture;
use setpoint_object::ApiError;
use setpoint_store::Store;
use std::sync::Arc;
use tokio::sync::watch::Receiver;

/// See the theory of [`super`].
pub(super) enum Phase {
    Starting(BoxFuture<'static, Result<(), ApiError>>),
    Initial {
        /// The state that is given out.
        index: Index,
        /// The key of the last object looked at.
        after: Option<Bytes>,
        /// Its revision.
        revision: u64,
    },
    Live,
    Ended,
}
impl std::fmt::Debug for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Starting(_) => "Starting",
            Self::Initial { .. } => "Initial",
            Self::Live => "Live",
            Self::Ended => "Ended",
        })
    }
}
impl Phase {
    /// Waits until the cache is as fresh as the start asks.
    pub(super) fn starting(
        start: WatchStart,
        store: Arc<dyn Store>,
        mut reached: Receiver<Reached>,
    ) -> Self {
        let fresh = match start {
            WatchStart::Initial(fresh) | WatchStart::Now(fresh) => fresh,
            WatchStart::After(_) => Fresh::Any,
        };
        Self::Starting(Box::pin(async move {
            let revision = match fresh {
                Fresh::Any => return Ok(()),
                Fresh::AtLeast(revision) => revision,
                Fresh::Newest => store.revision().await.map_err(ApiError::internal)?.0,
            };
            wait_fresh(&mut reached, revision).await
        }))
    }
    /// The initial events of a watcher that begins.
    pub(super) fn initial(begin: Begin, reached: u64) -> Self {
        Self::Initial { revision: begin.newest.max(reached), index: begin.index, after: None }
    }
}
