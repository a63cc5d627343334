//! The test environment: a control plane with the managers that run against it.

use crate::Timeline;
use crate::wait::Changes;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_client::api::{Patch, PatchParams};
use kube_client::{Api, Client, ResourceExt as _};
use parking_lot::Mutex;
use setpoint_control_plane::control_plane::ControlPlaneError;
use setpoint_control_plane::{ControlPlane, ControlPlaneBuilder};
use setpoint_object::error::chain;
use setpoint_object::seed;
use setpoint_object::time::{Clock, Timestamp};
use setpoint_runtime::{Manager, ManagerBuilder, ManagerError};
use setpoint_store::{MemoryStore, Revision, Store};
use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

/// How long a wait may take by the wall clock.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a wait may take in virtual time: longer than the longest back-off, 1000 s.
const PATIENCE_VIRTUAL: Duration = Duration::from_secs(3000);
/// Where virtual time starts: 2026-01-01T00:00:00Z.
const EPOCH: Timestamp = Timestamp(Duration::from_secs(1_767_225_600));
/// The field manager of installed definitions.
const FIELD_MANAGER: &str = "testenv";

/// Why an environment did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The control plane ended before it was ready.
    #[error("run the control plane")]
    ControlPlane(#[source] ControlPlaneError),
    /// The server refused a definition.
    #[error("install the definition {name}")]
    Definition {
        /// The definition's name.
        name: String,
        /// The server's error.
        #[source]
        source: kube_client::Error,
    },
    /// A definition was not served within the environment's patience.
    #[error("wait until {name} is served")]
    NotServed {
        /// The definition's name.
        name: String,
    },
}

/// An error of a part of the environment.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndError {
    /// A manager that the environment ran failed.
    #[error("a manager")]
    Manager(#[source] ManagerError),
    /// The control plane failed.
    #[error("the control plane")]
    ControlPlane(#[source] ControlPlaneError),
    /// A manager or the control plane panicked.
    #[error("a task of the environment")]
    Task(#[source] JoinError),
}

/// Builds a [`TestEnv`].
#[must_use]
pub struct TestEnvBuilder {
    plane: ControlPlaneBuilder,
    store: Arc<dyn Store>,
    seed: Option<u64>,
    definitions: Vec<CustomResourceDefinition>,
    patience: Option<Duration>,
}

impl fmt::Debug for TestEnvBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let definitions: Vec<_> = self.definitions.iter().map(|d| d.name_any()).collect();
        f.debug_struct("TestEnvBuilder")
            .field("seed", &self.seed)
            .field("definitions", &definitions)
            .finish_non_exhaustive()
    }
}

impl TestEnvBuilder {
    /// Makes the environment deterministic: virtual dates from 2026-01-01T00:00:00Z on, and all
    /// randomness from `seed`. For a current-thread runtime with paused time, as
    /// `#[setpoint::test]` builds it. Default: the wall clock and the operating system's entropy.
    pub fn simulated(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Definitions that are installed, and served, before `start` returns.
    pub fn definitions(
        mut self,
        definitions: impl IntoIterator<Item = CustomResourceDefinition>,
    ) -> Self {
        self.definitions.extend(definitions);
        self
    }

    /// The store of the objects. Default: an empty [`MemoryStore`].
    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = store;
        self
    }

    /// How long [`TestEnv::eventually`] and similar methods wait, in tokio's time. Default: 30 s;
    /// 3,000 s if the environment is [simulated](Self::simulated), which is longer than any
    /// back-off.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    /// Changes other settings of the control plane: admission plugins, authorizers, compiled-in
    /// kinds, without its built-in controllers. The environment sets store and seed. Unlike other
    /// control planes, it starts without
    /// [service accounts](ControlPlaneBuilder::service_accounts), as envtest does, and without
    /// [APIService objects](ControlPlaneBuilder::api_services) of the definitions.
    pub fn control_plane(
        mut self,
        change: impl FnOnce(ControlPlaneBuilder) -> ControlPlaneBuilder,
    ) -> Self {
        self.plane = change(self.plane);
        self
    }

