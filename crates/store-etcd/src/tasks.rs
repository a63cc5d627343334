//! The tasks of one store, for its connections and feeds. They end with the store.

use parking_lot::Mutex;
use std::future::Future;
use tokio::task::{AbortHandle, JoinSet};

/// Owns every task of a store.
#[derive(Debug)]
pub(crate) struct Tasks {
    /// `None` once closed.
    set: Mutex<Option<JoinSet<()>>>,
}

impl Tasks {
    pub(crate) fn new() -> Self {
        Self { set: Mutex::new(Some(JoinSet::new())) }
    }

    /// Starts a task; `None` if the store is closed.
    pub(crate) fn spawn(
        &self,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> Option<AbortHandle> {
        let mut set = self.set.lock();
        let set = set.as_mut()?;
        // Removes finished tasks, so that the set holds running ones only.
        while set.try_join_next().is_some() {}
        Some(set.spawn(task))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.set.lock().is_none()
    }

    /// Aborts all tasks.
    pub(crate) fn abort(&self) {
        // Dropping the set aborts its tasks. Outside of the lock, because their destructors may
        // call this type.
        let set = self.set.lock().take();
        drop(set);
    }

    /// Aborts all tasks and waits for them.
    pub(crate) async fn close(&self) {
        let set = self.set.lock().take();
        if let Some(mut set) = set {
            set.shutdown().await;
        }
    }
}
