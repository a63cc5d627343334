//! Whether a queue's first list has been processed.
use super::QueueClosed;
use tokio::sync::watch;

/// Whether the first list of a queue has been processed, as something that any number of tasks may
/// ask and await.
///
/// True once something was written and everything of the first write, if that was a list, has been
/// *processed*: what was popped only is not in the store yet (client-go's `DeltaFIFO` counts it all
/// the same, FIFO-22). If the first write was a single object, true at once. Never reverts, relists
/// included.
#[derive(Debug, Clone)]
pub struct Synced(pub(super) watch::Receiver<bool>);

impl Synced {
    /// Whether it is so now.
    pub fn get(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it is so.
    ///
    /// # Errors
    /// When it cannot become so any more: the queue and every batch of it are gone.
    pub async fn wait(&self) -> Result<(), QueueClosed> {
        self.0.clone().wait_for(|synced| *synced).await.map_or(Err(QueueClosed), |_| Ok(()))
    }
}
