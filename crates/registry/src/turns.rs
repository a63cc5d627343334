//! Turns of writers that wait for one object, or for the quotas of one namespace.
//!
//! Each commit of an object makes all its other writers start over. If they all did so at once, n
//! of them would take n² attempts. So a writer that has lost a race waits for its turn, and one
//! that charges quotas always does. Turns save work; correctness does not depend on them.

use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// The longest wait. A writer whose future is not polled would stop all others.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// The queues of objects that writers wait for. As many entries as requests in flight at most.
#[derive(Debug, Default)]
pub(crate) struct Turns(Arc<Mutex<Queues>>);

type Queues = HashMap<Bytes, Queue>;

/// The writers of one object, first come, first served.
#[derive(Debug)]
struct Queue {
    turn: Arc<Semaphore>,
    /// Those that wait, and the one whose turn it is.
    n_writers: usize,
}

/// A writer's place in a queue, which it leaves when this is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    queues: Arc<Mutex<Queues>>,
    key: Bytes,
    permit: Option<OwnedSemaphorePermit>,
}

impl Turns {
    /// Waits until no earlier writer of an object has its turn, but not longer than [`WAIT_MAX`].
    /// `false`: there was none.
    pub(crate) async fn wait(&self, key: &Bytes) -> (Turn, bool) {
        let (queue, has_waited) = {
            let mut queues = self.0.lock();
            let queue = queues
                .entry(key.clone())
                .or_insert_with(|| Queue { turn: Arc::new(Semaphore::new(1)), n_writers: 0 });
            queue.n_writers += 1;
            (queue.turn.clone(), queue.n_writers > 1)
        };
        let mut turn = Turn { queues: self.0.clone(), key: key.clone(), permit: None };
        turn.permit = timeout(WAIT_MAX, queue.acquire_owned()).await.ok().and_then(Result::ok);
        (turn, has_waited)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.permit.take();
        let mut queues = self.queues.lock();
        if let Entry::Occupied(mut queue) = queues.entry(self.key.clone()) {
            queue.get_mut().n_writers -= 1;
            if queue.get().n_writers == 0 {
                queue.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::{join_all, poll_immediate};
    use std::cell::RefCell;

    static KEY: Bytes = Bytes::from_static(b"a");
    static OTHER: Bytes = Bytes::from_static(b"b");

    #[tokio::test(start_paused = true)]
    async fn turns_of_an_object_come_one_after_the_other_and_leave_nothing() {
        let turns = Turns::default();
        let (first, waited) = turns.wait(&KEY).await;
        assert!(!waited);
        assert!(poll_immediate(turns.wait(&OTHER)).await.is_some());
        let order = RefCell::new(Vec::new());
        let writer = |n: usize| {
            let (turns, order) = (&turns, &order);
            async move {
                let (_turn, waited) = turns.wait(&KEY).await;
                tokio::task::yield_now().await;
                order.borrow_mut().push((n, waited));
            }
        };
        let mut given_up = Box::pin(turns.wait(&KEY));
        assert!(poll_immediate(&mut given_up).await.is_none());
        let mut all = Box::pin(join_all((0..3).map(writer)));
        assert!(poll_immediate(&mut all).await.is_none());
        drop((first, given_up));
        all.await;
        assert_eq!(*order.borrow(), [(0, true), (1, true), (2, true)]);
        assert!(turns.0.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_writer_that_does_not_end_stops_nobody() {
        let turns = Turns::default();
        let (first, _) = turns.wait(&KEY).await;
        let (second, waited) = turns.wait(&KEY).await;
        assert!(waited && second.permit.is_none());
        drop(second);
        assert_eq!(turns.0.lock().len(), 1);
        drop(first);
        assert!(turns.0.lock().is_empty());
    }
}
