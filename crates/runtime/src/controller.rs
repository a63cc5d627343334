//! One loop: events of watched types become keys, keys become passes of a reconciler.

mod build_error;
mod builder;
mod catch_up;
mod collector;
mod error;
mod options;
mod pace;
mod queue_collector;
mod rate_limits;
mod run;
mod settle;
mod start;
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
use setpoint_workqueue::{LevelStats, Stats, WorkQueue, metrics::Recorder};
use tokio::sync::watch;

pub use self::{
    build_error::BuildError,
    builder::{CONTROLLER_NAME_CHARS_MAX, ControllerBuilder, PRIORITY_AGEING},
    error::{ControllerError, SyncHint},
    options::ControllerDefaults,
    rate_limits::RateLimits,
    stats::ControllerStats,
};
pub(crate) use self::{
    collector::ControllerCollector, queue_collector::QueueCollector, run::Environment,
};
use self::{options::Chosen, pace::Pace, stats::Counters, worker::DynReconciler};
use crate::{
    explain::{Explain, Explainer, Explanation},
    metrics::Durations,
    request::{Request, RequestKey},
    shard::Sharded,
    source::{SourceStatus, Sources, Watch, WatchError, WatchHandle, Watches},
};

/// How long a controller waits for its caches by default.
///
/// 2 min, as controller-runtime's `CacheSyncTimeout`.
pub const SYNC_TIMEOUT: Duration = Duration::from_secs(120);

/// How long a key rests after a pass until the caches show what the pass wrote.
///
/// 250 ms: a watch is a few milliseconds behind; one that takes longer is broken.
pub const CATCH_UP_MAX: Duration = Duration::from_millis(250);

/// A controller that has not started; give it to a [`Manager`](crate::Manager).
///
/// | state       | entered when                                              |
/// |-------------|-----------------------------------------------------------|
/// | `Created`   | it is built                                               |
/// | `Syncing`   | the manager starts it: its handlers are being told of what is there |
/// | `Standby`   | every source has synced, and its workers wait until this process leads |
/// | `Running`   | every source has synced: its workers reconcile            |
/// | `Stopped`   | it was stopped or failed, and no worker runs any more     |
#[must_use = "a controller does nothing until a manager runs it"]
pub struct Controller<R = Request> {
    // Helpers.
    reconciler: Arc<dyn DynReconciler<R>>,
    name: Arc<str>,
    kind: Option<GroupVersionKind>,
    chosen: Chosen,
    sharded: Option<Sharded>,
    pace: Option<Pace<R>>,

    // Inputs.
    sources: Arc<Sources<R>>,

    // State.
    queue: WorkQueue<R>,
    shared: Arc<Shared>,
    explainer: Arc<Explainer<R>>,
}

/// What a controller shows of itself.
struct Shared {
    state: watch::Sender<ControllerState>,
    counters: Counters,
    recorder: Arc<Recorder>,
}

/// How far a controller's life has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ControllerState {
    /// It has not been started.
    #[default]
    Created,
    /// It waits for its caches.
    Syncing,
    /// Its caches have synced; it reconciles as soon as this process leads.
    Standby,
    /// It reconciles.
    Running,
    /// It has ended.
    Stopped,
}

impl ControllerState {
    /// Whether it has synced and not ended: it reconciles, or would at once if this process led.
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

/// What there is to see of a controller whose keys' type is forgotten.
trait View: Send + Sync {
    fn queue(&self) -> Stats;
    fn levels(&self) -> Vec<LevelStats>;
    fn sources(&self) -> Vec<SourceStatus>;
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
}

impl ControllerHandle {
    /// The controller's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How far it has come.
    pub fn state(&self) -> ControllerState {
        *self.shared.state.borrow()
    }

    /// How far it has come, to be told of changes.
    pub fn watch_state(&self) -> watch::Receiver<ControllerState> {
        self.shared.state.subscribe()
    }

    /// What its passes have come to.
    pub fn stats(&self) -> ControllerStats {
        self.shared.counters.read()
    }

