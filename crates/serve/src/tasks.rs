//! The tasks of one connection.

use parking_lot::Mutex;
use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::task::ready;
use tokio::task::JoinSet;

/// Owns the tasks of a connection; they end with it.
#[derive(Debug, Default)]
pub(crate) struct Tasks(Arc<Mutex<JoinSet<()>>>);

/// Starts tasks of a connection. A task may hold one: it does not keep its owner.
#[derive(Debug, Clone)]
pub(crate) struct Spawner(Weak<Mutex<JoinSet<()>>>);

impl Tasks {
    pub(crate) fn spawner(&self) -> Spawner {
        Spawner(Arc::downgrade(&self.0))
    }

    /// Waits for what still runs, and for what that starts.
    pub(crate) async fn finish(&self) {
        poll_fn(|cx| {
            let mut tasks = self.0.lock();
            while ready!(tasks.poll_join_next(cx)).is_some() {}
            std::task::Poll::Ready(())
        })
        .await;
    }
}

impl Spawner {
    /// Starts a task, unless its connection is gone.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let Some(tasks) = self.0.upgrade() else { return };
        let mut tasks = tasks.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }
}

impl<F> hyper::rt::Executor<F> for Spawner
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        self.spawn(stream);
    }
}
