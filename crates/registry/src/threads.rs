//! Runs costly work on threads other than those that serve all requests.
//!
//! # Theory
//!
//! A future that computes for more than a few milliseconds between two waits is polled on a thread
//! that may block. The number of such concurrent polls is limited. Waits (the store, a webhook, a
//! timer) occupy neither a thread nor a place. If the future is dropped during a poll, it is
//! dropped at the end of that poll.
//!
//! A future may run another one this way. Each has a task that waits for its places, because a
//! place goes to the one that waited longest, whether or not that one is polled then: were the
//! inner future's wait a part of the outer one, it would have a place that it cannot use until the
//! outer one has a place too, and two such futures would wait for each other forever.
//!
//! Most futures turn out to be cheap. They are polled on the caller's thread, and leave it when
//! they meet costly work ([`ServingThread`]). They go on where they are: nothing is done twice.
//!
//! A registry with a seed does everything on the caller's thread: the relative speed of two threads
//! is random, and a simulation must be a function of its seed.
use serde_json::Value;
use setpoint_object::{ApiError, encode};
use setpoint_schema::INLINE_BYTES_MAX;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;

/// Maximum number of concurrent polls.
///
/// Two: the largest body takes some tens of milliseconds, and the remaining processors serve other
/// requests. The same number as the API server's trees of large answers.
const POLLS_MAX: usize = 2;

/// Runs costly work with a limited number of concurrent polls. Clones share the limit.
#[derive(Debug, Clone)]
pub(crate) struct Threads {
    permits: Arc<Semaphore>,
    in_place: bool,
}

/// Whether a future still runs on a thread that serves all requests.
#[derive(Debug)]
pub(crate) struct ServingThread {
    is_leaving: AtomicBool,
    is_left: AtomicBool,
}
impl ServingThread {
    /// Of a future that starts there.
    pub(crate) fn new() -> Self {
        Self { is_leaving: AtomicBool::new(false), is_left: AtomicBool::new(false) }
    }
    /// Of a future that starts elsewhere, or that never leaves its thread.
    pub(crate) fn left() -> Self {
        Self { is_leaving: AtomicBool::new(true), is_left: AtomicBool::new(true) }
    }
    /// Leaves it if a tree is too large to be worked on there.
    pub(crate) async fn leave_if_large(&self, tree: &Value) {
        if !self.is_left() && encode::is_longer_than(tree, INLINE_BYTES_MAX) {
            self.leave().await;
        }
    }
    /// The same if work on so many bytes follows.
    pub(crate) async fn leave_if_long(&self, n_bytes: usize) {
        if n_bytes > INLINE_BYTES_MAX {
            self.leave().await;
        }
    }
    fn is_left(&self) -> bool {
        self.is_left.load(Ordering::Relaxed)
    }
    /// The rest of the future runs on a thread that may block. Costly work may follow.
    ///
    /// Dropping the future has no effect.
    pub(crate) async fn leave(&self) {
        self.is_leaving.store(true, Ordering::Relaxed);
        while !self.is_left() {
            // Ends this poll: the next one is made elsewhere.
            tokio::task::yield_now().await;
        }
    }
}

/// Stores a wake until the next wait.
#[derive(Debug, Default)]
struct Woken(Notify);
impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

impl Threads {
    /// `in_place`: everything runs on the caller's thread.
    pub(crate) fn new(in_place: bool) -> Self {
        Self { permits: Arc::new(Semaphore::new(POLLS_MAX)), in_place }
    }
    /// One more place for a poll, for a task that must not wait for others.
    pub(crate) fn with_own_place(&self) -> Self {
        Self { permits: Arc::new(Semaphore::new(1)), in_place: self.in_place }
    }
    /// Whether costly work should use [`Threads::run`].
    pub(crate) fn are_used(&self) -> bool {
        !self.in_place
    }
    /// Runs a future as [`Threads::run`] if it is costly, and on the caller's thread if not.
    ///
    /// # Errors
    ///
    /// As [`Threads::run`], if it is costly.
    pub(crate) async fn run_if<F>(&self, is_costly: bool, future: F) -> Result<F::Output, ApiError>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        match is_costly {
            true => self.run(future).await,
            false => Ok(future.await),
        }
    }
    /// Runs a future on the caller's thread until it leaves it, and then on threads that may block.
    ///
    /// The future is boxed already: an argument is kept beside what it becomes, so a large one
    /// would be in the caller's future several times.
    ///
    /// # Errors
    ///
    /// As [`Threads::run`], once it has left.
    pub(crate) async fn run_from_here<F>(
        &self,
        thread: &ServingThread,
        mut future: Pin<Box<F>>,
    ) -> Result<F::Output, ApiError>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        if thread.is_left() {
            return self.run(future).await;
        }
        let here = poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Pending if thread.is_leaving.load(Ordering::Relaxed) => {
                thread.is_left.store(true, Ordering::Relaxed);
                Poll::Ready(None)
            }
            polled => polled.map(Some),
        });
        match here.await {
            Some(output) => Ok(output),
            None => self.run(future).await,
        }
    }
    /// Runs a future and polls it on threads that may block.
    ///
    /// # Errors
    ///
    /// 500 if it panicked, or if the runtime is shutting down.
    pub(crate) async fn run<F>(&self, future: F) -> Result<F::Output, ApiError>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        if self.in_place {
            return Ok(future.await);
        }
        // Dropping the set ends the task.
        let mut task = JoinSet::new();
        task.spawn(poll_in_turn(self.permits.clone(), future));
        match task.join_next().await {
            Some(ended) => ended.map_err(ApiError::internal)?,
            None => Err(ApiError::internal("a task has no end")),
        }
    }
}

