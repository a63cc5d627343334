//! Runs a controller: starts its sources, then its workers; stops them in reverse.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures::FutureExt;
use setpoint_informer::InformerStatus;
use setpoint_object::{panic, time::Clock};
use setpoint_workqueue::{DELAY_MAX, WorkQueue};
use tokio::{
    sync::oneshot,
    task::{JoinError, JoinSet},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{
    Controller, ControllerDefaults, ControllerError, ControllerState, Shared,
    error::{ReconcilePanic, SyncHint},
    options::Options,
    worker::{Ids, Worker},
};
use crate::{
    cache::MemberStatus,
    client::Client,
    context::CommonContext,
    error::BoxError,
    events::EventRecorder,
    fence::Fence,
    request::RequestKey,
    shard::{Attached, Gate},
    source::{Awaited, DynSource, IndexRefused, Sources},
};

/// What a controller gets from its manager.
#[derive(Clone)]
pub(crate) struct Environment {
    pub(crate) client: Client,
    pub(crate) recorder: EventRecorder,
    pub(crate) clock: Clock,
    pub(crate) seed: u64,
    /// Cancelled when workers may start: when this process leads, or at once without an election.
    pub(crate) go: CancellationToken,
    /// Logs the start at level `debug`.
    pub(crate) is_quiet: bool,
    /// Checks whether this process still leads, for leader-only controllers.
    pub(crate) fence: Option<Arc<dyn Fence>>,
}

/// A controller whose informers have been requested.
pub(crate) struct BoundController<R> {
    controller: Controller<R>,
    options: Options,
}

/// Sets the state to stopped when dropped, however the controller ends.
struct Ended<R: RequestKey> {
    shared: Arc<Shared>,
    queue: WorkQueue<R>,
}

impl<R: RequestKey> Drop for Ended<R> {
    fn drop(&mut self) {
        // Also if it ends before it has workers: its sources and handles may outlive it.
        self.queue.shut_down();
        self.shared.state.send_replace(ControllerState::Stopped);
    }
}

impl<R: RequestKey> Controller<R> {
    /// Requests the informers that the controller watches, and resolves its options with the
    /// manager's defaults.
    pub(crate) fn bind(
        mut self,
        client: &Client,
        defaults: &ControllerDefaults,
    ) -> Result<BoundController<R>, IndexRefused> {
        self.sources.bind(client)?;
        let (name, kind) = (self.name.clone(), self.kind.clone());
        let options = Options::resolve(name, kind, std::mem::take(&mut self.overrides), defaults);
        Ok(BoundController { controller: self, options })
    }
}

impl<R: RequestKey> BoundController<R> {
    /// Whether it reconciles on the leader only.
    pub(crate) fn is_leader_only(&self) -> bool {
        self.options.leader_only
    }

    /// Whether it runs before this process leads, so that its sources sync; its workers wait for
    /// [`go`](Environment::go). Otherwise it runs once this process leads.
    pub(crate) fn warms_up(&self) -> bool {
        self.options.warm_up
    }

    /// Runs until `stop`, and then until the running passes have ended. Dropping the future drops
    /// them.
    pub(crate) async fn run(
        self,
        environment: Environment,
        stop: CancellationToken,
    ) -> Result<(), ControllerError> {
        let Self { mut controller, options } = self;
        let (shared, name) = (controller.shared.clone(), options.name.clone());
        let _ended = Ended { shared: shared.clone(), queue: controller.queue.clone() };
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
        if !environment.go.is_cancelled() {
            shared.state.send_replace(ControllerState::Standby);
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                failed = sources.failed() => return Err(failed),
                () = environment.go.cancelled() => {}
            }
        }

        match environment.is_quiet {
            true => tracing::debug!(controller = %name, workers = options.n_workers, "running"),
            false => tracing::info!(controller = %name, workers = options.n_workers, "running"),
        }
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
        let mut workers = controller.spawn_workers(options, environment, gate, &stop);
        let mut failure = None;
        let mut ended = None;
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            // A worker ends by itself only on a failure.
            first = workers.join_next() => ended = first,
            failed = sources.failed() => failure = Some(failed),
        }
        queue.shut_down();
        loop {
            match ended {
                Some(Ok(Err(error))) => _ = failure.get_or_insert(error),
                Some(Err(error)) if error.is_panic() => {
                    let message = panic::message(&*error.into_panic()).to_owned();
                    failure.get_or_insert(ControllerError::Panic { name: name.clone(), message });
                }
                Some(_) => {}
                None if workers.is_empty() => break,
                None => {}
            }
            ended = workers.join_next().await;
        }
        if let Some(shard) = shard {
            // All passes have ended: other replicas may take the keys.
            shard.end().await;
        }
        // After the workers: passes read what the watches keep cached.
        sources.end().await;
        failure.map_or(Ok(()), Err)
    }
}

