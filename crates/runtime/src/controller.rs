//! Controllers: events of watched types become keys, and workers reconcile the keys.

mod builder;
mod collector;
mod error;
mod options;
mod passes;
mod run;
mod stats;
mod worker;

use std::{
    any::Any,
    fmt,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use setpoint_informer::{Cacheable, Event};
use setpoint_object::GroupVersionKind;
use setpoint_workqueue::{LevelStats, Phase, Stats, WorkQueue, metrics::Recorder};
use tokio::sync::watch;

pub use self::{
    builder::{CONTROLLER_NAME_CHARS_MAX, ControllerBuilder, PRIORITY_AGEING},
    error::{BuildError, ControllerError, SyncHint},
    options::{ControllerDefaults, RateLimits},
    stats::ControllerStats,
};
pub(crate) use self::{
    collector::{ControllerCollector, Controllers, queues},
    run::Environment,
};
use self::{options::Overrides, passes::DynReconciler, stats::Counters, worker::MinInterval};
use crate::{
    cluster::Cluster,
    explain::{Explain, Explainer, Explanation},
    metrics::Durations,
    pass::CacheId,
    request::{Request, RequestKey},
    shard::Sharded,
    source::{SourceStatus, Sources, Watch, WatchError, WatchHandle, Watches},
};

/// How long a controller waits for its caches by default.
///
/// 2 min, as controller-runtime's `CacheSyncTimeout`.
pub const SYNC_TIMEOUT: Duration = Duration::from_secs(120);

/// How long a key is held back after a pass, at most, until the caches show what the pass wrote.
///
/// 250 ms: a watch is a few milliseconds behind. One that takes longer is broken.
pub const CATCH_UP_MAX: Duration = Duration::from_millis(250);

/// A controller that has not started; give it to a [`Manager`](crate::Manager).
///
/// | state       | entered when                                              |
/// |-------------|-----------------------------------------------------------|
/// | `Created`   | it is built                                               |
/// | `Syncing`   | the manager starts it; its handlers get the existing objects |
/// | `Standby`   | every source has synced; its workers wait until this process leads |
/// | `Running`   | every source has synced; its workers reconcile            |
/// | `Stopped`   | it was stopped or failed, and all workers have ended      |
#[must_use = "a controller does nothing until a manager runs it"]
pub struct Controller<R = Request> {
    // Helpers.
    reconciler: Arc<dyn DynReconciler<R>>,
    name: Arc<str>,
    kind: Option<GroupVersionKind>,
    overrides: Overrides,
    sharded: Option<Sharded>,
    min_interval: Option<MinInterval<R>>,

    // Inputs.
    sources: Arc<Sources<R>>,

    // State.
    queue: WorkQueue<R>,
    shared: Arc<Shared>,
    explainer: Arc<Explainer<R>>,
}

/// The observable state of a controller.
struct Shared {
    state: watch::Sender<ControllerState>,
    counters: Counters,
    recorder: Arc<Recorder>,
}

/// The state of a controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ControllerState {
    /// Not started.
    #[default]
    Created,
    /// Waiting for its caches.
    Syncing,
    /// Its caches have synced. It starts to reconcile when this process leads.
    Standby,
    /// Reconciling.
    Running,
    /// Ended.
    Stopped,
}

impl ControllerState {
    /// Whether it has synced and not ended: it reconciles, or would if this process led.
    pub fn is_ready(self) -> bool {
        matches!(self, Self::Standby | Self::Running)
    }
}

/// A view of a controller, for probes, metrics and tests. Cheap to clone; outlives the controller.
#[derive(Clone)]
pub struct ControllerHandle {
    name: Arc<str>,
    shared: Arc<Shared>,
    view: Arc<dyn View>,
    /// The controller's `Watches<R>`.
    watches: Arc<dyn Any + Send + Sync>,
    explainer: Arc<dyn Explain>,
}

/// The queue and sources of a controller, without the type of its keys.
trait View: Send + Sync {
    fn queue(&self) -> Stats;
    fn levels(&self) -> Vec<LevelStats>;
    fn sources(&self) -> Vec<SourceStatus>;
    fn running_keys(&self, n_max: usize) -> Vec<String>;
    fn engage(&self, cluster: &Cluster) -> Result<(), WatchError>;
    fn remove_cluster(&self, cache: CacheId);
}

impl<R: RequestKey> View for (WorkQueue<R>, Watches<R>) {
    fn queue(&self) -> Stats {
        self.0.stats()
    }

    fn levels(&self) -> Vec<LevelStats> {
        self.0.levels()
    }

    fn sources(&self) -> Vec<SourceStatus> {
        self.1.statuses()
    }

    fn running_keys(&self, n_max: usize) -> Vec<String> {
        let entries = self.0.entries(n_max).into_iter();
        let is_held = |phase| matches!(phase, Phase::InFlight | Phase::Returning | Phase::Dirty);
        let held = entries.filter(|entry| is_held(entry.phase));
        let mut keys: Vec<_> = held.map(|entry| entry.key.to_string()).collect();
        keys.sort();
        keys
    }

    fn engage(&self, cluster: &Cluster) -> Result<(), WatchError> {
        self.1.engage(cluster)
    }

    fn remove_cluster(&self, cache: CacheId) {
        self.1.remove_cluster(cache);
    }
}

