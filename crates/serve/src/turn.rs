//! The length of a connection's turn, by the bytes that it moves.
//!
//! # Theory
//!
//! A task of tokio's runtime yields after 128 operations. A read or a write of a socket is one,
//! however long it is, so a connection that moves large bodies would have a turn of several
//! megabytes, and a small request on another connection would wait for the turns of all others. A
//! [`Turn`] takes a unit of the task's budget for each few kilobytes, so that a turn ends after
//! them.
//!
//! How many depends on how many connections of the server wait for their next turn. The turns of
//! all of them together have [`WAITING_BYTES`], which are encrypted in a few milliseconds, so that
//! is what a small request waits. But a turn has half a megabyte at most, and 64 KiB at least: a
//! task whose budget is used up may wait for 61 others, so with short turns while hardly any
//! connection waits, a watcher of objects of 100 KB was outrun by four writers of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use tokio::task::coop;

/// Operations in the budget of a tokio task.
const UNITS: usize = 128;
/// Bytes in the turns of all connections that wait for one.
const WAITING_BYTES: usize = 4 << 20;
/// The least and the most bytes that cost as much of the budget as an operation.
const UNIT_BYTES: [usize; 2] = [512, 4 * 1024];

/// The turns of a server's connections. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Turns {
    /// How many connections have used up their turn and wait for the next.
    n_waiting: Arc<AtomicUsize>,
}

impl Turns {
    /// Of a new connection.
    pub(crate) fn turn(&self) -> Turn {
        Turn { turns: self.clone(), n_bytes: 0, is_waiting: false }
    }

    /// Bytes for which a connection pays a unit now.
    fn unit_bytes(&self) -> usize {
        // The one that asks does not wait.
        let n = self.n_waiting.load(Ordering::Relaxed) + 1;
        let [least, most] = UNIT_BYTES;
        (WAITING_BYTES / UNITS / n).clamp(least, most)
    }
}

/// Counts the bytes that a connection moves.
#[derive(Debug)]
pub(crate) struct Turn {
    turns: Turns,
    /// Bytes that have not been taken from the budget yet.
    n_bytes: usize,
    /// Counted in the turns.
    is_waiting: bool,
}

impl Turn {
    /// Records bytes that were read or written. If this ends the turn, further operations of the
    /// task are pending, and it is woken.
    pub(crate) fn moved(&mut self, n_bytes: usize, cx: &mut Context<'_>) {
        self.began();
        self.n_bytes += n_bytes;
        let unit_bytes = self.turns.unit_bytes();
        while self.n_bytes >= unit_bytes
            && let Poll::Ready(unit) = coop::poll_proceed(cx)
        {
            unit.made_progress();
            self.n_bytes -= unit_bytes;
        }
        if !coop::has_budget_remaining() {
            // The next turn begins with a whole budget.
            self.n_bytes = 0;
            self.is_waiting = true;
            self.turns.n_waiting.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The peer sends or accepts nothing for now, unless the turn is over.
    pub(crate) fn blocked(&mut self) {
        if coop::has_budget_remaining() {
            self.began();
        }
    }

    fn began(&mut self) {
        if self.is_waiting {
            self.is_waiting = false;
            self.turns.n_waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.began();
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

    /// Reads of 16 KiB until the turn is over, and the turn.
    async fn use_up(mut turn: Turn) -> (usize, Turn) {
        let mut n_reads = 0;
        let reads = poll_fn(move |cx| {
            while coop::has_budget_remaining() {
                turn.moved(16 * 1024, cx);
                n_reads += 1;
            }
            let next = turn.turns.turn();
            Poll::Ready((n_reads, std::mem::replace(&mut turn, next)))
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(reads);
        tasks.join_next().await.unwrap().unwrap()
    }

    #[tokio::test]
    async fn half_a_megabyte_is_a_turn() {
        assert_eq!(use_up(Turns::default().turn()).await.0, 512 / 16);
    }

    #[tokio::test]
    async fn small_reads_add_up() {
        let mut turn = Turns::default().turn();
        let is_over = in_a_task(move |cx| {
            (0..6_000).for_each(|_| turn.moved(64, cx));
            let after_a_part = !coop::has_budget_remaining();
            (0..3_000).for_each(|_| turn.moved(64, cx));
            (after_a_part, !coop::has_budget_remaining())
        });
        assert_eq!(is_over.await, (false, true));
    }

    #[tokio::test]
    async fn turns_are_shorter_while_many_wait() {
        let turns = Turns::default();
        let mut waiting = vec![];
        let mut lengths = vec![];
        for _ in 0..100 {
            let (n_reads, turn) = use_up(turns.turn()).await;
            lengths.push(n_reads * 16);
            waiting.push(turn);
        }
        assert_eq!((lengths[0], lengths[7], lengths[31], lengths[99]), (512, 512, 128, 64));
        // A turn of each: some megabytes.
        assert_eq!(turns.n_waiting.load(Ordering::Relaxed), 100);
        drop(waiting);
        assert_eq!(turns.n_waiting.load(Ordering::Relaxed), 0);
        assert_eq!(use_up(turns.turn()).await.0, 512 / 16);
    }

    #[tokio::test]
    async fn a_connection_waits_until_it_moves_more_or_is_blocked() {
        let turns = Turns::default();
        let (_, turn) = use_up(turns.turn()).await;
        let (_, mut blocked) = use_up(turns.turn()).await;
        assert_eq!(turns.n_waiting.load(Ordering::Relaxed), 2);
        // In another task, whose budget is whole.
        let (n_reads, turn) = use_up(turn).await;
        assert_eq!(n_reads, 512 / 16);
        let n_waiting = turns.n_waiting.clone();
        let left = in_a_task(move |_| {
            blocked.blocked();
            n_waiting.load(Ordering::Relaxed)
        });
        assert_eq!(left.await, 1);
        drop(turn);
    }
}