/// Polls a future, each time with one of the permits.
async fn poll_in_turn<F>(permits: Arc<Semaphore>, future: F) -> Result<F::Output, ApiError>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let mut future = Box::pin(future);
    let woken = Arc::new(Woken::default());
    loop {
        let permit = permits.clone().acquire_owned().await.map_err(ApiError::internal)?;
        let waker = Waker::from(woken.clone());
        let polled = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
            (future, polled)
        });
        match polled.await.map_err(ApiError::internal)? {
            (_, Poll::Ready(output)) => return Ok(output),
            (unfinished, Poll::Pending) => future = unfinished,
        }
        woken.0.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn a_blocking_poll_does_not_block_other_tasks() {
        let threads = Threads::new(false);
        let (sender, receiver) = mpsc::channel();
        let held = threads.run(async move {
            // Between two waits.
            tokio::time::sleep(Duration::from_secs(1)).await;
            let received = receiver.recv_timeout(Duration::from_secs(20));
            tokio::task::yield_now().await;
            received
        });
        let others = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            tokio::task::yield_now().await;
            sender.send("progress").unwrap();
        };
        let (held, ()) = tokio::join!(held, others);
        assert_eq!(held.unwrap(), Ok("progress"));
    }

    #[tokio::test]
    async fn futures_that_run_others_do_not_wait_for_each_other() {
        let threads = Threads::new(false);
        let barrier = Arc::new(std::sync::Barrier::new(POLLS_MAX));
        let outer = || {
            let (inner, barrier) = (threads.clone(), barrier.clone());
            threads.run(async move {
                // All places are taken when the inner futures begin to wait for one.
                barrier.wait();
                inner.run(async {}).await
            })
        };
        // Several times, because the one that is first to wait for its next poll may be lucky.
        for _ in 0..20 {
            let both = async { tokio::join!(outer(), outer()) };
            let ended = tokio::time::timeout(Duration::from_secs(20), both).await;
            assert!(ended.is_ok_and(|(a, b)| a.is_ok() && b.is_ok()));
        }
    }

    #[tokio::test]
    async fn a_dropped_future_is_dropped_and_releases_its_permit() {
        let threads = Threads::new(false);
        let held = Arc::new(());
        for _ in 0..=POLLS_MAX {
            let own = held.clone();
            let mut run = Box::pin(threads.run(async move {
                std::future::pending::<()>().await;
                drop(own);
            }));
            let polled = poll_fn(|context| Poll::Ready(run.as_mut().poll(context))).await;
            assert!(polled.is_pending());
        }
        // Those dropped before have left their places.
        assert_eq!(threads.run(async { 1 }).await.unwrap(), 1);
        while Arc::strong_count(&held) > 1 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_panic_is_an_error_and_releases_its_permit() {
        let threads = Threads::new(false);
        for _ in 0..=POLLS_MAX {
            let error = threads.run(async { panic!("on purpose") }).await.map(|(): ()| ());
            assert_eq!(error.unwrap_err().code(), 500);
        }
    }

    #[tokio::test]
    async fn a_future_leaves_the_callers_thread_once_and_goes_on_elsewhere() {
        let threads = Threads::new(false);
        let serving = Arc::new(ServingThread::new());
        let own = serving.clone();
        let future = async move {
            let first = std::thread::current().id();
            tokio::task::yield_now().await;
            let still = std::thread::current().id();
            own.leave().await;
            let there = std::thread::current().id();
            own.leave().await;
            (first, still, there)
        };
        let here = std::thread::current().id();
        let (first, still, there) =
            threads.run_from_here(&serving, Box::pin(future)).await.unwrap();
        assert_eq!((first, still), (here, here));
        assert_ne!(there, here);
        // One that starts elsewhere is never here.
        let there = async { std::thread::current().id() };
        let elsewhere = threads.run_from_here(&ServingThread::left(), Box::pin(there)).await;
        assert_ne!(elsewhere.unwrap(), here);
    }

    #[tokio::test]
    async fn a_future_that_never_leaves_ends_on_the_callers_thread() {
        let future = async {
            tokio::task::yield_now().await;
            std::thread::current().id()
        };
        let threads = Threads::new(false);
        let ended = threads.run_from_here(&ServingThread::new(), Box::pin(future)).await.unwrap();
        assert_eq!(ended, std::thread::current().id());
    }

    #[tokio::test]
    async fn with_a_seed_everything_runs_on_the_callers_thread() {
        let here = std::thread::current().id();
        let there = Threads::new(true).run(async { std::thread::current().id() }).await;
        assert_eq!(there.unwrap(), here);
    }
}
