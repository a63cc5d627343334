//! A controller's life: sources, then workers, then the end.

use std::sync::Arc;

use parking_lot::Mutex;
use rand::{SeedableRng, rngs::SmallRng};
use setpoint_informer::HandlerRegistration;
use setpoint_object::time::Clock;
use tokio::{sync::Notify, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::{
    Controller, ControllerError, ControllerState, Shared, catch_up::Caches, error::panic_message,
    worker::Worker,
};
use crate::{
    cache::Cache, client::Client, event::EventRecorder, reconciler::BoxError, request::RequestKey,
    watch::BoundSource,
};

/// What a controller lives in.
#[derive(Clone)]
pub(crate) struct Environment {
    pub(crate) client: Client,
    pub(crate) recorder: EventRecorder,
    pub(crate) clock: Clock,
    pub(crate) seed: u64,
}

/// A controller whose informers have been requested.
pub(crate) struct BoundController<R> {
    controller: Controller<R>,
    sources: Vec<BoundSource<R>>,
}

/// Removes a controller's handlers from the informers it shares, however it ends.
struct Handlers(Vec<HandlerRegistration>);

impl Drop for Handlers {
    fn drop(&mut self) {
        self.0.iter().for_each(HandlerRegistration::remove);
    }
}

/// Says that a controller has ended, however it ends.
struct Ended(Arc<Shared>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.state.send_replace(ControllerState::Stopped);
    }
}

impl<R: RequestKey> Controller<R> {
    /// Requests the informers that the controller watches.
    pub(crate) fn bind(mut self, cache: &Cache) -> BoundController<R> {
        let sources = std::mem::take(&mut self.sources)
            .into_iter()
            .map(|source| source.bind(cache))
            .collect();
        BoundController { controller: self, sources }
    }
}

impl<R: RequestKey> BoundController<R> {
    /// Runs until `stop`; then lets the passes that run finish. Dropping it ends them where they wait.
    pub(crate) async fn run(
        self,
        environment: Environment,
        stop: CancellationToken,
    ) -> Result<(), ControllerError> {
        let Self { controller, sources } = self;
        let Controller { reconciler, options, channels, queue, shared, .. } = controller;
        let name = options.name.clone();
        let _ended = Ended(shared.clone());
        shared.state.send_replace(ControllerState::Syncing);

        let mut handlers = Handlers(Vec::new());
        let mut awaited = Vec::new();
        let mut watched = Vec::new();
        let arrived = Arc::new(Notify::new());
        for BoundSource { resource, status, resource_version, start } in sources {
            let Ok(registration) = start(queue.clone(), arrived.clone()) else {
                return Err(ControllerError::SourceStopped { name, resource });
            };
            handlers.0.push(registration.clone());
            watched.push((resource.clone(), resource_version));
            awaited.push((resource, status, registration));
        }
        let deadline =
            options.sync_timeout.map(|timeout| (timeout, tokio::time::Instant::now() + timeout));
        for (resource, status, registration) in awaited {
            let expired = async {
                match deadline {
                    Some((timeout, deadline)) => {
                        tokio::time::sleep_until(deadline).await;
                        timeout
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                synced = registration.synced() => if synced.is_err() {
                    if stop.is_cancelled() {
                        return Ok(());
                    }
                    return Err(ControllerError::SourceStopped { name, resource });
                },
                timeout = expired => {
                    let source = status().degraded.map(|degraded| BoxError::from(degraded.error));
                    return Err(ControllerError::SyncTimeout { name, resource, timeout, source });
                }
            }
        }

        tracing::info!(controller = %name, workers = options.n_workers, "running");
        shared.state.send_replace(ControllerState::Running);
        let mut pumps = JoinSet::new();
        for mut keys in channels {
            let queue = queue.clone();
            pumps.spawn(async move {
                while let Some(key) = keys.recv().await {
                    queue.add(key);
                }
            });
        }
        let n_workers = options.n_workers;
        let worker = Arc::new(Worker {
            reconciler,
            client: environment.client,
            recorder: environment.recorder,
            clock: environment.clock,
            options,
            queue: queue.clone(),
            stop: stop.clone(),
            caches: Caches { watched, arrived },
            ids: Mutex::new(SmallRng::seed_from_u64(environment.seed)),
            shared,
        });
        let mut workers = JoinSet::new();
        for _ in 0..n_workers {
            let worker = worker.clone();
            workers.spawn(async move { worker.run().await });
        }
        drop(worker);

        // A worker ends by itself only when it fails.
        let first = tokio::select! {
            biased;
            () = stop.cancelled() => None,
            ended = workers.join_next() => ended,
        };
        queue.shut_down();
        drop(handlers);
        let mut failure = None;
        let mut ended = first;
        loop {
            match ended {
                Some(Ok(Err(error))) => _ = failure.get_or_insert(error),
                Some(Err(error)) if error.is_panic() => {
                    let message = panic_message(&*error.into_panic());
                    failure.get_or_insert(ControllerError::Panic { name: name.clone(), message });
                }
                Some(_) => {}
                None if workers.is_empty() => break,
                None => {}
            }
            ended = workers.join_next().await;
        }
        failure.map_or(Ok(()), Err)
    }
}
