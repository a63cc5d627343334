//! The same controller, wired by hand: informer → handler → queue → workers. In
//! [`controller`](crate::controller) the runtime does this.
//!
//! - The handler adds only the key to the queue.
//! - Workers start after the handler has seen the first list. Before that, every pod would look
//!   deleted.
//! - A worker reads the cache. A pod that is absent there is deleted.
//! - After a success the failures of the key are forgotten. After a failure the key is added again,
//!   with a growing delay. After [`ATTEMPTS_MAX`] attempts the controller gives up and logs it.
//! - The key is done when the queue's item is dropped, also after a panic.

use crate::controller::{ATTEMPTS_MAX, Job};
use k8s_openapi::api::core::v1::Pod;
use setpoint::prelude::*;
use std::sync::Arc;
use tokio::task::JoinSet;

/// Runs the controller until `stop`, with pods from `source` and `n_workers` workers. Dropping the
/// future stops everything at once.
///
/// # Errors
///
/// The informer ends before it has synced.
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
    // The queue accepts no new keys. Workers finish the queued ones and end.
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
