//! The ordered queue of deltas.
use super::{Delta, DeltaQueue, Keyed, QueueClosed};
use crate::key::Key;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::collections::{HashSet, VecDeque};
use tokio::sync::Notify;

/// How many deltas are taken out together at most: 1000, as client-go's `RealFIFO` (FIFO-15).
pub const BATCH_MAX: usize = 1000;

/// How many deltas wait at most. A full queue holds up the writer, and by it the reading of the watch (FIFO-16).
pub const DELTAS_MAX: usize = 2 * BATCH_MAX;

/// A plain sequence of deltas: one writer, one reader, no merging. client-go's `RealFIFO` in its atomic mode, where a relist is
/// one delta and the queue knows nothing of the cache.
///
/// # Theory
///
/// A delta leaves before it is processed and is never put back (FIFO-20). The writer waits while [`DELTAS_MAX`] wait; the reader
/// waits while there is none. Closing wakes both: the writer is refused, and the reader is given what is left, then `None`.
#[derive(Debug)]
pub struct OrderedFifo<T> {
    state: Mutex<State<T>>,
    filled: Notify,
    freed: Notify,
}

#[derive(Debug)]
struct State<T> {
    deltas: VecDeque<Delta<T>>,
    is_closed: bool,
}

impl<T> Default for OrderedFifo<T> {
    fn default() -> Self {
        Self {
            state: Mutex::new(State { deltas: VecDeque::new(), is_closed: false }),
            filled: Notify::new(),
            freed: Notify::new(),
        }
    }
}

impl<T: Keyed> OrderedFifo<T> {
    /// An empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    /// A batch is a run of deltas about single objects with distinct keys, so that what it does to the cache does not depend on
    /// where it is cut; any other delta comes alone (FIFO-15).
    async fn next_batch(&self) -> Option<Vec<Delta<T>>> {
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
}

impl<T: Keyed> DeltaQueue<T> for OrderedFifo<T> {
    fn offer(&self, delta: Delta<T>) -> Result<Option<Delta<T>>, QueueClosed> {
        let mut state = self.state.lock();
        if state.is_closed {
            return Err(QueueClosed);
        }
        if state.deltas.len() >= DELTAS_MAX {
            return Ok(Some(delta));
        }
        state.deltas.push_back(delta);
        drop(state);
        self.filled.notify_one();
        Ok(None)
    }

    fn freed(&self) -> BoxFuture<'_, ()> {
        // One writer: a permit that was left by an earlier batch makes it look again, no more.
        self.freed.notified().boxed()
    }

    fn pop_batch(&self) -> BoxFuture<'_, Option<Vec<Delta<T>>>> {
        self.next_batch().boxed()
    }

    fn close(&self) {
        self.state.lock().is_closed = true;
        self.filled.notify_one();
        self.freed.notify_one();
    }

    fn len(&self) -> usize {
        self.state.lock().deltas.len()
    }
}

fn batch_len<T: Keyed>(deltas: &VecDeque<Delta<T>>) -> usize {
    let mut keys: HashSet<&Key> = HashSet::new();
    let run = deltas
        .iter()
        .take(BATCH_MAX)
        .take_while(|delta| delta.item().is_some_and(|item| keys.insert(item.key())))
        .count();
    run.max(1)
}

#[cfg(test)]
mod tests;
