//! Whether a queue's first list has been processed.
use super::QueueClosed;
use tokio::sync::watch;

/// Whether the first list of a queue has been processed. Any number of tasks may read or await it.
///
/// If the first write is a list, true once all of it has been *processed*: popped objects are not
/// in the store yet, though client-go's `DeltaFIFO` counts them (FIFO-22). If the first write is a
/// single object, true at once. Never reverts, not even at a relist.
#[derive(Debug, Clone)]
pub struct Synced(pub(super) watch::Receiver<bool>);

impl Synced {
    /// The present value.
    pub fn get(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it is true.
    ///
    /// # Errors
    /// If it cannot become true, since the queue and all its batches are gone.
    pub async fn wait(&self) -> Result<(), QueueClosed> {
        self.0.clone().wait_for(|synced| *synced).await.map_or(Err(QueueClosed), |_| Ok(()))
    }
}