impl<R: RequestKey> Controller<R> {
    /// Spawns the workers.
    fn spawn_workers(
        self,
        options: Options,
        environment: Environment,
        gate: Option<Arc<Gate<R>>>,
        stop: &CancellationToken,
    ) -> JoinSet<Result<(), ControllerError>> {
        let common = CommonContext {
            client: environment.client.for_controller(&options.name),
            recorder: environment.recorder,
            clock: environment.clock,
            stopping: stop.clone(),
            controller: options.name.clone(),
            kind: options.kind.clone(),
            watches: Arc::new(self.watches()),
            elsewhere: Arc::default(),
        };
        let n_workers = options.n_workers;
        let worker = Arc::new(Worker {
            common,
            options,
            gate,
            fence: environment.fence,
            min_interval: self.min_interval,
            queue: self.queue,
            sources: self.sources,
            ids: Ids::new(environment.seed),
            explainer: self.explainer,
            shared: self.shared,
        });
        let mut workers = JoinSet::new();
        for _ in 0..n_workers {
            workers.spawn(worker.clone().run(self.reconciler.clone()));
        }
        workers
    }
}

/// The sources of a running controller. Dropping it removes its handlers from the informers, and
/// drops its sources' tasks.
pub(super) struct Started<R: RequestKey> {
    name: Arc<str>,
    sources: Arc<Sources<R>>,
    /// One task per source that is not a watch.
    tasks: JoinSet<Result<(), ControllerError>>,
    /// Sources that have not synced yet.
    pending: Vec<Pending<R>>,
}

enum Pending<R> {
    Watch(Awaited<R>),
    External { source: String, started: oneshot::Receiver<()> },
}

impl<R: RequestKey> Started<R> {
    /// Starts all sources (CTL-1).
    pub(super) fn start(name: Arc<str>, sources: Arc<Sources<R>>) -> Result<Self, ControllerError> {
        let mut this = Self { name, sources, tasks: JoinSet::new(), pending: Vec::new() };
        match this.sources.start() {
            Ok(awaited) => this.pending = awaited.into_iter().map(Pending::Watch).collect(),
            Err(resource) => {
                let name = this.name.clone();
                return Err(ControllerError::SourceStopped { name, resource, source: None });
            }
        }
        for source in this.sources.take_external() {
            let pending = this.spawn(source);
            this.pending.push(pending);
        }
        Ok(this)
    }

    fn spawn(&mut self, source: Box<dyn DynSource<R>>) -> Pending<R> {
        let label = source.name();
        let (started, has_started) = oneshot::channel();
        let (name, keys) = (self.name.clone(), self.sources.sink());
        let counted = Counted(self.sources.clone());
        let failing = label.clone();
        self.tasks.spawn(async move {
            let _counted = counted;
            let life = async {
                let run = source.start(keys).await?;
                // Nothing waits for a source that was added at run time.
                _ = started.send(());
                match run.0 {
                    Some(run) => run.await,
                    None => Ok(()),
                }
            };
            let ended = AssertUnwindSafe(life).catch_unwind().await.unwrap_or_else(|panic| {
                Err(ReconcilePanic { message: panic::message(&*panic).to_owned() }.into())
            });
            ended.map_err(|source| ControllerError::Source { name, of: failing, source })
        });
        Pending::External { source: label, started: has_started }
    }

    /// Waits until all started sources have synced, for at most `timeout`. Cancel safe.
    pub(super) async fn synced(
        &mut self,
        timeout: Option<Duration>,
    ) -> Result<(), ControllerError> {
        let deadline = timeout.map(|timeout| (timeout, Instant::now() + timeout.min(DELAY_MAX)));
        for pending in std::mem::take(&mut self.pending) {
            let expired = async {
                match deadline {
                    Some((timeout, deadline)) => {
                        tokio::time::sleep_until(deadline).await;
                        timeout
                    }
                    None => std::future::pending().await,
                }
            };
            let (name, mut pending) = (self.name.clone(), pending);
            tokio::select! {
                biased;
                // Cancel safe: see `failed`.
                failed = self.failed() => return Err(failed),
                synced = pending.synced(&name) => synced?,
                timeout = expired => return Err(pending.late(name, timeout)),
            }
        }
        Ok(())
    }

