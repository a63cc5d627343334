//! Many pieces of work on a few tasks.

use std::{
    future::Future,
    num::NonZeroUsize,
    panic,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use tokio::task::JoinSet;

/// Runs a fixed number of pieces of work on a fixed number of tasks: client-go's
/// `ParallelizeUntil`.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use setpoint_workqueue::Parallelizer;
/// use std::{num::NonZeroUsize, sync::{Arc, Mutex}};
///
/// let squares = Arc::new(Mutex::new(vec![0; 10]));
/// let seen = squares.clone();
/// Parallelizer::new(NonZeroUsize::new(4).unwrap())
///     .run(10, move |piece| {
///         let seen = seen.clone();
///         async move { seen.lock().unwrap()[piece] = piece * piece }
///     })
///     .await;
/// assert_eq!(squares.lock().unwrap()[9], 81);
/// # });
/// ```
#[derive(Debug, Clone, Copy)]
#[must_use = "a parallelizer does nothing until it runs"]
pub struct Parallelizer {
    n_workers: NonZeroUsize,
    chunk: usize,
}

impl Parallelizer {
    /// Uses this many tasks, with one piece at a time each.
    pub fn new(n_workers: NonZeroUsize) -> Self {
        Self { n_workers, chunk: 1 }
    }

    /// Hands each task `n` pieces at a time, which run in order; zero means one. For very small
    /// pieces.
    pub fn chunk(self, n: usize) -> Self {
        Self { chunk: n.max(1), ..self }
    }

    /// Runs `work` for each of `0..n_pieces`.
    ///
    /// Needs a tokio runtime. Dropping the future aborts the tasks.
    ///
    /// # Panics
    ///
    /// With the first panic of `work`, after all tasks have ended. The task that panicked runs no
    /// more pieces; the others continue.
    pub async fn run<F, W>(&self, n_pieces: usize, work: F)
    where
        F: Fn(usize) -> W + Send + Sync + 'static,
        W: Future<Output = ()> + Send + 'static,
    {
        self.run_until(std::future::pending(), n_pieces, work).await;
    }

    /// As [`run`](Self::run), until `stop` completes. Pieces that have not begun by then are
    /// skipped, and running ones finish.
    ///
    /// # Panics
    ///
    /// As [`run`](Self::run).
    pub async fn run_until<F, W>(&self, stop: impl Future<Output = ()>, n_pieces: usize, work: F)
    where
        F: Fn(usize) -> W + Send + Sync + 'static,
        W: Future<Output = ()> + Send + 'static,
    {
        let chunk = self.chunk;
        let n_chunks = n_pieces.div_ceil(chunk);
        let shared = Arc::new(Pieces {
            work,
            next_chunk: AtomicUsize::new(0),
            is_stopped: AtomicBool::new(false),
        });
        let mut stop = pin!(stop);
        let mut tasks = JoinSet::new();
        let mut first_panic = None;
        let mut is_begun = false;
        loop {
            tokio::select! {
                // Without `biased` it is random whether an early stop is seen before the first
                // piece.
                biased;
                // Cancel safe: it is pinned outside, and not polled again once it has completed.
                () = &mut stop, if !shared.is_stopped.load(Ordering::Relaxed) => {
                    shared.is_stopped.store(true, Ordering::Relaxed);
                }
                // Cancel safe: it starts all tasks or none.
                () = std::future::ready(()), if !is_begun => {
                    is_begun = true;
                    for _ in 0..self.n_workers.get().min(n_chunks) {
                        tasks.spawn(shared.clone().work_off(n_pieces, chunk));
                    }
                }
                // Cancel safe: a dropped `join_next` has taken nothing.
                joined = tasks.join_next() => match joined {
                    Some(Ok(())) => {}
                    Some(Err(error)) => {
                        if first_panic.is_none() && error.is_panic() {
                            first_panic = Some(error.into_panic());
                        }
                    }
                    None => break,
                },
            }
        }
        if let Some(first_panic) = first_panic {
            panic::resume_unwind(first_panic);
        }
    }
}

/// State shared by the tasks.
struct Pieces<F> {
    work: F,
    next_chunk: AtomicUsize,
    is_stopped: AtomicBool,
}

impl<F, W> Pieces<F>
where
    F: Fn(usize) -> W,
    W: Future<Output = ()>,
{
    async fn work_off(self: Arc<Self>, n_pieces: usize, chunk: usize) {
        loop {
            let start = self.next_chunk.fetch_add(1, Ordering::Relaxed).saturating_mul(chunk);
            if start >= n_pieces {
                return;
            }
            for piece in start..start.saturating_add(chunk).min(n_pieces) {
                if self.is_stopped.load(Ordering::Relaxed) {
                    return;
                }
                (self.work)(piece).await;
                tokio::task::consume_budget().await;
            }
        }
    }
}
