//! A controller's life: sources, then workers, then the end.

use std::sync::{Arc, atomic::Ordering};

use setpoint_object::time::Clock;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{
    Controller, ControllerDefaults, ControllerError, ControllerState, Shared,
    options::Options,
    start::Started,
    worker::{Ids, Worker},
};
use crate::{
    broken::Rule,
    client::Client,
    context::Home,
    error::panic_message,
    events::EventRecorder,
    fence::Fence,
    request::RequestKey,
    shard::{Attached, Gate},
    source::IndexRefused,
};

/// What a controller lives in.
#[derive(Clone)]
pub(crate) struct Environment {
    pub(crate) client: Client,
    pub(crate) recorder: EventRecorder,
    pub(crate) clock: Clock,
    pub(crate) seed: u64,
    /// Cancelled when workers may start: when this process leads, or at once where there is no
    /// election.
    pub(crate) go: CancellationToken,
    /// What says whether this process still leads, if that is asked of it.
    pub(crate) fence: Option<Arc<dyn Fence>>,
}

/// A controller whose informers have been requested.
pub(crate) struct BoundController<R> {
    controller: Controller<R>,
    options: Options,
}

/// Says that a controller has ended, however it ends.
struct Ended(Arc<Shared>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.state.send_replace(ControllerState::Stopped);
    }
}

impl<R: RequestKey> Controller<R> {
    /// Requests the informers that the controller watches, and settles what it leaves to its
    /// manager.
    pub(crate) fn bind(
        mut self,
        client: &Client,
        defaults: &ControllerDefaults,
    ) -> Result<BoundController<R>, IndexRefused> {
        self.sources.bind(client)?;
        let (name, kind) = (self.name.clone(), self.kind.clone());
        let options = Options::resolve(name, kind, std::mem::take(&mut self.chosen), defaults);
        Ok(BoundController { controller: self, options })
    }
}

impl<R: RequestKey> BoundController<R> {
    /// Whether it reconciles only on the leader.
    pub(crate) fn is_leader_only(&self) -> bool {
        self.options.leader_only
    }

    /// Whether it is to be run before this process leads, so that its sources sync; its workers
    /// wait for [`go`](Environment::go). Otherwise it is to be run when this process leads.
    pub(crate) fn warms_up(&self) -> bool {
        self.options.warm_up
    }

    /// Runs until `stop`; then lets the passes that run finish. Dropping it ends them where they
    /// wait.
    pub(crate) async fn run(
        self,
        environment: Environment,
        stop: CancellationToken,
    ) -> Result<(), ControllerError> {
        let Self { mut controller, options } = self;
        let (shared, name) = (controller.shared.clone(), options.name.clone());
        let _ended = Ended(shared.clone());
        shared.state.send_replace(ControllerState::Syncing);
        let watched = controller.sources.clone();
        let find_source = move |number| watched.find(number);
        controller.explainer.run(environment.clock.clone(), Box::new(find_source));
        let mut sources = Started::start(name.clone(), controller.sources.clone())?;
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            synced = sources.synced(options.sync_timeout) => synced?,
        }
        let broken = options.broken;
        if !environment.go.is_cancelled() && !broken.is(Rule::StartsUnelected) {
            shared.state.send_replace(ControllerState::Standby);
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                failed = sources.failed() => return Err(failed),
                () = environment.go.cancelled() => {}
            }
        }

        tracing::info!(controller = %name, workers = options.n_workers, "running");
        shared.state.send_replace(ControllerState::Running);
        let n_workers = options.n_workers as u64;
        shared.counters.n_workers.store(n_workers, Ordering::Relaxed);
        let queue = controller.queue.clone();
        let shard = controller.sharded.take().map(|sharded| {
            let with = (&environment.client, environment.clock.clone(), environment.seed);
            Attached::start(sharded, with, controller.sources.clone(), queue.clone())
        });
        let (gate, client) = match &shard {
            Some(shard) => (Some(shard.gate.clone()), shard.client.clone()),
            None => (None, environment.client.clone()),
        };
        let environment = Environment { client, ..environment };
        let mut workers = controller.hire(options, environment, gate, &stop);
        let mut failure = None;
        let mut ended = None;
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            // A worker ends by itself only when it fails.
            first = workers.join_next() => ended = first,
            failed = sources.failed() => failure = Some(failed),
        }
        queue.shut_down();
        if broken.is(Rule::LeavesPasses) {
            workers.detach_all();
        }
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
        if let Some(shard) = shard {
            // No pass runs any more: others may have the keys.
            shard.end().await;
        }
        // Not before: passes read to their end what the watches keep cached.
        sources.end().await;
        failure.map_or(Ok(()), Err)
    }
}

impl<R: RequestKey> Controller<R> {
    /// Starts the workers.
    fn hire(
        self,
        options: Options,
        environment: Environment,
        gate: Option<Arc<Gate<R>>>,
        stop: &CancellationToken,
    ) -> JoinSet<Result<(), ControllerError>> {
        let home = Home {
            client: environment.client.for_controller(&options.name),
            recorder: environment.recorder,
            clock: environment.clock,
            stopping: stop.clone(),
            controller: options.name.clone(),
            kind: options.kind.clone(),
            watches: Arc::new(self.watches()),
        };
        let n_workers = options.n_workers;
        let worker = Arc::new(Worker {
            home,
            options,
            gate,
            fence: environment.fence,
            pace: self.pace,
            queue: self.queue,
            sources: self.sources,
            ids: Ids::new(environment.seed),
            explainer: self.explainer,
            shared: self.shared,
        });
        let mut workers = JoinSet::new();
        for _ in 0..n_workers {
            workers.spawn(self.reconciler.clone().work(worker.clone()));
        }
        workers
    }
}
