//! The tasks of one connection.
//!
//! # Theory
//!
//! Most requests are short, and most connections send one request at a time. A task for each would
//! often cost more than the response: it is allocated, moved to another thread, and both sides are
//! woken. So the first request of a connection, and the watches that start with it, run inside the
//! connection's own task. Requests that arrive while one of those is still without a response
//! become tasks, so that parallel requests get parallel responses.

use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use parking_lot::Mutex;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker, ready};
use tokio::task::JoinSet;

/// Tasks that a connection runs besides itself. They end with the connection.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    shared: Arc<Shared>,
    /// Futures that the connection's own task polls.
    here: FuturesUnordered<BoxFuture<'static, ()>>,
}

#[derive(Debug, Default)]
struct Shared {
    spawned: Mutex<JoinSet<()>>,
    /// Futures that the connection's own task will poll.
    arrived: Mutex<Arrived>,
    /// Requests without a response, wherever they run.
    n_unanswered: AtomicUsize,
}

#[derive(Default)]
struct Arrived {
    streams: Vec<BoxFuture<'static, ()>>,
    /// The connection's task is running, and will check for arrivals before it goes idle.
    is_polled: bool,
    waker: Option<Waker>,
}

impl std::fmt::Debug for Arrived {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Arrived").field(&self.streams.len()).finish()
    }
}

/// Starts tasks of a connection. Tasks may hold one: it does not keep the owner alive.
#[derive(Debug, Clone)]
pub(crate) struct Spawner(Weak<Shared>);

/// A request without a response yet.
#[derive(Debug)]
pub(crate) struct Unanswered(Weak<Shared>);

impl Tasks {
    pub(crate) fn spawner(&self) -> Spawner {
        Spawner(Arc::downgrade(&self.shared))
    }

    /// Begins a round of the connection's task, which ends with [`Tasks::go_on`].
    pub(crate) fn begin(&self, cx: &Context<'_>) {
        let mut arrived = self.shared.arrived.lock();
        arrived.is_polled = true;
        if !arrived.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            arrived.waker = Some(cx.waker().clone());
        }
    }

    /// Polls the futures in the connection's own task, including new arrivals.
    pub(crate) fn go_on(&mut self, cx: &mut Context<'_>) {
        loop {
            let arrived = std::mem::take(&mut self.shared.arrived.lock().streams);
            self.here.extend(arrived);
            while let Poll::Ready(Some(())) = self.here.poll_next_unpin(cx) {}
            let mut arrived = self.shared.arrived.lock();
            if arrived.streams.is_empty() {
                arrived.is_polled = false;
                return;
            }
        }
    }

    /// Waits for running futures, and for those they start.
    pub(crate) async fn finish(&mut self) {
        std::future::poll_fn(|cx| {
            self.begin(cx);
            self.go_on(cx);
            let mut spawned = self.shared.spawned.lock();
            while ready!(spawned.poll_join_next(cx)).is_some() {}
            if self.here.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

impl Spawner {
    /// Starts a task, unless the connection is gone.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let Some(shared) = self.0.upgrade() else { return };
        let mut spawned = shared.spawned.lock();
        while spawned.try_join_next().is_some() {}
        spawned.spawn(task);
    }

    /// Counts a request until the result is dropped.
    pub(crate) fn request(&self) -> Unanswered {
        if let Some(shared) = self.0.upgrade() {
            shared.n_unanswered.fetch_add(1, Ordering::Relaxed);
        }
        Unanswered(self.0.clone())
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        if let Some(shared) = self.0.upgrade() {
            shared.n_unanswered.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// hyper calls it with a request that has been counted, while it polls the connection.
impl<F> hyper::rt::Executor<F> for Spawner
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let Some(shared) = self.0.upgrade() else { return };
        if shared.n_unanswered.load(Ordering::Relaxed) > 1 {
            drop(shared);
            self.spawn(stream);
            return;
        }
        // As in a task of its own, a panic ends the stream only.
        let stream = AssertUnwindSafe(stream).catch_unwind().map(|_| ());
        let mut arrived = shared.arrived.lock();
        arrived.streams.push(stream.boxed());
        if !arrived.is_polled
            && let Some(waker) = &arrived.waker
        {
            waker.wake_by_ref();
        }
    }
}
