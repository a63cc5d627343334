//! The length of a connection's turn, by the bytes that it moves.
//!
//! # Theory
//!
//! A task of tokio's runtime yields after 128 operations. A read or a write of a socket is one,
//! however long it is, so a connection that moves large bodies would have a turn of several
//! megabytes, and a small request on another connection would wait for the turns of all others. A
//! [`Turn`] takes a unit of the task's budget for each [`UNIT_BYTES`]: a turn ends after half a
//! megabyte, which is decrypted or encrypted in a fraction of a millisecond.
//!
//! Shorter turns delay small requests less. But a task whose budget is used up may wait for 61
//! others, so with a quarter of a megabyte a watcher of objects of 100 KB was outrun by four
//! writers of them.

use std::task::{Context, Poll};
use tokio::task::coop;

/// Bytes that cost as much of the budget as an operation.
const UNIT_BYTES: usize = 4 * 1024;

/// Counts the bytes that a connection moves.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    /// Bytes that have not been taken from the budget yet.
    n_bytes: usize,
}

impl Turn {
    /// Records bytes that were read or written. If this ends the turn, further operations of the
    /// task are pending, and it is woken.
    pub(crate) fn moved(&mut self, n_bytes: usize, cx: &mut Context<'_>) {
        self.n_bytes += n_bytes;
        while self.n_bytes >= UNIT_BYTES {
            let Poll::Ready(unit) = coop::poll_proceed(cx) else {
                // The next turn begins with a whole budget.
                self.n_bytes = 0;
                return;
            };
            unit.made_progress();
            self.n_bytes -= UNIT_BYTES;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use tokio::task::JoinSet;

    /// What one poll of a task returns.
    async fn in_a_task<T: Send + 'static>(
        mut poll: impl FnMut(&mut Context<'_>) -> T + Send + 'static,
    ) -> T {
        let mut tasks = JoinSet::new();
        tasks.spawn(poll_fn(move |cx| Poll::Ready(poll(cx))));
        tasks.join_next().await.unwrap().unwrap()
    }

    #[tokio::test]
    async fn half_a_megabyte_is_a_turn() {
        let mut turn = Turn::default();
        let n_reads = in_a_task(move |cx| {
            let mut n_reads = 0;
            while coop::has_budget_remaining() {
                turn.moved(16 * 1024, cx);
                n_reads += 1;
            }
            n_reads
        });
        assert_eq!(n_reads.await, 128 / 4);
    }

    #[tokio::test]
    async fn small_reads_add_up() {
        let mut turn = Turn::default();
        let is_over = in_a_task(move |cx| {
            (0..6_000).for_each(|_| turn.moved(64, cx));
            let after_a_part = !coop::has_budget_remaining();
            (0..3_000).for_each(|_| turn.moved(64, cx));
            (after_a_part, !coop::has_budget_remaining())
        });
        assert_eq!(is_over.await, (false, true));
    }
}
