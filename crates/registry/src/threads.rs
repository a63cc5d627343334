//! Costly work off the threads that serve everybody.
//!
//! # Theory
//!
//! What takes more than a few milliseconds of computing between two waits is polled on a thread
//! that may be held up: few such polls at once, each with a turn of its own. Waits (the store, a
//! webhook, a timer) hold neither a thread nor a turn. A future that is dropped while it is polled
//! there is dropped at the end of that poll.
//!
//! A registry with a seed does everything in place: which of two threads is faster is chance, and a
//! simulation is a function of its seed.
use setpoint_object::ApiError;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use tokio::sync::{Notify, Semaphore};

/// Polls at once.
///
/// Two: the largest body takes some tens of milliseconds, and what is left of the processor is for
/// everybody else. As many as the API server's trees of large answers.
const TURNS_MAX: usize = 2;

/// The turns.
#[derive(Debug)]
pub(crate) struct Threads {
    turns: Arc<Semaphore>,
    in_place: bool,
}

/// Remembers a wake until somebody waits for it.
#[derive(Debug, Default)]
struct Woken(Notify);
impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

impl Threads {
    /// `in_place`: everything is done on the caller's thread.
    pub(crate) fn new(in_place: bool) -> Self {
        Self { turns: Arc::new(Semaphore::new(TURNS_MAX)), in_place }
    }
    /// Whether costly work is to be handed to [`Threads::run`].
    pub(crate) fn are_used(&self) -> bool {
        !self.in_place
    }
    /// Runs a future, each of its polls on a thread that may be held up.
    ///
    /// # Errors
    ///
    /// 500 when it panicked, or when the runtime is shutting down.
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
            let turn = self.turns.clone().acquire_owned().await.map_err(ApiError::internal)?;
            let waker = Waker::from(woken.clone());
            let polled = tokio::task::spawn_blocking(move || {
                let _turn = turn;
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
    async fn a_poll_that_holds_its_thread_up_holds_up_nobody_else() {
        let threads = Threads::new(false);
        let (tell, told) = mpsc::channel();
        let held = threads.run(async move {
            // Between two waits.
            tokio::time::sleep(Duration::from_secs(1)).await;
            let told = told.recv_timeout(Duration::from_secs(20));
            tokio::task::yield_now().await;
            told
        });
        let others = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            tokio::task::yield_now().await;
            tell.send("progress").unwrap();
        };
        let (held, ()) = tokio::join!(held, others);
        assert_eq!(held.unwrap(), Ok("progress"));
    }

    #[tokio::test]
    async fn a_panic_is_told_and_gives_its_turn_back() {
        let threads = Threads::new(false);
        for _ in 0..=TURNS_MAX {
            let error = threads.run(async { panic!("on purpose") }).await.map(|(): ()| ());
            assert_eq!(error.unwrap_err().code(), 500);
        }
    }

    #[tokio::test]
    async fn with_a_seed_everything_is_done_in_place() {
        let here = std::thread::current().id();
        let there = Threads::new(true).run(async { std::thread::current().id() }).await;
        assert_eq!(there.unwrap(), here);
    }
}
