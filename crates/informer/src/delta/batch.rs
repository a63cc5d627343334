//! Deltas in process.
use super::queue::Popped;
use super::{Delta, Synced};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// The time per delta above which a batch is slow: 100 ms, as client-go (FIFO-21). A slow batch is
/// logged if other deltas wait.
const SLOW_DELTA: Duration = Duration::from_millis(100);

/// The time above which any batch is slow: 1 s, as client-go.
const SLOW_BATCH: Duration = Duration::from_secs(1);

/// The minimum number of waiting deltas for the warning: more than 10, as client-go.
const SLOW_WAITING: usize = 10;

/// Deltas that have left a queue. They are in process while this exists.
///
/// From an ordered queue: deltas about single objects with distinct keys, at most
/// [`BATCH_MAX`](super::BATCH_MAX), or one delta about all objects (FIFO-15). From a keyed queue:
/// deltas with distinct keys, or all deltas of one key.
///
/// Dropping it marks the deltas as processed: drop it after the store has changed. Iterating over
/// it by value drops it at the end of the loop; taking [`deltas`](Self::deltas) out
/// (`std::mem::take`) does not drop it.
#[must_use = "dropping a batch marks it as processed"]
pub struct Batch<T> {
    /// The deltas, oldest first.
    pub deltas: Vec<Delta<T>>,
    /// Whether they were pushed before the queue was synced (FIFO-23).
    pub in_initial_list: bool,
    n_initial: usize,
    n_deltas: usize,
    n_waiting: usize,
    since: Option<Instant>,
    progress: Arc<Progress>,
}

impl<T> Batch<T> {
    pub(super) fn new(popped: Popped<T>, n_waiting: usize, progress: Arc<Progress>) -> Self {
        progress.started();
        let Popped { deltas, in_initial_list, n_initial } = popped;
        let since = (n_waiting > SLOW_WAITING).then(Instant::now);
        let n_deltas = deltas.len();
        Self { deltas, in_initial_list, n_initial, n_deltas, n_waiting, since, progress }
    }
}

impl<T: fmt::Debug> fmt::Debug for Batch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("deltas", &self.deltas)
            .field("in_initial_list", &self.in_initial_list)
            .finish_non_exhaustive()
    }
}

impl<T> Drop for Batch<T> {
    fn drop(&mut self) {
        self.progress.finished(self.n_initial);
        if let Some(since) = self.since {
            let elapsed = since.elapsed();
            if is_slow(elapsed, self.n_deltas) {
                let (n_deltas, n_waiting) = (self.n_deltas, self.n_waiting);
                tracing::warn!(?elapsed, n_deltas, n_waiting, "deltas are processed slowly");
            }
        }
    }
}

/// Whether this is too long for processing this number of deltas (FIFO-21).
fn is_slow(elapsed: Duration, n_deltas: usize) -> bool {
    let n_deltas = u32::try_from(n_deltas).unwrap_or(u32::MAX);
    elapsed > SLOW_DELTA.saturating_mul(n_deltas).min(SLOW_BATCH)
}

impl<T> IntoIterator for Batch<T> {
    type Item = Delta<T>;
    type IntoIter = IntoIter<T>;

    fn into_iter(mut self) -> IntoIter<T> {
        IntoIter { deltas: std::mem::take(&mut self.deltas).into_iter(), _batch: self }
    }
}

/// The deltas of a batch. Dropping it marks the batch as processed.
#[derive(Debug)]
pub struct IntoIter<T> {
    deltas: std::vec::IntoIter<Delta<T>>,
    _batch: Batch<T>,
}

impl<T> Iterator for IntoIter<T> {
    type Item = Delta<T>;

    fn next(&mut self) -> Option<Delta<T>> {
        self.deltas.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.deltas.size_hint()
    }
}

impl<T> ExactSizeIterator for IntoIter<T> {}

/// The progress of the batches of one queue.
#[derive(Debug)]
pub(super) struct Progress {
    synced: watch::Sender<bool>,
    /// How much of the initial population is not processed.
    n_initial: AtomicUsize,
    /// How many batches are in process.
    n_out: AtomicUsize,
    /// Wakes the writers.
    pub(super) freed: Notify,
    /// Whether a writer may wait for a batch to be processed.
    wakes_writers: bool,
}

impl Progress {
    pub(super) fn new(wakes_writers: bool) -> Self {
        Self {
            synced: watch::Sender::new(false),
            n_initial: AtomicUsize::new(0),
            n_out: AtomicUsize::new(0),
            freed: Notify::new(),
            wakes_writers,
        }
    }

    /// The first write. Called once, before any of it can leave the queue.
    pub(super) fn populated(&self, n_initial: usize) {
        if n_initial == 0 {
            self.synced.send_replace(true);
        } else {
            self.n_initial.store(n_initial, Ordering::Release);
        }
    }

    pub(super) fn is_processing(&self) -> bool {
        // Reading zero synchronizes with everything that the reader did before it dropped the
        // batch.
        self.n_out.load(Ordering::Acquire) > 0
    }

    pub(super) fn synced(&self) -> Synced {
        Synced(self.synced.subscribe())
    }

    fn started(&self) {
        self.n_out.fetch_add(1, Ordering::Relaxed);
    }

    fn finished(&self, n_initial: usize) {
        self.n_out.fetch_sub(1, Ordering::Release);
        if n_initial > 0 && self.n_initial.fetch_sub(n_initial, Ordering::AcqRel) == n_initial {
            self.synced.send_replace(true);
        }
        if self.wakes_writers {
            self.wake_writers();
        }
    }

    /// Has every writer check again, also one that was refused and does not wait yet. A reflector
    /// has two: of changes and of resyncs.
    pub(super) fn wake_writers(&self) {
        self.freed.notify_waiters();
        self.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fifo_21_slow_is_100_ms_a_delta_and_at_most_a_second() {
        let ms = Duration::from_millis;
        assert!(is_slow(ms(101), 1) && !is_slow(ms(100), 1));
        assert!(is_slow(ms(501), 5) && !is_slow(ms(500), 5));
        assert!(is_slow(ms(1001), 1000) && !is_slow(ms(1000), 1000));
    }
}
