//! The status of an informer, and when it gives up.
use crate::support::*;
use futures::FutureExt;
use futures::future::join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use setpoint_informer::source::scripted::{Answer, Script, Step};
use setpoint_informer::{SharedInformer, SourceError, Stopped};
use setpoint_object::{ApiError, Reason};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

fn forbidden() -> SourceError {
    ApiError::new(403, Reason::Forbidden, "not you").into()
}

#[tokio::test(start_paused = true)]
async fn ref_33_a_degradation_that_lasts_may_be_awaited() {
    let script = Script::new((0..8).map(|_| no_list(internal())).chain([page("5", &[])]));
    let running = Running::start(builder(&script));
    let start = Instant::now();
    let degraded = running.informer.until_degraded_for(Duration::from_secs(60)).await.unwrap();
    assert_eq!(start.elapsed(), Duration::from_secs(60));
    assert!(degraded.failures >= 5 && degraded.refused_since.is_none());
    let again = running.informer.until_degraded_for(Duration::from_secs(60)).now_or_never();
    assert!(again.unwrap().is_ok(), "returns at once if it is already degraded");
    running.informer.synced().await.unwrap();
    settle().await;
    let informer = running.informer.clone();
    let waiting = informer.until_degraded_for(Duration::from_secs(1));
    running.end().await;
    assert_eq!(waiting.await.unwrap_err(), Stopped);
}

#[tokio::test(start_paused = true)]
async fn ref_33_callers_are_woken_in_order_of_arrival() {
    let script = Script::new((0..8).map(|_| no_list(internal())));
    let running = Running::start(builder(&script));
    let returned = Arc::new(Mutex::new(Vec::new()));
    let mut callers = JoinSet::new();
    for n in 0..20 {
        let (informer, returned) = (running.informer.clone(), returned.clone());
        callers.spawn(async move {
            let stopped = informer.until_degraded_for(Duration::from_secs(3_600)).await;
            returned.lock().push((n, stopped.unwrap_err()));
        });
    }
    settle().await;
    running.end().await;
    callers.join_all().await;
    assert_eq!(*returned.lock(), (0..20).map(|n| (n, Stopped)).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn ref_33_type_refused_for_too_long_ends_the_informer_if_configured() {
    for refusal in [missing as fn() -> SourceError, forbidden] {
        let script = Script::new((0..100).map(|_| no_list(refusal())));
        let mut running = Running::start(builder(&script).give_up_after(Duration::from_secs(300)));
        let start = Instant::now();
        let status = running.informer.stopped().await;
        assert_eq!(start.elapsed(), Duration::from_secs(300));
        assert!(status.has_given_up && status.has_stopped && !status.has_synced);
        assert_eq!(running.informer.synced().await, Err(Stopped));
        running.tasks.join_next().await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn ref_33_another_failure_or_success_restarts_the_time_to_give_up() {
    let mut answers: Vec<Answer> = (0..8).map(|_| no_list(missing())).collect();
    answers.push(no_list(internal()));
    answers.extend((0..8).map(|_| no_list(missing())));
    answers.push(page("5", &[]));
    let script = Script::new(answers);
    let running = Running::start(builder(&script).give_up_after(Duration::from_secs(400)));
    running.informer.synced().await.unwrap();
    pass(10_000).await;
    let status = running.informer.status();
    assert!(!status.has_given_up && !status.has_stopped && status.degraded.is_none());
    running.end().await;
}

async fn n_wait(informer: SharedInformer<ConfigMap>, n: usize) -> usize {
    join_all((0..n).map(|at| {
        let informer = informer.clone();
        async move {
            if at % 3 == 0 {
                // A waiter that stops waiting.
                let _ = informer.synced().now_or_never();
                tokio::task::yield_now().await;
            }
            usize::from(informer.synced().await.is_ok())
        }
    }))
    .await
    .into_iter()
    .sum()
}

async fn readiness() {
    let script = Script::new([page("5", &[("a", 1)])]);
    let (informer, worker) = SharedInformer::<ConfigMap>::builder(script).seed(0).build();
    let registration = Log::default().add(&informer);
    let (stop, mut run, mut waits) = (CancellationToken::new(), JoinSet::new(), JoinSet::new());
    for _ in 0..20 {
        waits.spawn(n_wait(informer.clone(), 50));
    }
    for n in 0..100 {
        let registration = registration.clone();
        let wait = waits.spawn(async move { usize::from(registration.synced().await.is_ok()) });
        if n % 2 == 0 {
            wait.abort();
        }
    }
    run.spawn(worker.run(stop.clone()));
    let mut n_ready = 0;
    for round in 0..20 {
        waits.spawn(n_wait(informer.clone(), round));
    }
    while let Some(waited) = waits.join_next().await {
        n_ready += waited.unwrap_or_default();
    }
    assert!(n_ready >= 20 * 50 + 50 + 190, "{n_ready}");
    stop.cancel();
    run.join_next().await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fifo_22_shi_9_readiness_is_missed_by_none_of_many_on_several_threads() {
    readiness().await;
}

#[tokio::test(start_paused = true)]
async fn fifo_22_shi_9_readiness_is_missed_by_none_of_many_on_one_thread() {
    readiness().await;
}

#[tokio::test(start_paused = true)]
async fn shi_6_ctl_1_a_stop_leaves_no_task() {
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let script = Script::new([page("5", &[("a", 1)]), Answer::Watch(vec![Step::Hang])]);
    let running = Running::start(builder(&script));
    let kept: Vec<_> = (0..5).map(|_| Log::default().add(&running.informer)).collect();
    pass(1).await;
    assert!(tasks() > before + 5);
    running.end().await;
    settle().await;
    assert_eq!(tasks(), before);
    drop(kept);
}
