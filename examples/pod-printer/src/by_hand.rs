//! The same controller, wired by hand: informer → handler → queue → workers. What
//! [`controller`](crate::controller) leaves to the runtime stands here.
//!
//! What to look for: the handler takes the key and nothing else; workers start after the handler
//! has seen the first list, or every pod would look deleted; a worker reads the cache, where "not
//! there" means "deleted"; success forgets a key's failures, failure adds it again after a growing
//! pause, and after [`ATTEMPTS_MAX`] the controller gives up and says so. The queue's item says
//! `done` when it is dropped, whatever happens.

use crate::controller::{ATTEMPTS_MAX, Job};
use k8s_openapi::api::core::v1::Pod;
use setpoint::prelude::*;
use std::sync::Arc;
use tokio::task::JoinSet;

/// Runs the controller until `stop`: pods from `source`, `n_workers` at work. Dropping it stops
/// everything at once.
///
/// # Errors
///
/// When the informer ends before it has synced.
pub async fn run(
    source: impl ListWatch,
    n_workers: usize,
    job: impl Job,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let (informer, reflecting) = SharedInformer::<Pod>::builder(source).build();
    let queue = WorkQueue::<Key>::builder().build();
    let handler = {
        let queue = queue.clone();
        move |event: Event<Pod>| queue.add(event.key().clone())
    };
    let registration = informer.add_handler(handler, HandlerOptions::default())?;

    let mut tasks = JoinSet::new();
    tasks.spawn(reflecting.run(stop.clone()));
    tokio::select! {
        synced = registration.synced() => synced?,
        () = stop.cancelled() => {}
    }
    let job = Arc::new(job);
    for _ in 0..n_workers {
        tasks.spawn(work(queue.clone(), informer.lister(), job.clone()));
    }
    stop.cancelled().await;
    // No new keys; workers finish what they hold and what is queued, then end by themselves.
    queue.shut_down();
    while let Some(ended) = tasks.join_next().await {
        ended?;
    }
    Ok(())
}

async fn work(queue: WorkQueue<Key>, pods: Lister<Pod>, job: Arc<impl Job>) {
    while let Some(item) = queue.get().await {
        let key = item.key();
        let outcome = match pods.get(&key.namespace, &key.name) {
            Ok(pod) => job.run(key, pod),
            Err(error) => Err(error.into()),
        };
        match outcome {
            Ok(()) => queue.forget(key),
            Err(error) if queue.num_requeues(key) + 1 < ATTEMPTS_MAX => {
                tracing::warn!(%key, %error, "trying again");
                queue.add_rate_limited(key.clone());
            }
            Err(error) => {
                tracing::error!(%key, %error, "giving up after {ATTEMPTS_MAX} attempts, until the pod changes");
                queue.forget(key);
            }
        }
    }
}
