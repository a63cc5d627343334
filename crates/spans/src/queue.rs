//! Ended spans on their way to an exporter.

use crate::span::EndedSpan;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;

/// Maximum number of spans in the queue: 2048, as the batch processor of OpenTelemetry's SDKs.
pub const QUEUE_SPANS_MAX: usize = 2048;
/// Maximum memory of the spans in the queue, in bytes: 8 MiB, four KiB for each span.
pub const QUEUE_BYTES_MAX: usize = 8 << 20;

/// A bounded queue of ended spans. What does not fit is dropped and counted.
#[derive(Debug, Default)]
pub struct SpanQueue {
    state: Mutex<State>,
    /// Wakes the exporter at each span.
    added: Notify,
    dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    spans: VecDeque<EndedSpan>,
    n_bytes: usize,
}

impl SpanQueue {
    /// Adds a span, or drops and counts it.
    pub(crate) fn add(&self, span: EndedSpan) {
        let n_bytes = span.n_bytes();
        let is_added = {
            let mut state = self.state.lock();
            let fits = state.spans.len() < QUEUE_SPANS_MAX
                && state.n_bytes.saturating_add(n_bytes) <= QUEUE_BYTES_MAX;
            if fits {
                state.n_bytes += n_bytes;
                state.spans.push_back(span);
            }
            fits
        };
        match is_added {
            true => self.added.notify_one(),
            false => self.lost(1),
        }
    }

    /// Takes the oldest spans, at most `spans_max`.
    pub fn take(&self, spans_max: usize) -> Vec<EndedSpan> {
        let mut state = self.state.lock();
        let n = state.spans.len().min(spans_max);
        let taken: Vec<EndedSpan> = state.spans.drain(..n).collect();
        state.n_bytes -= taken.iter().map(EndedSpan::n_bytes).sum::<usize>();
        taken
    }

    /// Waits until the queue has at least `n` spans. Dropping the future takes nothing. One reader
    /// waits at a time.
    pub async fn has(&self, n: usize) {
        while self.len() < n {
            self.added.notified().await;
        }
    }

    /// How many spans are in the queue.
    pub fn len(&self) -> usize {
        self.state.lock().spans.len()
    }

    /// Whether there is no span in the queue.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Counts spans that an exporter has taken and could not send.
    pub fn lost(&self, n: u64) {
        self.dropped.fetch_add(n, Ordering::Relaxed);
    }

    /// How many spans were dropped or lost so far.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}
