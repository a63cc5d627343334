//! One loop: events of watched types become keys, keys become passes of a reconciler.

mod builder;
mod catch_up;
mod error;
mod run;
mod stats;
mod worker;

use std::{fmt, sync::Arc, time::Duration};

use setpoint_workqueue::{Stats, WorkQueue};
use tokio::sync::{mpsc, watch};

pub use self::{
    builder::{BuildError, ControllerBuilder},
    error::ControllerError,
    stats::ControllerStats,
};
pub(crate) use self::{error::panic_message, run::Environment};
use self::{stats::Counters, worker::DynReconciler};
use crate::{request::Request, watch::Source};

/// How long a controller waits for its caches by default.
///
/// 2 min, as controller-runtime's `CacheSyncTimeout`.
pub const SYNC_TIMEOUT: Duration = Duration::from_secs(120);

/// How long a key is held after a pass until the caches show what the pass wrote.
///
/// 250 ms: a watch is a few milliseconds behind; one that takes longer is broken, or does not select what was written.
pub const CATCH_UP_MAX: Duration = Duration::from_millis(250);

/// A controller that has not started; give it to a [`Manager`](crate::Manager).
///
/// | state       | entered when                                              |
/// |-------------|-----------------------------------------------------------|
/// | `Created`   | it is built                                               |
/// | `Syncing`   | the manager starts it: its handlers are being told of what is there |
/// | `Running`   | every source has synced: its workers reconcile            |
/// | `Stopped`   | it was stopped or failed, and no worker runs any more     |
#[must_use = "a controller does nothing until a manager runs it"]
pub struct Controller<R = Request> {
    // Helpers.
    reconciler: Arc<dyn DynReconciler<R>>,
    options: Options,

    // Inputs.
    sources: Vec<Source<R>>,
    channels: Vec<mpsc::Receiver<R>>,

    // State.
    queue: WorkQueue<R>,
    shared: Arc<Shared>,
}

/// What was chosen about a controller.
#[derive(Debug, Clone)]
struct Options {
    name: Arc<str>,
    n_workers: usize,
    sync_timeout: Option<Duration>,
    reconcile_timeout: Option<Duration>,
    recovers_panics: bool,
    catch_up: Duration,
}

/// What a controller shows of itself.
struct Shared {
    state: watch::Sender<ControllerState>,
    counters: Counters,
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
    /// It reconciles.
    Running,
    /// It has ended.
    Stopped,
}

/// A view of a controller, for probes, metrics and tests. Cheap to clone; outlives the controller.
#[derive(Clone)]
pub struct ControllerHandle {
    name: Arc<str>,
    shared: Arc<Shared>,
    queue: Arc<dyn Fn() -> Stats + Send + Sync>,
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
        (self.queue)()
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

impl<R: crate::request::RequestKey> Controller<R> {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.options.name
    }

    /// A view of it that outlives it.
    pub fn handle(&self) -> ControllerHandle {
        let queue = self.queue.clone();
        ControllerHandle {
            name: self.options.name.clone(),
            shared: self.shared.clone(),
            queue: Arc::new(move || queue.stats()),
        }
    }

    /// Its queue, so that somebody else may add keys.
    pub fn queue(&self) -> WorkQueue<R> {
        self.queue.clone()
    }
}

impl Controller {
    /// Starts a controller whose keys are [`Request`]s. The name is its label in logs and metrics and its field manager: a DNS label, please.
    pub fn builder(name: impl Into<Arc<str>>) -> ControllerBuilder {
        ControllerBuilder::new(name.into())
    }
}

impl<R: crate::request::RequestKey> Controller<R> {
    /// Starts a controller whose keys are something else than [`Request`]s; every source maps to them.
    pub fn builder_of(name: impl Into<Arc<str>>) -> ControllerBuilder<R> {
        ControllerBuilder::new(name.into())
    }
}

impl<R> fmt::Debug for Controller<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller").field("options", &self.options).finish_non_exhaustive()
    }
}