impl ControllerHandle {
    /// The controller's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The current state.
    pub fn state(&self) -> ControllerState {
        *self.shared.state.borrow()
    }

    /// The state, as a channel to watch for changes.
    pub fn watch_state(&self) -> watch::Receiver<ControllerState> {
        self.shared.state.subscribe()
    }

    /// Counts of its passes.
    pub fn stats(&self) -> ControllerStats {
        self.shared.counters.read()
    }

    /// The gauges of its queue.
    pub fn queue(&self) -> Stats {
        self.view.queue()
    }

    /// The number of ready keys per priority, the highest first; empty without priorities.
    pub fn queue_levels(&self) -> Vec<LevelStats> {
        self.view.levels()
    }

    /// The status of its watches, which have synced and the errors of the others, and then of its
    /// channels.
    pub fn sources(&self) -> Vec<SourceStatus> {
        self.view.sources()
    }

    /// Its watches, to add and remove while it runs; `None` if its keys are of another type.
    pub fn watches<R: RequestKey>(&self) -> Option<Watches<R>> {
        self.watches.downcast_ref::<Watches<R>>().cloned()
    }

    /// Adds a watch while it runs: [`Watches::watch`].
    ///
    /// # Errors
    ///
    /// As [`Watches::watch`], or the controller's keys are of another type.
    pub fn watch<K: Cacheable, R: RequestKey>(
        &self,
        watch: Watch<K>,
        map: impl Fn(&Event<K>) -> Vec<R> + Send + Sync + 'static,
    ) -> Result<WatchHandle, WatchError> {
        self.watches::<R>().ok_or(WatchError::Keys)?.watch(watch, map)
    }

    /// Why the last passes over a key ran and how they ended, newest first. Covers the controller's
    /// last [`EXPLAINED_PASSES`] passes by [default](ControllerBuilder::explain). Empty if the
    /// controller's keys are of another type.
    ///
    /// [`EXPLAINED_PASSES`]: crate::explain::EXPLAINED_PASSES
    pub fn explain<R: RequestKey>(&self, key: &R) -> Vec<Explanation> {
        self.explainer.of_key(key)
    }

    /// [`explain`](Self::explain) by the key's `Display` text.
    pub fn explain_text(&self, key: &str) -> Vec<Explanation> {
        self.explainer.of_text(key)
    }

    /// [`explain`](Self::explain) for all keys.
    pub fn explain_all(&self) -> Vec<Explanation> {
        self.explainer.all()
    }

    /// The keys of running passes, once its queue has been shut down; at most `n_max`.
    pub(crate) fn running_keys(&self, n_max: usize) -> Vec<String> {
        self.view.running_keys(n_max)
    }

    /// Adds its watches of a cluster, if it is built to have some of each: once.
    pub(crate) fn engage(&self, cluster: &Cluster) -> Result<(), WatchError> {
        self.view.engage(cluster)
    }

    /// Removes its watches of a cluster.
    pub(crate) fn remove_cluster(&self, cache: CacheId) {
        self.view.remove_cluster(cache);
    }

    /// The durations of its passes.
    pub(crate) fn durations(&self) -> &Durations {
        &self.shared.counters.took
    }

    /// The number of workers; zero before they start.
    pub(crate) fn n_workers(&self) -> u64 {
        self.shared.counters.n_workers.load(Ordering::Relaxed)
    }

    /// The counters and histograms of its queue.
    pub fn queue_recorder(&self) -> Arc<Recorder> {
        self.shared.recorder.clone()
    }
}

impl fmt::Debug for ControllerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerHandle")
            .field("name", &self.name)
            .field("state", &self.state())
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl<R: RequestKey> Controller<R> {
    /// The controller's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A handle that outlives the controller.
    pub fn handle(&self) -> ControllerHandle {
        ControllerHandle {
            name: self.name.clone(),
            shared: self.shared.clone(),
            view: Arc::new((self.queue.clone(), self.watches())),
            watches: Arc::new(self.watches()),
            explainer: self.explainer.clone(),
        }
    }

    /// Its watches, to add and remove before and while it runs.
    pub fn watches(&self) -> Watches<R> {
        Watches::new(self.sources.clone())
    }

    /// Its queue, to add keys from elsewhere.
    pub fn queue(&self) -> WorkQueue<R> {
        self.queue.clone()
    }
}

impl Controller {
    /// Builds a controller whose keys are [`Request`]s. The name is its label in logs and metrics
    /// and its field manager. It should be a DNS label.
    pub fn builder(name: impl Into<Arc<str>>) -> ControllerBuilder {
        ControllerBuilder::new(name.into())
    }

    /// Builds a controller [`for_`](ControllerBuilder::for_) a type, named after the kind in lower
    /// case.
    pub fn of<K: Cacheable>(watch: Watch<K>) -> ControllerBuilder {
        Self::builder(watch.kind().kind.to_lowercase()).for_(watch)
    }
}

impl<R: RequestKey> Controller<R> {
    /// Builds a controller whose keys are of another type than [`Request`]; every source maps to
    /// them.
    pub fn builder_of(name: impl Into<Arc<str>>) -> ControllerBuilder<R> {
        ControllerBuilder::new(name.into())
    }
}

impl<R> fmt::Debug for Controller<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller")
            .field("name", &self.name)
            .field("overrides", &self.overrides)
            .finish_non_exhaustive()
    }
}
