//! Resyncs: notify handlers of all cached objects again, without a request to the server.
use crate::delta::{self, Delta, DeltaQueue, Keyed, QueueClosed};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// When a reflector queues resyncs (REF-40 to REF-42).
pub struct Resync {
    /// The time between two checks of `is_due`; zero is never.
    pub period: Duration,
    /// Whether a handler wants a resync now.
    pub is_due: Box<dyn Fn() -> bool + Send + Sync>,
}

/// Queues a resync in each period in which a handler wants one. Runs during a watch phase (REF-42).
pub(super) async fn ticks<T: Keyed>(
    resync: Option<Arc<Resync>>,
    queue: Arc<dyn DeltaQueue<T>>,
) -> QueueClosed {
    let Some(resync) = resync else { return std::future::pending().await };
    loop {
        sleep(resync.period).await;
        if (resync.is_due)()
            && let Err(closed) = delta::push(&*queue, Delta::SyncAll).await
        {
            return closed;
        }
    }
}
