//! A key in a worker's hands.

use std::{fmt, sync::Arc};

use super::{Shared, state::SlotIdx};

/// A key handed out to a worker; nobody else gets it until this is dropped.
///
/// Dropping is `done`, so a worker that panics or is cancelled gives its key back as well. A worker that wants to come back
/// calls [`WorkQueue::add_rate_limited`](crate::WorkQueue::add_rate_limited) *before* it drops the item: the key then waits
/// at the worker's side and starts to wait in the queue when done.
#[must_use = "dropping an item at once says that its work is done"]
pub struct Item<K> {
    shared: Arc<Shared<K>>,
    key: K,
    slot: SlotIdx,
}

impl<K> Item<K> {
    pub(super) fn new(shared: Arc<Shared<K>>, key: K, slot: SlotIdx) -> Self {
        Self { shared, key, slot }
    }

    /// The key.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// Gives the key back, as dropping does: to be written where a reader should see it.
    pub fn done(self) {}
}

impl<K> Drop for Item<K> {
    fn drop(&mut self) {
        let now = self.shared.metered_now();
        let (change, worked_for) = self.shared.state.lock().done(self.slot, now);
        if let (Some(metrics), Some(worked_for)) = (&self.shared.metrics, worked_for) {
            metrics.done(worked_for);
        }
        self.shared.announce(change);
    }
}

impl<K: fmt::Debug> fmt::Debug for Item<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Item").field(&self.key).finish()
    }
}
