//! Options of a manager.

use std::{fmt, sync::Arc};

use http::{Request, Response};
use kube_client::client::Body;
use setpoint_object::{seed, time::Clock};
use tower::{Layer, Service};

#[cfg(feature = "endpoints")]
use super::served::Served;
use super::{
    GRACE_PERIOD, Grace, Manager, ManagerHandle, election::Election, handle::ManagerEnvironment,
};
use crate::{
    cache::{Cache, CacheOptions, CacheOptionsError, Namespaces},
    client::{
        Client,
        layer::{ClientService, layered},
    },
    controller::{ControllerCollector, ControllerDefaults, Controllers, queues},
    election::{ElectionCollector, ElectionOptions, OptionsError},
    error::BoxError,
    events::{Broadcaster, EventApi, EventCollector, EventOptions, EventWorker},
    mapper::Mapper,
    metrics::{InformerCollector, InformerFigures, Metrics, QueueCollector},
    recording::{RecorderWorker, recorded},
};

/// The default field manager of writes outside of controllers.
const FIELD_MANAGER: &str = "setpoint";

/// The name of the manager's own informers in metrics.
const CACHE_NAME: &str = "manager";

/// The component that the election's events are recorded under.
const ELECTION_NAME: &str = "leader-election";

/// Builds a [`Manager`]. Nothing runs before [`Manager::run`].
#[must_use = "a builder does nothing until `build`"]
pub struct ManagerBuilder {
    client: kube_client::Client,
    /// `None` is the wall clock.
    clock: Option<Clock>,
    seed: Option<u64>,
    cache: CacheOptions,
    /// In place of those of the cache options.
    namespaces: Option<Namespaces>,
    grace: Grace,
    field_manager: Arc<str>,
    events: EventOptions,
    controllers: ControllerDefaults,
    metrics: Metrics,
    election: Option<ElectionOptions>,
    is_quiet: bool,
    #[cfg(feature = "endpoints")]
    pub(super) served: Served,
}

impl ManagerBuilder {
    pub(super) fn new(client: kube_client::Client) -> Self {
        Self {
            client,
            clock: None,
            seed: None,
            cache: CacheOptions::new(),
            namespaces: None,
            grace: Grace::Period(GRACE_PERIOD),
            field_manager: FIELD_MANAGER.into(),
            events: EventOptions::default(),
            controllers: ControllerDefaults::new(),
            metrics: Metrics::new(),
            election: None,
            is_quiet: false,
            #[cfg(feature = "endpoints")]
            served: Served::default(),
        }
    }

    /// Puts a tower layer around the client. Every request of the manager goes through it; the last
    /// layer added is the outermost. See [`layer`](crate::client::layer). Call it within a runtime.
    pub fn layer<L>(mut self, layer: &L) -> Self
    where
        L: Layer<ClientService>,
        L::Service: Service<Request<Body>, Response = Response<Body>> + Send + 'static,
        <L::Service as Service<Request<Body>>>::Error: Into<BoxError>,
        <L::Service as Service<Request<Body>>>::Future: Send,
    {
        self.client = layered(self.client, layer);
        self
    }

    /// Records the manager's requests and their answers, for a [replay](crate::recording). The
    /// worker writes the file. Call it last: layers, a clock or a seed that are set afterwards are
    /// not part of the recording. Call it within a runtime.
    pub fn record(mut self) -> (Self, RecorderWorker) {
        let clock = self.clock.get_or_insert_with(Clock::wall);
        let seed = *self.seed.get_or_insert_with(seed::from_entropy);
        let (client, worker) = recorded(self.client, clock, seed);
        self.client = client;
        (self, worker)
    }

    /// Defaults of controllers that their own builders do not override.
    pub fn controller_defaults(mut self, defaults: ControllerDefaults) -> Self {
        self.controllers = defaults;
        self
    }

    /// Runs leader-only controllers and tasks only while this process holds a Lease. Default: no
    /// election, every process leads.
    ///
    /// Their clients write only while the lease is held ([`ManagerHandle::leader_client`]), to
    /// other clusters too if they come from [`Context::client_of`](crate::Context::client_of) or
    /// [`ManagerHandle::leader_client_of`], and not from `Cluster::client`. Losing
    /// the lease ends the manager at once with
    /// [`ManagerError::LeadershipLost`](crate::ManagerError::LeadershipLost). At a stop, the
    /// election ends after everything that it guards, so
    /// [`release_on_stop`](ElectionOptions::release_on_stop) is safe and the next leader need not
    /// wait. Without an [`identity`](ElectionOptions::identity), the candidate has
    /// [`machine_identity`](crate::election::machine_identity).
    ///
    /// # Errors
    ///
    /// The options are invalid, or name no namespace and this process runs in no pod.
    pub fn leader_election(
        mut self,
        options: impl Into<ElectionOptions>,
    ) -> Result<Self, OptionsError> {
        // Invalid options fail now, not when the manager runs.
        self.election = Some(options.into().resolved()?);
        Ok(self)
    }

