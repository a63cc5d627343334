//! The tasks of one store: what drives its connections and feeds. They end with it.

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

    /// Starts a task; `None` when the store is closed.
    pub(crate) fn spawn(
        &self,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> Option<AbortHandle> {
        let mut set = self.set.lock();
        let set = set.as_mut()?;
        // Those that ended are let go: the set holds what runs.
        while set.try_join_next().is_some() {}
        Some(set.spawn(task))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.set.lock().is_none()
    }

    /// Ends all of them.
    pub(crate) fn abort(&self) {
        // Dropping the set aborts what is in it; outside of the lock, since tasks drop things that
        // may ask here.
        let set = self.set.lock().take();
        drop(set);
    }

    /// Ends all of them and waits for it.
    pub(crate) async fn close(&self) {
        let set = self.set.lock().take();
        if let Some(mut set) = set {
            set.shutdown().await;
        }
    }
}
