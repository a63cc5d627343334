//! The assembly that the program, the demo and tests share.

use crate::built_in::Controllers;
use crate::extensions::Extensions;
use crate::source::InProcessSource;
use kube_client::{Client, Resource};
use setpoint_apiserver::{ApiServer, Credentials};
use setpoint_object::time::{Clock, Timestamp};
use setpoint_object::{ApiError, seed};
use setpoint_registry::kind::CompiledKind;
use setpoint_registry::{EVENT_TTL, HISTORY_PERIOD, Registry, RegistryWorker};
use setpoint_store::{MemoryStore, Store};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

/// Where the clock of a simulated control plane starts: 2026-01-01T00:00:00Z.
const SIMULATION_EPOCH_SECS: u64 = 1_767_225_600;

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
    seed: Option<u64>,
    credentials: Credentials,
    address: Option<String>,
    controllers: bool,
    replayed_revisions: Option<u64>,
    event_ttl: Duration,
    history: Duration,
    shared_as: Option<String>,
    kinds: Vec<CompiledKind>,
    pub(crate) extensions: Extensions,
}

impl ControlPlaneBuilder {
    /// A kind that is compiled in, beside the built-in ones, with its own defaults, validation and
    /// columns. Definitions cannot take its place.
    pub fn kind(mut self, kind: CompiledKind) -> Self {
        self.kinds.push(kind);
        self
    }

    /// What objects are kept in. Default: an empty [`MemoryStore`].
    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = store;
        self
    }

    /// What time it is. Default: the wall clock's when the builder was made, and tokio's time
    /// since.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Makes it deterministic, for simulations and tests: the clock starts at 2026-01-01T00:00:00Z
    /// and follows tokio's time, and uids, generated names and everything else that is random come
    /// from `seed`. Two that share a store need different seeds. Default: the operating system's
    /// entropy and the wall clock. A [`clock`](Self::clock) that is set later replaces this one's.
    pub fn simulated(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self.clock = Clock::starting_at(Timestamp::from_secs(SIMULATION_EPOCH_SECS));
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

    /// Whether the built-in controllers run: namespace deletion and garbage collection. Default:
    /// yes. Without them a deleted namespace stays, and so do objects whose owner is gone.
    pub fn controllers(mut self, controllers: bool) -> Self {
        self.controllers = controllers;
        self
    }

    /// How many revisions of the store's history watches may begin at after a restart, as far as
    /// they are kept. Default: [`setpoint_registry::REPLAYED_REVISIONS`] over a store that keeps
    /// its history ([`Store::keeps_history`]), none over another.
    pub fn replayed_revisions(mut self, n: u64) -> Self {
        self.replayed_revisions = Some(n);
        self
    }

    /// How long an Event is kept after it was written last. Default: one hour, as kube-apiserver.
    pub fn event_ttl(mut self, ttl: Duration) -> Self {
        self.event_ttl = ttl;
        self
    }

    /// How far back watches, and pages of a list, may begin: older history is let go, in the watch
    /// cache and in the store, where twice as much is kept for a while. Default: five minutes, as
    /// kube-apiserver.
    pub fn history(mut self, history: Duration) -> Self {
        self.history = history;
        self
    }

    /// Other servers stand on the same store: this one's part in it. Its built-in controllers run
    /// only while it holds the Lease `kube-system/setpoint-controllers`, by this identity, which
    /// must be its own, also among its restarts; and it relies on nothing that only its own writes
    /// would make true. Default: the store is this control plane's alone.
    pub fn shared_as(mut self, identity: impl Into<String>) -> Self {
        self.shared_as = Some(identity.into());
        self
    }

    /// The control plane; nothing runs yet.
    pub fn build(mut self) -> ControlPlane {
        let seed = self.seed.unwrap_or_else(seed::from_entropy);
        let mut registry = Registry::builder(self.store, self.clock);
        // Without one, costly work is done beside everything else.
        if let Some(seed) = self.seed {
            registry = registry.seed(seed);
        }
        for kind in self.kinds {
            registry = registry.kind(kind);
        }
        if let Some(n) = self.replayed_revisions {
            registry = registry.replayed_revisions(n);
        }
        let registry = registry
            .event_ttl(self.event_ttl)
            .history(self.history)
            .shared(self.shared_as.is_some());
        let (registry, worker) = self.extensions.registry(registry).build();
        // Not the registry's seed: two generators must not tell the same numbers.
        let of_server = seed.wrapping_add(1);
        let server = ApiServer::builder(registry).credentials(self.credentials).seed(of_server);
        let mut server = self.extensions.server(server);
        if let Some(address) = self.address {
            server = server.address(address);
        }
        let controllers = match (self.controllers, self.shared_as) {
            (false, _) => Controllers::None,
            (true, None) => Controllers::Always { seed },
            (true, Some(identity)) => Controllers::Elected { identity, seed },
        };
        ControlPlane { server: server.build(), worker, controllers }
    }
}

/// A control plane: store, registry, API server. Take handles from it, then run it.
#[derive(Debug)]
#[must_use = "a control plane does nothing until it is run"]
pub struct ControlPlane {
    server: ApiServer,
    worker: RegistryWorker,
    controllers: Controllers,
}

impl ControlPlane {
    /// A builder with the wall clock and the operating system's entropy
    /// ([`ControlPlaneBuilder::simulated`] takes neither).
    ///
    /// # Panics
    ///
    /// [`ControlPlaneBuilder::build`] does, when the operating system gives no randomness.
    pub fn builder() -> ControlPlaneBuilder {
        ControlPlaneBuilder {
            store: Arc::new(MemoryStore::default()),
            clock: Clock::wall(),
            seed: None,
            credentials: Credentials::none(),
            address: None,
            controllers: true,
            replayed_revisions: None,
            event_ttl: EVENT_TTL,
            history: HISTORY_PERIOD,
            shared_as: None,
            kinds: Vec::new(),
            extensions: Extensions::default(),
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

    /// The source of an informer over all objects of `K`, in process and without HTTP. Take it, as
    /// every handle, before the control plane runs; [`InProcessSource`] says how it is narrowed,
    /// and makes more of them from [`Self::server`].
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
            controllers.run(&server, &stop).await;
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