    /// Runs the sources that are not watches, including those added meanwhile, until one fails.
    /// Logs watches that have ended. Cancel safe.
    pub(super) async fn failed(&mut self) -> ControllerError {
        let sources = self.sources.clone();
        loop {
            tokio::select! {
                biased;
                // Cancel safe: a dropped `join_next` takes nothing.
                ended = self.tasks.join_next(), if !self.tasks.is_empty() => match ended {
                    Some(Ok(Err(failed))) => return failed,
                    Some(Err(error)) if error.is_panic() => return self.panicked(error),
                    _ => {}
                },
                // Cancel safe: it returns an ended watch only once.
                resource = sources.watch_ended() => {
                    let controller = &self.name;
                    tracing::warn!(%controller, %resource, "an informer of a watch has ended: its events are missing from now on");
                },
                // Cancel safe: an event that was taken is handled in the same poll.
                () = sources.retry() => {}
                // Cancel safe: a dropped `notified` that was not woken passes its wake-up on.
                () = sources.external_added() => for source in sources.take_external() {
                    drop(self.spawn(source));
                },
            }
        }
    }

    /// A panic outside of user functions, which are caught: in `Drop` only.
    fn panicked(&self, error: JoinError) -> ControllerError {
        let message = panic::message(&*error.into_panic()).to_owned();
        let source = ReconcilePanic { message }.into();
        ControllerError::Source { name: self.name.clone(), of: "a source".to_owned(), source }
    }

    /// Ends all sources, and waits until their tasks have ended.
    pub(super) async fn end(mut self) {
        self.sources.end();
        self.tasks.shutdown().await;
    }
}

impl<R: RequestKey> Drop for Started<R> {
    fn drop(&mut self) {
        self.sources.end();
    }
}

/// Counts a source until it is dropped.
struct Counted<R: RequestKey>(Arc<Sources<R>>);

impl<R: RequestKey> Drop for Counted<R> {
    fn drop(&mut self) {
        self.0.external_ended();
    }
}

impl<R> Pending<R> {
    async fn synced(&mut self, name: &Arc<str>) -> Result<(), ControllerError> {
        match self {
            Self::Watch(watch) => {
                let removed = watch.feed.removed();
                let synced = tokio::select! {
                    biased;
                    // Nothing waits for a cluster that is gone.
                    () = removed.cancelled() => return Ok(()),
                    synced = watch.registration.synced() => synced,
                };
                synced.map_err(|_| {
                    let lagging = watch.lagging();
                    let (resource, source) = (lagging.name, last_error(&lagging.status));
                    ControllerError::SourceStopped { name: name.clone(), resource, source }
                })
            }
            Self::External { started, .. } => match started.await {
                Ok(()) => Ok(()),
                // The source has failed; its task reports it.
                Err(_) => std::future::pending().await,
            },
        }
    }

    /// The error of a source that did not sync in time.
    fn late(self, name: Arc<str>, timeout: Duration) -> ControllerError {
        match self {
            Self::Watch(watch) => {
                let MemberStatus { name: resource, status } = watch.lagging();
                let (hint, source) = (SyncHint::of(&status), last_error(&status));
                ControllerError::SyncTimeout { name, resource, timeout, hint, source }
            }
            Self::External { source, .. } => {
                ControllerError::StartTimeout { name, of: source, timeout }
            }
        }
    }
}

impl<R> Awaited<R> {
    /// The informer that the watch waits for: one that has stopped, else one that has not synced,
    /// else the first.
    fn lagging(&self) -> MemberStatus {
        let mut statuses = self.feed.statuses();
        let worst = statuses.iter().position(|member| member.status.has_stopped);
        let worst = worst.or_else(|| statuses.iter().position(|member| !member.status.has_synced));
        statuses.swap_remove(worst.unwrap_or(0))
    }
}

/// The last error of an informer that is degraded.
fn last_error(status: &InformerStatus) -> Option<BoxError> {
    status.degraded.as_ref().map(|degraded| BoxError::from(degraded.error.clone()))
}
