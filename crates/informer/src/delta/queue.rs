//! The trait of delta queues, and the parts that all of them share.
use super::batch::{Batch, Progress};
use super::{Delta, Keyed};
use crate::key::Key;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{Notify, watch};
use tokio::task::coop::consume_budget;

/// The largest number of deltas in a batch: 1000, as client-go's `RealFIFO` (FIFO-15).
pub const BATCH_MAX: usize = 1000;

/// The largest number of queued deltas. A full queue blocks the writer, which then does not read
/// the watch (FIFO-16).
///
/// A queue that splits lists and resyncs accepts one if it has room for one delta. Its memory is
/// then bounded by the size of a list.
pub const DELTAS_MAX: usize = 2 * BATCH_MAX;

/// How many deltas cost one unit of the reader's task budget; tokio gives a poll 128 units.
const DELTAS_PER_BUDGET: usize = 8;

/// The queue is closed and accepts nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the delta queue is closed")]
pub struct QueueClosed;

/// A queue of deltas with one reader, and writers on one task. See the [module's theory](super).
pub trait DeltaQueue<T: Keyed>: Send + Sync + 'static {
    /// Pushes a delta, or returns it if it has to wait: until there is room, or until the batch in
    /// process is dropped.
    ///
    /// # Errors
    /// If the queue is closed.
    fn offer(&self, delta: Delta<T>) -> Result<Option<Delta<T>>, QueueClosed>;

    /// Waits until a returned delta may be accepted, or the queue is closed.
    fn freed(&self) -> BoxFuture<'_, ()>;

    /// Pops the next deltas. Waits while there are none; `None` once the queue is closed and empty
    /// (FIFO-20).
    ///
    /// The batch is in process until it is dropped. Dropping the future loses nothing.
    fn pop_batch(&self) -> BoxFuture<'_, Option<Batch<T>>>;

    /// Refuses further deltas.
    fn close(&self);

    /// The number of queued deltas.
    fn len(&self) -> usize;

    /// Whether it has no deltas.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the first list has been processed (FIFO-22), to be read or awaited.
    fn synced(&self) -> Synced;
}

/// Pushes a delta; waits while the queue does not accept it. Consumes the task's budget.
///
/// # Errors
/// If the queue is closed.
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

/// The store behind a queue. It must contain the effects of the batches that the queue's reader has
/// processed.
///
/// The queue calls it under its lock, so that no delta is popped meanwhile. It must not call the
/// queue, and should be fast.
pub trait KnownObjects<T>: Send + Sync + 'static {
    /// The keys of all stored objects.
    fn keys(&self) -> Vec<Key>;
    /// One stored object.
    fn get(&self, key: &Key) -> Option<T>;
}

/// The content of a kind of queue, behind the lock.
pub(super) trait Line<T>: Send + 'static {
    /// Whether a delta needs a store without a batch in process.
    fn needs_store(&self, delta: &Delta<T>) -> bool;

    /// Pushes a delta. `hash` is the hash of its key. The first write returns the size of the
    /// initial population (FIFO-22).
    fn take(&mut self, delta: Delta<T>, hash: Option<u64>) -> Option<usize>;

    /// Pops the next batch.
    fn pop(&mut self) -> Option<Popped<T>>;

    /// The number of queued deltas.
    fn len(&self) -> usize;
}

/// A popped batch.
pub(super) struct Popped<T> {
    pub(super) deltas: Vec<Delta<T>>,
    pub(super) in_initial_list: bool,
    /// Its part of the initial population.
    pub(super) n_initial: usize,
}

/// A line with its lock and its waiting writers and reader.
#[derive(Debug)]
pub(super) struct Ends<L> {
    state: Mutex<State<L>>,
    filled: Notify,
    progress: Arc<Progress>,
    /// Units of budget that the reader has not consumed yet.
    owed: AtomicUsize,
}

#[derive(Debug)]
struct State<L> {
    line: L,
    is_closed: bool,
    /// A writer waits.
    is_refused: bool,
}

impl<L> Ends<L> {
    /// `needs_store`: whether a writer may have to wait for a batch in process.
    pub(super) fn new(line: L, needs_store: bool) -> Self {
        Self {
            state: Mutex::new(State { line, is_closed: false, is_refused: false }),
            filled: Notify::new(),
            progress: Arc::new(Progress::new(needs_store)),
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
        // A reader waits only while the queue is empty.
        let wakes = n == 0 && state.line.len() > 0;
        drop(state);
        if wakes {
            self.filled.notify_one();
        }
        Ok(None)
    }

    pub(super) async fn freed(&self) {
        // A permit of an earlier batch only makes a writer check again.
        self.progress.freed.notified().await;
    }

    pub(super) async fn pop_batch<T>(&self) -> Option<Batch<T>>
    where
        L: Line<T>,
    {
        // Before a batch is popped, so that dropping this future loses nothing.
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
                        self.progress.wake_writers();
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
        self.progress.wake_writers();
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

/// Whether the first list of a queue has been processed. Any number of tasks may read or await it.
///
/// If the first write is a list, true once all of it has been *processed*: popped objects are not
/// in the store yet, though client-go's `DeltaFIFO` counts them (FIFO-22). If the first write is a
/// single object, true at once. Never reverts, not even at a relist.
#[derive(Debug, Clone)]
pub struct Synced(pub(super) watch::Receiver<bool>);

impl Synced {
    /// The present value.
    pub fn get(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it is true.
    ///
    /// # Errors
    /// If it cannot become true, since the queue and all its batches are gone.
    pub async fn wait(&self) -> Result<(), QueueClosed> {
        self.0.clone().wait_for(|synced| *synced).await.map_or(Err(QueueClosed), |_| Ok(()))
    }
}
