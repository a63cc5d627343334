//! Runs costly work on threads other than those that serve all requests.
//!
//! # Theory
//!
//! A future that computes for more than a few milliseconds between two waits is polled on a thread
//! that may block. The number of such concurrent polls is limited. Waits (the store, a webhook, a
//! timer) occupy neither a thread nor a place. If the future is dropped during a poll, it is
//! dropped at the end of that poll.
//!
//! A registry with a seed does everything on the caller's thread: the relative speed of two threads
//! is random, and a simulation must be a function of its seed.
use setpoint_object::ApiError;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use tokio::sync::{Notify, Semaphore};

/// Maximum number of concurrent polls.
///
/// Two: the largest body takes some tens of milliseconds, and the remaining processors serve other
/// requests. The same number as the API server's trees of large answers.
const POLLS_MAX: usize = 2;

/// Runs costly work with a limited number of concurrent polls.
#[derive(Debug)]
pub(crate) struct Threads {
    permits: Arc<Semaphore>,
    in_place: bool,
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
    /// Whether costly work should use [`Threads::run`].
    pub(crate) fn are_used(&self) -> bool {
        !self.in_place
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
        let mut future = Box::pin(future);
        let woken = Arc::new(Woken::default());
        loop {
            let permit = self.permits.clone().acquire_owned().await.map_err(ApiError::internal)?;
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
    async fn a_panic_is_an_error_and_releases_its_permit() {
        let threads = Threads::new(false);
        for _ in 0..=POLLS_MAX {
            let error = threads.run(async { panic!("on purpose") }).await.map(|(): ()| ());
            assert_eq!(error.unwrap_err().code(), 500);
        }
    }

    #[tokio::test]
    async fn with_a_seed_everything_runs_on_the_callers_thread() {
        let here = std::thread::current().id();
        let there = Threads::new(true).run(async { std::thread::current().id() }).await;
        assert_eq!(there.unwrap(), here);
    }
}
