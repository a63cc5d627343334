//! Many keys that fall due together.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Waker},
    time::Duration,
};

use setpoint_workqueue::{Builder, Group, Metrics, Priorities, WorkQueue};
use tokio::task::JoinSet;

/// More than two steps may move.
const N_KEYS: u32 = 10_000;

/// Counts the keys that became ready.
#[derive(Default)]
struct Ready(AtomicUsize);

impl Metrics for Ready {
    fn added(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A queue with [`N_KEYS`] keys, of which all are due.
async fn all_due(builder: Builder<u32>) -> WorkQueue<u32> {
    let queue = builder.build();
    for key in 0..N_KEYS {
        // Equal times come in the order of the adds.
        queue.add_after(key, Duration::from_millis(u64::from(1 + key / 1_000)));
    }
    tokio::time::advance(Duration::from_millis(100)).await;
    queue
}

#[tokio::test(start_paused = true)]
async fn get_moves_a_bounded_number_of_keys_that_fell_due_together() {
    let ready = Arc::new(Ready::default());
    let queue = all_due(WorkQueue::builder().metrics(ready.clone())).await;
    let mut n_before = 0;
    for key in 0..N_KEYS {
        assert_eq!(queue.try_get().map(|item| *item.key()), Some(key));
        let n_ready = ready.0.load(Ordering::Relaxed);
        assert!(n_ready - n_before <= 4_096, "{}", n_ready - n_before);
        n_before = n_ready;
    }
    assert!(queue.try_get().is_none());
}

#[tokio::test(start_paused = true)]
async fn keys_that_fell_due_together_are_all_counted_as_ready() {
    let queue = all_due(WorkQueue::builder()).await;
    assert!(!queue.cancel_delayed(&(N_KEYS - 1)), "due, so it does not wait");
    let stats = queue.stats();
    assert_eq!((stats.queued, stats.waiting), (N_KEYS as usize, 0));
}

#[tokio::test(start_paused = true)]
async fn due_key_behind_many_cancelled_ones_is_handed_out() {
    let queue = WorkQueue::builder().build();
    (0..N_KEYS).for_each(|key| queue.add_after(key, Duration::from_millis(10)));
    for key in 0..4_500 {
        assert!(queue.cancel_delayed(&key));
    }
    tokio::time::advance(Duration::from_millis(10)).await;
    assert_eq!(queue.try_get().map(|item| *item.key()), Some(4_500));
}

/// The group of the first keys has a limit of one key, so none of them is ready for the second
/// worker.
#[tokio::test(start_paused = true)]
async fn due_key_behind_many_blocked_ones_is_handed_out() {
    let builder = WorkQueue::builder()
        .groups(|key: &u32| Group::of(&(*key < N_KEYS - 1)))
        .group_in_flight_max(std::num::NonZeroU32::MIN);
    let queue = all_due(builder).await;
    let first = queue.try_get();
    assert_eq!(first.as_ref().map(|item| *item.key()), Some(0));
    let second = queue.try_get();
    assert_eq!(second.map(|item| *item.key()), Some(N_KEYS - 1));
}

#[tokio::test(start_paused = true)]
async fn every_waiter_is_woken_for_keys_that_fall_due_together() {
    for priorities in [None, Some(Priorities::Strict)] {
        let builder = WorkQueue::builder();
        let queue = match priorities {
            None => builder.build(),
            Some(priorities) => builder.priorities(priorities).build(),
        };
        let mut workers = JoinSet::new();
        for _ in 0..N_KEYS {
            let queue = queue.clone();
            workers.spawn(async move { queue.get().await.map(|item| *item.key()) });
        }
        tokio::task::yield_now().await;
        (0..N_KEYS).for_each(|key| queue.add_after(key, Duration::from_millis(10)));
        let mut keys = Vec::new();
        while let Some(key) = workers.join_next().await {
            keys.extend(key.unwrap());
        }
        keys.sort_unstable();
        assert_eq!(keys, Vec::from_iter(0..N_KEYS));
    }
}

/// Two workers wait without a timekeeper. The one that the add notified goes away before it runs.
#[tokio::test(start_paused = true)]
async fn key_falls_due_though_the_notified_worker_was_dropped() {
    let queue = WorkQueue::builder().build();
    let (mut first, mut second) = (Box::pin(queue.get()), Box::pin(queue.get()));
    let cx = &mut Context::from_waker(Waker::noop());
    assert!(first.as_mut().poll(cx).is_pending() && second.as_mut().poll(cx).is_pending());
    queue.add_after(1, Duration::from_millis(10));
    drop(first);
    let item = tokio::time::timeout(Duration::from_secs(1), second).await;
    assert_eq!(item.expect("the key falls due").map(|item| *item.key()), Some(1));
}
