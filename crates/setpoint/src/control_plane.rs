//! The assembly that the program, the demo and tests share.

use crate::source::InProcessSource;
use kube_client::{Client, Resource};
use setpoint_apiserver::{ApiServer, Credentials};
use setpoint_controllers::{GarbageCollector, NamespaceController};
use setpoint_object::ApiError;
use setpoint_object::time::{Clock, Timestamp};
use setpoint_registry::{Registry, RegistryWorker};
use setpoint_store::{MemoryStore, Store};
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

/// Where a control plane's clock starts unless it is given one: 2026-01-01T00:00:00Z, a moment at which nothing happened.
const EPOCH_SECS: u64 = 1_767_225_600;

/// Why a control plane ended by itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlPlaneError {
    /// The registry could not start, or lost its store.
    #[error("run the registry")]
    Registry(#[source] ApiError),
    /// A part panicked.
    #[error("run a part of the control plane")]
    Part(#[source] JoinError),
}

/// Builds a [`ControlPlane`].
#[derive(Debug)]
#[must_use]
pub struct ControlPlaneBuilder {
    store: Arc<dyn Store>,
    clock: Clock,
    seed: u64,
    credentials: Credentials,
    address: Option<String>,
    controllers: bool,
}

impl ControlPlaneBuilder {
    /// What objects are kept in. Default: an empty [`MemoryStore`].
    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = store;
        self
    }

    /// What time it is. Default: 2026-01-01T00:00:00Z when the builder was made, and tokio's time since.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// The seed of uids, generated names and everything else that is random. Default: 0.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Credentials that listeners accept. Default: none; clients in process need none.
    pub fn credentials(mut self, credentials: Credentials) -> Self {
        self.credentials = credentials;
        self
    }

    /// The `host:port` that discovery tells clients. Default: where each client found the server.
    pub fn address(mut self, address: impl Into<String>) -> Self {
        self.address = Some(address.into());
        self
    }

    /// Whether the built-in controllers run: namespace deletion and garbage collection. Default: yes. Without them a deleted
    /// namespace stays, and so do objects whose owner is gone.
    pub fn controllers(mut self, controllers: bool) -> Self {
        self.controllers = controllers;
        self
    }

    /// The control plane; nothing runs yet.
    pub fn build(self) -> ControlPlane {
        let (registry, worker) = Registry::builder(self.store, self.clock).seed(self.seed).build();
        // Not the registry's seed: two generators must not tell the same numbers.
        let seed = self.seed.wrapping_add(1);
        let mut server = ApiServer::builder(registry).credentials(self.credentials).seed(seed);
        if let Some(address) = self.address {
            server = server.address(address);
        }
        ControlPlane { server: server.build(), worker, controllers: self.controllers }
    }
}

/// A control plane: store, registry, API server. Take handles from it, then run it.
#[derive(Debug)]
#[must_use = "a control plane does nothing until it is run"]
pub struct ControlPlane {
    server: ApiServer,
    worker: RegistryWorker,
    controllers: bool,
}

impl ControlPlane {
    /// A builder.
    pub fn builder() -> ControlPlaneBuilder {
        ControlPlaneBuilder {
            store: Arc::new(MemoryStore::default()),
            clock: Clock::starting_at(Timestamp::from_secs(EPOCH_SECS)),
            seed: 0,
            credentials: Credentials::none(),
            address: None,
            controllers: true,
        }
    }

    /// The API server: a tower service, and what listeners serve.
    pub fn server(&self) -> &ApiServer {
        &self.server
    }

    /// A client in process, as the server itself. Call it within a tokio runtime.
    pub fn client(&self) -> Client {
        self.server.client()
    }

    /// The source of an informer over all objects of `K`, in process and without HTTP. Take it, as every handle, before the
    /// control plane runs; [`InProcessSource`] says how it is narrowed, and makes more of them from [`Self::server`].
    pub fn source<K: Resource>(&self) -> InProcessSource
    where
        K::DynamicType: Default,
    {
        InProcessSource::all::<K>(&self.server)
    }

    /// Becomes true once it serves.
    pub fn ready(&self) -> watch::Receiver<bool> {
        self.server.registry().ready()
    }

    /// Runs until `stop`, which ends watches politely. Dropping it stops everything at once.
    ///
    /// # Errors
    ///
    /// When a part fails before `stop`.
    pub async fn run(self, stop: CancellationToken) -> Result<(), ControlPlaneError> {
        let mut parts = JoinSet::new();
        // The registry goes last: it serves while everything above it still finishes.
        let registry_stop = CancellationToken::new();
        let (server, worker, controllers) = (self.server, self.worker, self.controllers);
        parts.spawn({
            let registry_stop = registry_stop.clone();
            async move { worker.run(registry_stop).await }
        });
        parts.spawn(async move {
            // However this part ends, the registry must not be waited for in vain.
            let _registry_stop = registry_stop.drop_guard();
            if controllers {
                run_controllers(&server, &stop).await;
            }
            stop.cancelled().await;
            server.drain();
            Ok(())
        });
        while let Some(ended) = parts.join_next().await {
            ended.map_err(ControlPlaneError::Part)?.map_err(ControlPlaneError::Registry)?;
        }
        Ok(())
    }
}

/// Runs the built-in controllers from the moment the server serves until `stop`.
async fn run_controllers(server: &ApiServer, stop: &CancellationToken) {
    let mut ready = server.registry().ready();
    tokio::select! {
        biased;
        // An error says that the registry has ended, which its own part reports.
        served = ready.wait_for(|ready| *ready) => if served.is_err() { return },
        () = stop.cancelled() => return,
    }
    let namespaces = NamespaceController::new(server.client(), server.registry().clock().clone());
    let garbage = GarbageCollector::new(server.client());
    let (namespaces, ()) = tokio::join!(namespaces.run(stop.clone()), garbage.run(stop.clone()));
    if let Err(error) = namespaces {
        tracing::error!(%error, "the namespace controller has failed");
    }
}
