//! Several threads.

use std::{
    sync::Arc,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Duration,
};

use setpoint_workqueue::{Exponential, WorkQueue};
use tokio::task::JoinSet;

/// WQ-11, WQ-12, WQ-31 (no add ever waits), properties 1, 2 and 19.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_worker_per_key_and_nothing_lost() {
    const N_KEYS: usize = 50;
    let limiter = Exponential::new(Duration::from_micros(1), Duration::from_micros(10)).unwrap();
    let queue: WorkQueue<usize> = WorkQueue::builder().rate_limiter(limiter).build();
    let held: Arc<Vec<AtomicBool>> =
        Arc::new((0..N_KEYS).map(|_| AtomicBool::new(false)).collect());
    let wanted: Arc<Vec<AtomicUsize>> =
        Arc::new((0..N_KEYS).map(|_| AtomicUsize::new(0)).collect());
    let served: Arc<Vec<AtomicUsize>> =
        Arc::new((0..N_KEYS).map(|_| AtomicUsize::new(0)).collect());

    let mut workers = JoinSet::new();
    for _ in 0..4 {
        let (queue, held, wanted, served) =
            (queue.clone(), held.clone(), wanted.clone(), served.clone());
        workers.spawn(async move {
            while let Some(item) = queue.get().await {
                let key = *item.key();
                assert!(!held[key].swap(true, Ordering::SeqCst), "two workers hold {key}");
                let seen = wanted[key].load(Ordering::SeqCst);
                tokio::task::yield_now().await;
                served[key].store(seen, Ordering::SeqCst);
                held[key].store(false, Ordering::SeqCst);
            }
        });
    }
    let mut producers = JoinSet::new();
    for producer in 0..2 {
        let (queue, wanted) = (queue.clone(), wanted.clone());
        producers.spawn(async move {
            for n in 0..5_000 {
                let key = (n * 7 + producer) % N_KEYS;
                wanted[key].fetch_add(1, Ordering::SeqCst);
                match n % 3 {
                    0 => queue.add(key),
                    1 => queue.add_after(key, Duration::from_micros(50)),
                    _ => queue.add_rate_limited(key),
                }
                if n % 64 == 0 {
                    tokio::task::yield_now().await;
                }
            }
        });
    }
    while let Some(joined) = producers.join_next().await {
        joined.unwrap();
    }
    while queue.waiting() > 0 {
        tokio::task::yield_now().await;
    }
    queue.shut_down_with_drain().await;
    while let Some(joined) = workers.join_next().await {
        joined.unwrap();
    }
    for key in 0..N_KEYS {
        assert_eq!(
            served[key].load(Ordering::SeqCst),
            wanted[key].load(Ordering::SeqCst),
            "an add of {key} was lost"
        );
    }
}

/// WQ-14, property 13.
#[tokio::test(start_paused = true)]
async fn cancelled_waiters_lose_nothing() {
    let queue = WorkQueue::builder().build();
    let mut served = 0;
    for n in 0..200_u64 {
        queue.add_after(n, Duration::from_millis(n % 7));
        // Gives up before, at and after the due time.
        if let Ok(Some(item)) =
            tokio::time::timeout(Duration::from_millis(n % 5), queue.get()).await
        {
            served += 1;
            item.done();
        }
    }
    while served < 200 {
        queue.get().await.unwrap().done();
        served += 1;
    }
    assert_eq!(queue.stats(), setpoint_workqueue::Stats::default());
}

/// WQ-14: a hot key does not monopolize a thread.
#[tokio::test(start_paused = true)]
async fn worker_that_always_finds_a_key_yields_to_others() {
    let queue = WorkQueue::builder().build();
    queue.add(0_u32);
    let mut tasks = JoinSet::new();
    let hot = queue.clone();
    tasks.spawn(async move {
        while let Some(item) = hot.get().await {
            hot.add(*item.key());
        }
    });
    tasks.spawn(async move { queue.shut_down() });
    while let Some(joined) = tasks.join_next().await {
        joined.unwrap();
    }
}
