//! The tasks of connections. They end with their owner.

use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use tokio::task::JoinSet;

/// Owns the tasks.
#[derive(Debug, Default)]
pub(crate) struct Tasks(Arc<Mutex<JoinSet<()>>>);

/// Starts tasks, as hyper asks for. Does nothing once the owner is dropped.
#[derive(Debug, Clone)]
pub(crate) struct Spawner(Weak<Mutex<JoinSet<()>>>);

impl Tasks {
    pub(crate) fn spawner(&self) -> Spawner {
        Spawner(Arc::downgrade(&self.0))
    }
}

impl<F> hyper::rt::Executor<F> for Spawner
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        let Some(tasks) = self.0.upgrade() else { return };
        let mut tasks = tasks.lock();
        // Removes finished tasks, so that the set holds running ones only.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move { drop(future.await) });
    }
}
