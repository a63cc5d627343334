//! Resyncs: telling again what the cache holds, without asking a server.
use crate::delta::{self, Delta, DeltaQueue, Keyed, QueueClosed};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// When a reflector asks for resyncs (REF-40 to REF-42).
pub struct Resync {
    /// How often it asks; zero is never.
    pub period: Duration,
    /// Whether anybody wants one now.
    pub is_due: Box<dyn Fn() -> bool + Send + Sync>,
}

/// Asks at each period and queues a resync when somebody wants one. Runs beside a watch phase and
/// ends with it (REF-42).
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