    /// Registers its metrics here; other parts of the program may share it. Default: a registry of
    /// its own. One manager per registry: a second one would register the same families again.
    pub fn metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = metrics;
        self
    }

    /// The clock of events, leases and conditions. Default: the wall clock. A simulation uses
    /// [`Clock::starting_at`], called within the paused runtime.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// The seed of all randomness: watch time-outs, jitter, reconcile ids. For simulations.
    /// Default: from the operating system's entropy.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Caches only the objects of these namespaces; a cached read in another one fails:
    /// [`CacheOptions::namespaces`]. They take the place of those in the [options](Self::cache) of
    /// the cache, whichever is called first. Default: those of the options, or else all.
    ///
    /// # Errors
    ///
    /// There are too many, or one is no name.
    pub fn namespaces<N: Into<String>>(
        mut self,
        names: impl IntoIterator<Item = N>,
    ) -> Result<Self, CacheOptionsError> {
        self.namespaces = Some(CacheOptions::new().namespaces(names)?.into_namespaces());
        Ok(self)
    }

    /// Replaces the cache options: what is cached of each type, the [source](CacheOptions::source)
    /// of caches, objects to [restore](CacheOptions::restore). [`namespaces`](Self::namespaces) of
    /// this builder stay. Default: cache everything that is watched.
    pub fn cache(mut self, options: CacheOptions) -> Self {
        self.cache = options;
        self
    }

    /// How long to wait for tasks when the manager stops. Default: 30 s.
    pub fn grace(mut self, grace: Grace) -> Self {
        self.grace = grace;
        self
    }

    /// The field manager of [`Manager::client`](super::ManagerHandle::client). Controllers use
    /// their own names.
    pub fn field_manager(mut self, name: impl Into<Arc<str>>) -> Self {
        self.field_manager = name.into();
        self
    }

    /// Which API to write events with. Default: [`EventApi::New`].
    pub fn events(mut self, api: EventApi) -> Self {
        self.events.api = api;
        self
    }

    /// Logs at level `debug` that controllers run and that the manager stops, for a manager that is
    /// started often. Default: at `info`.
    pub fn quiet(mut self) -> Self {
        self.is_quiet = true;
        self
    }

    /// The host or pod that events are reported from. Their reporting instance is `component-host`.
    /// Default: none.
    pub fn event_host(mut self, host: impl Into<Arc<str>>) -> Self {
        self.events.host = host.into();
        self
    }

    /// Builds the manager, without a request to the server.
    ///
    /// # Panics
    ///
    /// If there is no seed and the operating system provides no randomness.
    pub fn build(self) -> Manager {
        let Self { clock, mut cache, grace, field_manager, events, .. } = self;
        let Self { client, controllers, metrics, election, seed, is_quiet, namespaces, .. } = self;
        if let Some(namespaces) = namespaces {
            cache = cache.in_namespaces(namespaces);
        }
        #[cfg(feature = "endpoints")]
        let client = self.served.counted(client, &metrics);
        let clock = clock.unwrap_or_else(Clock::wall);
        let seed = seed.unwrap_or_else(seed::from_entropy);
        if cache.metrics.is_none() {
            let figures = InformerFigures::default();
            cache = cache.metrics(figures.registry(), CACHE_NAME);
            metrics.update(|registry| {
                registry.register_collector(Box::new(InformerCollector(figures)));
            });
        }
        let (broadcaster, queue) = Broadcaster::new(clock.clone());
        let (election, leadership) = match election {
            None => (None, None),
            Some(mut options) => {
                // With the same seed, candidates would retry at the same moments.
                options.seed.get_or_insert(seed);
                let recorder = broadcaster.recorder(ELECTION_NAME.into());
                match Election::new(client.clone(), clock.clone(), recorder, options) {
                    Ok((election, leadership)) => (Some(election), Some(leadership)),
                    // Validated in `leader_election`.
                    Err(error) => (Some(Election::impossible(error)), None),
                }
            }
        };
        if let Some(leadership) = &leadership {
            let collector = Box::new(ElectionCollector(leadership.clone()));
            metrics.update(|registry| registry.register_collector(collector));
        }
        let informers = cache.metrics.as_ref().map(|(registry, _)| registry.clone());
        let (cache, cache_worker) = Cache::new(client.clone(), cache, seed);
        let mapper = Mapper::new(client.clone());
        let client = Client::new(client, cache.clone(), field_manager.clone());
        let lost = EventCollector(broadcaster.recorder("manager".into()));
        let environment = ManagerEnvironment {
            client: client.clone(),
            cache,
            mapper,
            broadcaster,
            clock,
            seed,
            controllers,
            metrics: metrics.clone(),
            leadership,
            informers,
            field_manager,
            is_quiet,
        };
        let seed = environment.seed_of("event recorder");
        let event_worker = EventWorker::new(client, queue, events, seed);
        let handle = ManagerHandle::new(environment);
        let roster = handle.roster.clone();
        let controllers: Controllers = Arc::new(move || roster.controllers());
        metrics.update(|registry| {
            registry.register_collector(Box::new(ControllerCollector(controllers.clone())));
            let queues = QueueCollector::new(move || queues(&controllers));
            registry.register_collector(Box::new(queues));
            registry.register_collector(Box::new(lost));
        });
        Manager {
            #[cfg(feature = "endpoints")]
            served: self.served.over(&handle),
            handle,
            grace,
            cache_worker,
            event_worker,
            election,
        }
    }
}

impl fmt::Debug for ManagerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManagerBuilder")
            .field("cache", &self.cache)
            .field("namespaces", &self.namespaces)
            .field("grace", &self.grace)
            .finish_non_exhaustive()
    }
}
