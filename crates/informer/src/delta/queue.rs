//! What every queue of deltas is, and the part that all of them share.
use super::batch::{Batch, Progress};
use super::{Delta, Keyed, Synced};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;
use tokio::task::coop::consume_budget;

/// How many deltas are taken out together at most: 1000, as client-go's `RealFIFO` (FIFO-15).
pub const BATCH_MAX: usize = 1000;

/// How many deltas wait at most. A full queue holds up the writer, and by it the reading of the
/// watch (FIFO-16).
///
/// A list or a resync that a queue takes apart goes in whole when there was room for one delta: it
/// is bounded by what a list may hold.
pub const DELTAS_MAX: usize = 2 * BATCH_MAX;

/// How many deltas a reader takes for one unit of its task's budget; tokio gives a poll 128 units.
const DELTAS_PER_BUDGET: usize = 8;

/// The queue was closed: nothing is taken in any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the delta queue is closed")]
pub struct QueueClosed;

/// A queue of deltas with one writer and one reader. See the [module's theory](super).
pub trait DeltaQueue<T: Keyed>: Send + Sync + 'static {
    /// Takes a delta in, or gives it back when it has to wait: until there is room, or until the
    /// batch that is out is processed.
    ///
    /// # Errors
    /// When the queue is closed.
    fn offer(&self, delta: Delta<T>) -> Result<Option<Delta<T>>, QueueClosed>;

    /// Waits until an offer that was given back may be taken, or the queue is closed.
    fn freed(&self) -> BoxFuture<'_, ()>;

    /// Takes out the next deltas; waits while there are none, and gives `None` once the queue is
    /// closed and empty (FIFO-20).
    ///
    /// The batch counts as being processed until it is dropped. Dropping the future loses nothing.
    fn pop_batch(&self) -> BoxFuture<'_, Option<Batch<T>>>;

    /// Refuses further deltas.
    fn close(&self);

    /// How many deltas wait.
    fn len(&self) -> usize;

    /// Whether none waits.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the first list has been processed, to be asked or awaited (FIFO-22).
    fn synced(&self) -> Synced;
}

/// Puts a delta into a queue; waits while it cannot be taken. Pays from the task's budget.
///
/// # Errors
/// When the queue is closed.
pub async fn push<T: Keyed>(
    queue: &dyn DeltaQueue<T>,
    mut delta: Delta<T>,
) -> Result<(), QueueClosed> {
    consume_budget().await;
    loop {
        match queue.offer(delta)? {
            None => return Ok(()),
            Some(refused) => delta = refused,
        }
        queue.freed().await;
    }
}

/// How a kind of queue keeps its deltas: what is behind the lock.
pub(super) trait Line<T>: Send + 'static {
    /// Whether a delta can only be taken while the store is up to date.
    fn needs_store(&self, delta: &Delta<T>) -> bool;

    /// Takes a delta in. `hash` is that of its key. The first write gives how large the initial
    /// population is (FIFO-22).
    fn take(&mut self, delta: Delta<T>, hash: Option<u64>) -> Option<usize>;

    /// Takes out the next batch.
    fn pop(&mut self) -> Option<Popped<T>>;

    /// How many deltas wait.
    fn len(&self) -> usize;
}

/// A batch as it leaves its line.
pub(super) struct Popped<T> {
    pub(super) deltas: Vec<Delta<T>>,
    pub(super) in_initial_list: bool,
    /// How much of the initial population it is.
    pub(super) n_initial: usize,
}

/// A line with its two ends: the lock, and who waits for whom.
#[derive(Debug)]
pub(super) struct Ends<L> {
    state: Mutex<State<L>>,
    filled: Notify,
    progress: Arc<Progress>,
    /// What the reader has still to pay for.
    owed: AtomicUsize,
}

#[derive(Debug)]
struct State<L> {
    line: L,
    is_closed: bool,
    /// The writer waits for room.
    is_refused: bool,
}

impl<L> Ends<L> {
    /// `asks_store`: whether the writer may have to wait for a batch to be processed.
    pub(super) fn new(line: L, asks_store: bool) -> Self {
        Self {
            state: Mutex::new(State { line, is_closed: false, is_refused: false }),
            filled: Notify::new(),
            progress: Arc::new(Progress::new(asks_store)),
            owed: AtomicUsize::new(0),
        }
    }

    pub(super) fn offer<T>(
        &self,
        delta: Delta<T>,
        hash: Option<u64>,
    ) -> Result<Option<Delta<T>>, QueueClosed>
    where
        L: Line<T>,
    {
        let mut state = self.state.lock();
        if state.is_closed {
            return Err(QueueClosed);
        }
        let waits = state.line.needs_store(&delta) && self.progress.is_processing();
        let n = state.line.len();
        if waits || n >= DELTAS_MAX {
            state.is_refused = true;
            return Ok(Some(delta));
        }
        if let Some(n_initial) = state.line.take(delta, hash) {
            self.progress.populated(n_initial);
        }
        // A reader waits only while there is nothing.
        let wakes = n == 0 && state.line.len() > 0;
        drop(state);
        if wakes {
            self.filled.notify_one();
        }
        Ok(None)
    }

    pub(super) async fn freed(&self) {
        // One writer: a permit that was left by an earlier batch makes it look again, no more.
        self.progress.freed.notified().await;
    }

    pub(super) async fn pop_batch<T>(&self) -> Option<Batch<T>>
    where
        L: Line<T>,
    {
        // Before a batch is taken, so that dropping this future here loses none.
        for _ in 0..self.owed.swap(0, Ordering::Relaxed) {
            consume_budget().await;
        }
        loop {
            let filled = self.filled.notified();
            {
                let mut state = self.state.lock();
                if let Some(popped) = state.line.pop() {
                    let n_waiting = state.line.len();
                    let batch = Batch::new(popped, n_waiting, self.progress.clone());
                    let was_refused = std::mem::take(&mut state.is_refused);
                    drop(state);
                    let owed = 1 + batch.deltas.len() / DELTAS_PER_BUDGET;
                    self.owed.store(owed, Ordering::Relaxed);
                    if was_refused {
                        self.progress.freed.notify_one();
                    }
                    return Some(batch);
                }
                if state.is_closed {
                    return None;
                }
            }
            filled.await;
        }
    }

    pub(super) fn close(&self) {
        self.state.lock().is_closed = true;
        self.filled.notify_one();
        self.progress.freed.notify_one();
    }

    pub(super) fn len<T>(&self) -> usize
    where
        L: Line<T>,
    {
        self.state.lock().line.len()
    }

    pub(super) fn synced(&self) -> Synced {
        self.progress.synced()
    }
}
