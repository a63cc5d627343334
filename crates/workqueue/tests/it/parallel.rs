//! The parallelizer: section 7 of the rules.

use std::{
    future::ready,
    num::NonZeroUsize,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use parking_lot::Mutex;
use setpoint_workqueue::Parallelizer;
use tokio::task::JoinSet;

fn on(n_workers: usize) -> Parallelizer {
    Parallelizer::new(NonZeroUsize::new(n_workers).unwrap())
}

/// Runs `n_pieces` of one millisecond each. Returns which began, and the maximum at a time.
async fn begun(
    parallelizer: Parallelizer,
    stop: impl Future<Output = ()>,
    n_pieces: usize,
) -> (Vec<usize>, usize) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let active = Arc::new(AtomicUsize::new(0));
    let peak = Arc::new(AtomicUsize::new(0));
    let (log, most) = (seen.clone(), peak.clone());
    let work = move |piece| {
        let (log, active, most) = (log.clone(), active.clone(), most.clone());
        async move {
            log.lock().push(piece);
            most.fetch_max(active.fetch_add(1, SeqCst) + 1, SeqCst);
            tokio::time::sleep(Duration::from_millis(1)).await;
            active.fetch_sub(1, SeqCst);
        }
    };
    parallelizer.run_until(stop, n_pieces, work).await;
    let seen = seen.lock().clone();
    (seen, peak.load(SeqCst))
}

#[tokio::test(start_paused = true)]
async fn each_piece_runs_once_on_as_many_tasks_as_needed() {
    let never = std::future::pending;
    let (mut seen, peak) = begun(on(3), never(), 10).await;
    seen.sort_unstable();
    assert_eq!((seen, peak), ((0..10).collect(), 3));
    assert_eq!(begun(on(8), never(), 2).await.1, 2, "no more tasks than pieces");
    assert_eq!(begun(on(8), never(), 10).await.0.len(), 10);
    assert_eq!(begun(on(8).chunk(4), never(), 10).await.1, 3, "no more tasks than chunks");
    assert_eq!(begun(on(8).chunk(0), never(), 3).await.1, 3, "a chunk is one piece at least");
    assert_eq!(begun(on(8), never(), 0).await.0, [0; 0]);
}

#[tokio::test(start_paused = true)]
async fn pieces_of_a_chunk_run_in_order() {
    let (seen, _) = begun(on(1).chunk(4), std::future::pending(), 10).await;
    assert_eq!(seen, (0..10).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn stop_skips_pieces_that_have_not_begun() {
    assert_eq!(begun(on(2), ready(()), 10).await.0, [0; 0]);
    let stop = tokio::time::sleep(Duration::from_micros(2500));
    let (seen, _) = begun(on(2), stop, 100).await;
    assert!((4..=8).contains(&seen.len()), "{seen:?}");
}

#[tokio::test]
async fn panic_is_raised_after_the_others_have_ended() {
    let done = Arc::new(AtomicUsize::new(0));
    let count = done.clone();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let work = move |piece| {
            let count = count.clone();
            async move {
                assert_ne!(piece, 3, "piece three");
                count.fetch_add(1, SeqCst);
            }
        };
        AssertUnwindSafe(on(2).run(20, work)).0.await;
    });
    let error = tasks.join_next().await.unwrap().unwrap_err();
    let panic = error.into_panic();
    assert!(panic.downcast_ref::<String>().unwrap().contains("piece three"));
    assert_eq!(done.load(SeqCst), 19);
}
