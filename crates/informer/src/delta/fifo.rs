//! The ordered queue of deltas.
use super::Delta;
use crate::key::Key;
use parking_lot::Mutex;
use std::collections::{HashSet, VecDeque};
use tokio::sync::Notify;

/// How many deltas are taken out together at most: 1000, as client-go's `RealFIFO` (FIFO-15).
pub const BATCH_MAX: usize = 1000;

/// How many deltas wait at most. A full queue holds up the writer, and by it the reading of the watch (FIFO-16).
pub const DELTAS_MAX: usize = 2 * BATCH_MAX;

/// The queue was closed: nothing is taken in any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the delta queue is closed")]
pub struct QueueClosed;

/// A plain sequence of deltas: one writer, one reader, no merging. client-go's `RealFIFO` in its atomic mode, where a relist is
/// one delta and the queue knows nothing of the cache.
///
/// # Theory
///
/// A delta leaves before it is processed and is never put back (FIFO-20). The writer waits while [`DELTAS_MAX`] wait; the reader
/// waits while there is none. Closing wakes both: the writer is refused, and the reader is given what is left, then `None`.
#[derive(Debug, Default)]
pub struct OrderedFifo {
    state: Mutex<State>,
    filled: Notify,
    freed: Notify,
}

#[derive(Debug, Default)]
struct State {
    deltas: VecDeque<Delta>,
    is_closed: bool,
}

impl OrderedFifo {
    /// An empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts a delta at the end; waits while the queue is full.
    ///
    /// # Errors
    /// When the queue is closed.
    pub async fn push(&self, delta: Delta) -> Result<(), QueueClosed> {
        let mut delta = Some(delta);
        loop {
            let freed = self.freed.notified();
            {
                let mut state = self.state.lock();
                if state.is_closed {
                    return Err(QueueClosed);
                }
                if state.deltas.len() < DELTAS_MAX {
                    state.deltas.extend(delta.take());
                    drop(state);
                    self.filled.notify_one();
                    return Ok(());
                }
            }
            freed.await;
        }
    }

    /// Takes out the next deltas; waits while there are none, and gives `None` once the queue is closed and empty.
    ///
    /// A batch is a run of deltas about single objects with distinct keys, so that what it does to the cache does not depend on
    /// where it is cut; any other delta comes alone (FIFO-15).
    pub async fn pop_batch(&self) -> Option<Vec<Delta>> {
        loop {
            let filled = self.filled.notified();
            {
                let mut state = self.state.lock();
                if !state.deltas.is_empty() {
                    let n = batch_len(&state.deltas);
                    let batch = state.deltas.drain(..n).collect();
                    if state.deltas.is_empty() && state.deltas.capacity() > BATCH_MAX {
                        // FIFO-17: a burst leaves no memory behind.
                        state.deltas = VecDeque::new();
                    }
                    drop(state);
                    self.freed.notify_one();
                    return Some(batch);
                }
                if state.is_closed {
                    return None;
                }
            }
            filled.await;
        }
    }

    /// Refuses further deltas.
    pub fn close(&self) {
        self.state.lock().is_closed = true;
        self.filled.notify_one();
        self.freed.notify_one();
    }

    /// How many deltas wait.
    pub fn len(&self) -> usize {
        self.state.lock().deltas.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn batch_len(deltas: &VecDeque<Delta>) -> usize {
    let mut keys: HashSet<&Key> = HashSet::new();
    let run = deltas
        .iter()
        .take(BATCH_MAX)
        .take_while(|delta| delta.record().is_some_and(|record| keys.insert(&record.key)))
        .count();
    run.max(1)
}

#[cfg(test)]
mod tests;
