//! Owns every task of a program's controllers, and starts and stops them in order.

mod builder;
mod election;
mod error;
mod fleet;
mod handle;
mod roster;
mod run;
#[cfg(feature = "endpoints")]
mod served;
mod stage;
#[cfg(test)]
mod tests;

use std::{fmt, future::Future, ops::Deref, sync::Arc, time::Duration};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use setpoint_informer::factory::FactoryWorker;
use tokio_util::sync::CancellationToken;

use self::election::Election;
pub use self::{
    builder::ManagerBuilder,
    error::{AddError, ManagerError, RUNNING_KEYS_MAX, RunningTask},
    handle::{ManagerHandle, Readiness},
    roster::MEMBERS_MAX,
};
pub use crate::runnable::{Elected, Runnable};
use crate::{
    controller::{Controller, ControllerHandle},
    crd::{InstallError, install_and_wait},
    error::BoxError,
    events::EventWorker,
    request::RequestKey,
};

/// How long a manager waits for its tasks when it stops, by default.
///
/// 30 s, as controller-runtime's graceful shutdown.
pub const GRACE_PERIOD: Duration = Duration::from_secs(30);

/// How long a manager waits for its tasks when it stops. After that they are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Grace {
    /// This time, for all stages together. Zero means [`None`](Self::None).
    Period(Duration),
    /// No wait. Dropping running tasks is not an error then.
    None,
    /// Without a limit.
    Unlimited,
}

/// Runs controllers, with the caches, the client and the event recorder that they share.
///
/// | start | what runs                                          | starts when                                       | stop |
/// |-------|----------------------------------------------------|---------------------------------------------------|------|
/// | 0     | event recorder                                     | at once                                           | 7: writes what is left |
/// | 1     | HTTP servers: health, metrics, [`Runnable::server`] | next                                             | 5    |
/// | 2     | [`Runnable::webhooks`]                             | the servers have started                          | 4    |
/// | 3     | caches                                             | the webhooks have started                         | 3: reads work to the end |
/// | 4     | tasks that need no leader                          | the caches requested through [`Cache::informer`](crate::Cache::informer) have synced | 1   |
/// | 5     | [`Runnable::warm_up`]                              | next                                              | 2; with 1 if this process was never elected |
/// | 6     | everything else: controllers, tasks                | this process leads                                | 2    |
/// |       | the election                                       | 5 has started                                     | 6: releases the lease |
///
/// A controller waits for the caches that *it* watches, so it starts with the caches: a type that
/// is not served yet delays no other controller. Step 4 waits for the caches that the program
/// requests itself, because their readers do not declare what they read.
///
/// Derefs to its [`ManagerHandle`]; clone the handle to add members and clusters while the manager
/// runs. The grace period covers all steps of the stop together. A lost leadership has no grace
/// period: all tasks are dropped, and the client refuses to write (MGR-22).
///
/// There is no profiling endpoint. Use `perf`, or serve a profiler through [`Runnable::server`].
#[must_use = "a manager does nothing until it is run"]
pub struct Manager {
    // Helpers.
    handle: ManagerHandle,
    grace: Grace,

    // What runs.
    cache_worker: FactoryWorker,
    event_worker: EventWorker,
    election: Option<Election>,
    #[cfg(feature = "endpoints")]
    served: served::Served,
}

impl Manager {
    /// A manager over a client with default options: [`builder`](Self::builder) and
    /// [`build`](ManagerBuilder::build).
    ///
    /// # Panics
    ///
    /// If the operating system provides no randomness, as the standard library's `HashMap`.
    pub fn new(client: kube_client::Client) -> Self {
        Self::builder(client).build()
    }

    /// Builds a manager over a client. By default it uses the wall clock, and a seed from the
    /// operating system's entropy, so that replicas do not act at the same moments. A simulation
    /// sets both: [`clock`](ManagerBuilder::clock), [`seed`](ManagerBuilder::seed).
    pub fn builder(client: kube_client::Client) -> ManagerBuilder {
        ManagerBuilder::new(client)
    }

    /// Creates or updates CustomResourceDefinitions, and waits until they are established and
    /// served: [`install_and_wait`] with the manager's field manager.
    /// Await it before [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// The server refuses a definition, or it is not served in time.
    pub async fn install_crds(
        &self,
        definitions: impl IntoIterator<Item = CustomResourceDefinition>,
    ) -> Result<(), InstallError> {
        let shared = &self.handle.environment;
        install_and_wait(shared.client.kube(), &shared.field_manager, definitions).await
    }

    /// A handle to add members and to look at the manager; outlives [`run`](Self::run).
    pub fn handle(&self) -> ManagerHandle {
        self.handle.clone()
    }

    /// The checks of `/healthz` and `/readyz`; add to them before the manager runs. Empty at first.
    #[cfg(feature = "endpoints")]
    pub fn health(&self) -> crate::endpoint::Health {
        self.served.health.clone()
    }

    /// Adds a controller: [`ManagerHandle::add`].
    ///
    /// # Errors
    ///
    /// The name is taken, or there are too many members.
    pub fn add<R: RequestKey>(
        &mut self,
        controller: Controller<R>,
    ) -> Result<ControllerHandle, AddError> {
        self.handle.add(controller)
    }

    /// Adds another task: [`ManagerHandle::add_runnable`].
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add).
    pub fn add_runnable(
        &mut self,
        name: impl Into<Arc<str>>,
        runnable: Runnable,
    ) -> Result<(), AddError> {
        self.handle.add_runnable(name, runnable)
    }

    /// Adds a task that runs on the leader: [`ManagerHandle::add_task`].
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add).
    pub fn add_task<Fut>(
        &mut self,
        name: impl Into<Arc<str>>,
        run: impl FnOnce(CancellationToken) -> Fut + Send + 'static,
    ) -> Result<(), AddError>
    where
        Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        self.handle.add_task(name, run)
    }
}

/// The methods of the handle are available before the start too.
impl Deref for Manager {
    type Target = ManagerHandle;

    fn deref(&self) -> &ManagerHandle {
        &self.handle
    }
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manager")
            .field("grace", &self.grace)
            .field("handle", &self.handle)
            .finish_non_exhaustive()
    }
}