    /// The gauges of its queue.
    pub fn queue(&self) -> Stats {
        self.view.queue()
    }

    /// The keys of its queue that are ready, per priority, the highest first; none without
    /// priorities.
    pub fn queue_levels(&self) -> Vec<LevelStats> {
        self.view.levels()
    }

    /// How its watches do: what has synced, and what keeps the others from it.
    pub fn sources(&self) -> Vec<SourceStatus> {
        self.view.sources()
    }

    /// Its watches, to be added to and taken from while it runs; `None` if its keys are of another
    /// type.
    pub fn watches<R: RequestKey>(&self) -> Option<Watches<R>> {
        self.watches.downcast_ref::<Watches<R>>().cloned()
    }

    /// Adds a watch while it runs: [`Watches::watch`].
    ///
    /// # Errors
    ///
    /// As there; or its keys are of another type.
    pub fn watch<K: Cacheable, R: RequestKey>(
        &self,
        watch: Watch<K>,
        map: impl Fn(&Event<K>) -> Vec<R> + Send + Sync + 'static,
    ) -> Result<WatchHandle, WatchError> {
        self.watches::<R>().ok_or(WatchError::Keys)?.watch(watch, map)
    }

    /// Why the last passes over a key ran, and what came of them, newest first: of the last
    /// [`EXPLAINED_PASSES`] passes of the controller, unless [told
    /// otherwise](ControllerBuilder::explain). Nothing for a key of another type than the
    /// controller's.
    ///
    /// [`EXPLAINED_PASSES`]: crate::explain::EXPLAINED_PASSES
    pub fn explain<R: RequestKey>(&self, key: &R) -> Vec<Explanation> {
        self.explainer.of_key(key)
    }

    /// [`explain`](Self::explain), of the keys that display so.
    pub fn explain_text(&self, key: &str) -> Vec<Explanation> {
        self.explainer.of_text(key)
    }

    /// [`explain`](Self::explain), of all keys.
    pub fn explain_all(&self) -> Vec<Explanation> {
        self.explainer.all()
    }

    /// How long its passes took.
    pub(crate) fn durations(&self) -> &Durations {
        &self.shared.counters.took
    }

    /// How many workers it has; zero before they start.
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
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A view of it that outlives it.
    pub fn handle(&self) -> ControllerHandle {
        ControllerHandle {
            name: self.name.clone(),
            shared: self.shared.clone(),
            view: Arc::new((self.queue.clone(), self.watches())),
            watches: Arc::new(self.watches()),
            explainer: self.explainer.clone(),
        }
    }

    /// Its watches, to be added to and taken from before and while it runs.
    pub fn watches(&self) -> Watches<R> {
        Watches(self.sources.clone())
    }

    /// Its queue, so that somebody else may add keys.
    pub fn queue(&self) -> WorkQueue<R> {
        self.queue.clone()
    }
}

impl Controller {
    /// Starts a controller whose keys are [`Request`]s. The name is its label in logs and metrics
    /// and its field manager: a DNS label, please.
    pub fn builder(name: impl Into<Arc<str>>) -> ControllerBuilder {
        ControllerBuilder::new(name.into())
    }

    /// Starts a controller [`for_`](ControllerBuilder::for_) a type, named as the type's kind in
    /// lower case.
    pub fn of<K: Cacheable>(watch: Watch<K>) -> ControllerBuilder {
        Self::builder(watch.kind().kind.to_lowercase()).for_(watch)
    }
}

impl<R: RequestKey> Controller<R> {
    /// Starts a controller whose keys are something else than [`Request`]s; every source maps to
    /// them.
    pub fn builder_of(name: impl Into<Arc<str>>) -> ControllerBuilder<R> {
        ControllerBuilder::new(name.into())
    }
}

impl<R> fmt::Debug for Controller<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller")
            .field("name", &self.name)
            .field("chosen", &self.chosen)
            .finish_non_exhaustive()
    }
}