    /// Starts the environment. Call it within a tokio runtime, which runs the control plane until
    /// the environment is stopped or dropped.
    ///
    /// # Errors
    ///
    /// If the control plane does not become ready, or a definition is refused or never served.
    pub async fn start(self) -> Result<TestEnv, StartError> {
        let clock = match self.seed {
            Some(_) => Clock::starting_at(EPOCH),
            None => Clock::wall(),
        };
        let seed = self.seed.unwrap_or_else(seed::from_entropy);
        let mut plane = self.plane.store(self.store.clone());
        if self.seed.is_some() {
            plane = plane.simulated(seed);
        }
        let plane = plane.clock(clock.clone()).build();
        let (client, server) = (plane.client(), plane.server().clone());
        let mut ready = plane.ready();
        let stop = CancellationToken::new();
        let mut serving = JoinSet::new();
        serving.spawn(plane.run(stop.clone()));
        let timeline = Timeline::new(move |revision| server.registry().origin_of(revision));
        tokio::select! {
            biased;
            Ok(_) = ready.wait_for(|is_ready| *is_ready) => {}
            Some(Ok(Err(error))) = serving.join_next() => {
                return Err(StartError::ControlPlane(error));
            }
        }
        drop(ready);
        let mut following = JoinSet::new();
        // The timeline omits the objects of an empty control plane.
        let after = self.store.revision().await.unwrap_or(Revision(0));
        following.spawn(timeline.clone().follow(self.store.clone(), after));
        let patience = match self.seed {
            Some(_) => PATIENCE_VIRTUAL,
            None => PATIENCE,
        };
        let env = TestEnv {
            client,
            clock,
            seed,
            next_seed: AtomicU64::new(seed.wrapping_add(2)),
            store: self.store,
            timeline,
            patience: self.patience.unwrap_or(patience),
            stop,
            serving: Mutex::new(serving),
            managers: Mutex::new(JoinSet::new()),
            stop_managers: CancellationToken::new(),
            _following: following,
        };
        for definition in &self.definitions {
            env.install(definition).await?;
        }
        Ok(env)
    }
}

/// A control plane for a test, on the test's own runtime, with the managers that the test runs
/// against it.
///
/// [`stop`](Self::stop) ends it and returns the first error. Dropping it stops everything at once;
/// during a panic it first prints its [timeline](Self::timeline).
pub struct TestEnv {
    client: Client,
    clock: Clock,
    seed: u64,
    next_seed: AtomicU64,
    store: Arc<dyn Store>,
    timeline: Timeline,
    patience: Duration,
    stop: CancellationToken,
    serving: Mutex<JoinSet<Result<(), ControlPlaneError>>>,
    managers: Mutex<JoinSet<Result<(), ManagerError>>>,
    stop_managers: CancellationToken,
    _following: JoinSet<()>,
}

impl fmt::Debug for TestEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestEnv").field("seed", &self.seed).finish_non_exhaustive()
    }
}

impl TestEnv {
    /// Starts an environment with the wall clock and the operating system's entropy.
    ///
    /// # Errors
    ///
    /// As [`TestEnvBuilder::start`].
    pub async fn start() -> Result<Self, StartError> {
        Self::builder().start().await
    }

    /// A builder for an environment.
    pub fn builder() -> TestEnvBuilder {
        TestEnvBuilder {
            // Pods need no service accounts, as in envtest. Timelines show the test's objects only.
            plane: ControlPlane::builder().service_accounts(false).api_services(false),
            store: Arc::new(MemoryStore::default()),
            seed: None,
            definitions: Vec::new(),
            patience: None,
        }
    }

    /// A client that is authorized to do anything. Its default namespace is `default`.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The clock of the control plane and of its managers.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The seed of all randomness.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The store of the control plane.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// All changes of objects since the environment started.
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// The changes of objects from now on, for stand-ins that act on them: a poll would cost as
    /// much as it takes virtual time.
    pub fn changes(&self) -> Changes {
        Changes::of(&self.timeline)
    }

    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    /// A builder for managers with this environment's client and clock, and a seed of its own.
    pub fn manager(&self) -> ManagerBuilder {
        let seed = self.next_seed.fetch_add(1, Ordering::Relaxed);
        Manager::builder(self.client()).clock(self.clock.clone()).seed(seed)
    }

    /// Runs a manager until the environment ends. If the manager fails, the test fails at its next
    /// [`eventually`](Self::eventually) or at its end.
    pub fn run(&self, manager: Manager) {
        self.managers.lock().spawn(manager.run(self.stop_managers.clone()));
    }

    /// Installs a definition by server-side apply, and waits until it is served.
    ///
    /// # Errors
    ///
    /// If it is refused, or is not served within the environment's patience.
    pub async fn install(&self, definition: &CustomResourceDefinition) -> Result<(), StartError> {
        let name = definition.name_any();
        let definitions: Api<CustomResourceDefinition> = Api::all(self.client());
        let refused = |source| StartError::Definition { name: name.clone(), source };
        let params = PatchParams::apply(FIELD_MANAGER).force();
        definitions.patch(&name, &params, &Patch::Apply(definition)).await.map_err(refused)?;
        let waiting = async {
            let mut changes = self.timeline.changes();
            loop {
                let current = definitions.get(&name).await.map_err(refused)?;
                let conditions = current.status.and_then(|status| status.conditions);
                let is_served = |condition: &_| {
                    let (kind, status) = kind_and_status(condition);
                    kind == "Established" && status == "True"
                };
                if conditions.unwrap_or_default().iter().any(is_served) {
                    return Ok(());
                }
                if changes.changed().await.is_err() {
                    return Err(StartError::NotServed { name: name.clone() });
                }
            }
        };
        let end = tokio::time::timeout(self.patience, waiting).await;
        end.unwrap_or_else(|_| Err(StartError::NotServed { name: name.clone() }))
    }

    /// Creates a namespace with a generated name and returns the name. For tests that share an
    /// environment.
    ///
    /// # Errors
    ///
    /// The server's error.
    pub async fn create_namespace(&self, prefix: &str) -> Result<String, kube_client::Error> {
        let body = serde_json::json!({"metadata": {"generateName": format!("{prefix}-")}});
        let request = http::Request::post("/api/v1/namespaces")
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(body.to_string().into_bytes())
            .map_err(kube_client::Error::HttpError)?;
        let made: serde_json::Value = self.client.request(request).await?;
        Ok(made["metadata"]["name"].as_str().unwrap_or_default().to_owned())
    }

    /// Sets the client that the test uses from now on.
    pub(crate) fn replace_client(&mut self, client: Client) {
        self.client = client;
    }

    /// Panics if a manager has ended with an error.
    pub(crate) fn check_managers(&self, place: &Location<'_>) {
        while let Some(ended) = self.managers.lock().try_join_next() {
            match ended.map_err(EndError::Task).map(|ended| ended.map_err(EndError::Manager)) {
                Ok(Ok(())) => {}
                Ok(Err(error)) | Err(error) => panic!("{place}: {}", chain(&error)),
            }
        }
    }

    /// Stops the managers, then the control plane.
    ///
    /// # Errors
    ///
    /// The first error, managers first.
    pub async fn stop(self) -> Result<(), EndError> {
        self.stop_managers.cancel();
        let mut managers = std::mem::take(&mut *self.managers.lock());
        let mut result = Ok(());
        while let Some(ended) = managers.join_next().await {
            let ended = ended.map_err(EndError::Task);
            result = result.and(ended.and_then(|ended| ended.map_err(EndError::Manager)));
        }
        self.stop.cancel();
        let mut serving = std::mem::take(&mut *self.serving.lock());
        while let Some(ended) = serving.join_next().await {
            let ended = ended.map_err(EndError::Task);
            result = result.and(ended.and_then(|ended| ended.map_err(EndError::ControlPlane)));
        }
        result
    }
}

impl Drop for TestEnv {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("timeline:\n{}", self.timeline);
        }
    }
}

fn kind_and_status(
    condition: &k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionCondition,
) -> (&str, &str) {
    (&condition.type_, &condition.status)
}
