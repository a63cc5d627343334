//! The control plane that the program, the demo and tests share.

mod run;

use crate::SharedParts;
use crate::aggregation::{Aggregation, ProxyCertificate, Ways};
use crate::built_in::{Controllers, Settings};
use crate::extensions::{Extensions, Task};
use crate::identity::{OwnName, Published, has_storage_versions};
use crate::nodes::SimulatedNodes;
use crate::peers::{PeerOptions, PeerWorker};
use crate::source::InProcessSource;
use crate::webhooks::{Clients, OwnServer, ServedServices, WebhookCredentials};
use kube_client::{Client, Resource};
use setpoint_apiserver::{ApiServer, Credentials};
use setpoint_controllers::Selection;
use setpoint_controllers::workload::certificates::Signers;
use setpoint_egress::{EgressSelector, EgressType};
use setpoint_object::time::{Clock, Timestamp};
use setpoint_object::{ApiError, seed};
use setpoint_registry::RuntimeConfig;
use setpoint_registry::kind::CompiledKind;
use setpoint_registry::{
    EVENT_TTL, HISTORY_PERIOD, NodePorts, Rbac, Registry, RegistryWorker, ServiceAccountTokens,
    ServiceNetworks, StorageMediaType,
};
use setpoint_runtime::election::Timings;
use setpoint_store::{MemoryStore, Store};
use setpoint_webhook_client::{Identity, ServiceResolver, Webhooks};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinError;

/// Where the clock of a simulated control plane starts: 2026-01-01T00:00:00Z.
const SIMULATION_EPOCH_SECS: u64 = 1_767_225_600;

/// Why a control plane ended before it was stopped.
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
    controllers: Selection,
    service_accounts: Option<bool>,
    coordinator: Timings,
    service_networks: ServiceNetworks,
    node_ports: NodePorts,
    runtime_config: RuntimeConfig,
    api_services: bool,
    replayed_revisions: Option<u64>,
    event_ttl: Duration,
    history: Duration,
    shared_as: Option<String>,
    storage_media_type: StorageMediaType,
    kinds: Vec<CompiledKind>,
    service_resolver: Option<Arc<dyn ServiceResolver>>,
    webhook_identity: Option<Identity>,
    pub(crate) egress: EgressSelector,
    pub(crate) peers: Option<PeerOptions>,
    pub(crate) webhook_credentials: WebhookCredentials,
    service_account_tokens: ServiceAccountTokens,
    bootstrap_tokens: bool,
    aggregation: bool,
    nodes: Option<SimulatedNodes>,
    shared_parts: Option<SharedParts>,
    pub(crate) extensions: Extensions,
}

impl ControlPlaneBuilder {
    /// Adds a compiled-in kind with its own defaults, validation and columns. Custom resource
    /// definitions cannot replace it.
    pub fn kind(mut self, kind: CompiledKind) -> Self {
        self.kinds.push(kind);
        self
    }

    /// The store of the objects. Default: an empty [`MemoryStore`].
    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = store;
        self
    }

    /// The clock. Default: the wall clock at the time the builder was made, plus tokio's time
    /// since.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Makes the control plane deterministic, for simulations and tests: the clock starts at
    /// 2026-01-01T00:00:00Z and follows tokio's time; uids, generated names and all other
    /// randomness come from `seed`. Two control planes that share a store need different seeds.
    /// Default: the operating system's entropy and the wall clock. A later [`clock`](Self::clock)
    /// replaces this clock.
    pub fn simulated(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self.clock = Clock::starting_at(Timestamp::from_secs(SIMULATION_EPOCH_SECS));
        self
    }

    /// Credentials that listeners accept. Default: none. In-process clients need none.
    pub fn credentials(mut self, credentials: Credentials) -> Self {
        self.credentials = credentials;
        self
    }

    /// The `host:port` that discovery reports to clients. Default: the address that each client
    /// used.
    pub fn address(mut self, address: impl Into<String>) -> Self {
        self.address = Some(address.into());
        self
    }

    /// Which controllers run. Default: `true`, the [built-in](Selection::built_in) ones: namespace
    /// deletion, garbage collection and others. [`Selection::all`] adds those of workloads.
    ///
    /// With `false` none runs. Then a deleted namespace is never removed, and neither are objects
    /// whose owner is gone; and the server does not publish its address in the endpoints of the
    /// Service `kubernetes`, nor its CA in `extension-apiserver-authentication`.
    pub fn controllers(mut self, selection: impl Into<Selection>) -> Self {
        self.controllers = selection.into();
        self
    }

    /// The durations of the election of the server that runs coordinated leader election, as
    /// `--coordinated-leadership-lease-duration` and the like. Default: [`Timings::default`].
    pub fn coordinated_leadership(mut self, timings: Timings) -> Self {
        self.coordinator = timings;
        self
    }

    /// Whether pods have service accounts: each namespace gets the ServiceAccount `default`, and
    /// the CA of the listener in the ConfigMap `kube-root-ca.crt`; a new pod gets an account and a
    /// volume with its token, and is refused if the account does not exist. Default: as
    /// [`controllers`](Self::controllers). With `true` and without controllers, another program
    /// must create the accounts.
    pub fn service_accounts(mut self, has_accounts: bool) -> Self {
        self.service_accounts = Some(has_accounts);
        self
    }

    /// The networks of the ServiceCIDR `kubernetes`, which a new store gets: one of either family,
    /// or one of each for dual-stack Services. New Services get their cluster addresses from them,
    /// and from further ServiceCIDRs of the same families. Servers that share a store need the
    /// same ones. Default: 10.0.0.0/16.
    pub fn service_networks(mut self, networks: ServiceNetworks) -> Self {
        self.service_networks = networks;
        self
    }

    /// The ports that may be node ports of Services. Servers that share a store need the same
    /// range. Default: 30000-32767.
    pub fn node_ports(mut self, ports: NodePorts) -> Self {
        self.node_ports = ports;
        self
    }

    /// Which built-in resources are served. Built-in controllers of a resource that is turned off
    /// are to be turned off, too. Default: all.
    pub fn runtime_config(mut self, config: RuntimeConfig) -> Self {
        self.runtime_config = config;
        self
    }

    /// Whether the built-in controllers keep an APIService object for each group version of custom
    /// resources. Those of the built-in group versions always exist. Default: yes.
    pub fn api_services(mut self, has_objects: bool) -> Self {
        self.api_services = has_objects;
        self
    }

    /// The number of past revisions at which watches may begin after a restart, if the store still
    /// has them. Default: [`setpoint_registry::REPLAYED_REVISIONS`] for a store that keeps its
    /// history ([`Store::keeps_history`]), none for others.
    pub fn replayed_revisions(mut self, n: u64) -> Self {
        self.replayed_revisions = Some(n);
        self
    }

    /// The time to live of an Event after its last write. Default: one hour, as kube-apiserver.
    pub fn event_ttl(mut self, ttl: Duration) -> Self {
        self.event_ttl = ttl;
        self
    }

    /// The age at which watches, and pages of a list, may still begin. Older history is dropped
    /// from the watch cache and from the store; the store temporarily holds up to twice as much.
    /// Default: five minutes, as kube-apiserver.
    pub fn history(mut self, history: Duration) -> Self {
        self.history = history;
        self
    }

    /// For a store that is shared with other servers. `identity` must differ from those of the
    /// other servers and of earlier starts of this one. The built-in controllers run only while
    /// this server holds the Lease `kube-system/setpoint-controllers` with this identity, and the
    /// server makes no assumption that only its own writes could guarantee. Default: only this
    /// control plane uses the store.
    pub fn shared_as(mut self, identity: impl Into<String>) -> Self {
        self.shared_as = Some(identity.into());
        self
    }

    /// The encoding of built-in kinds in a store that is [shared](Self::shared_as). Default:
    /// protobuf, as kube-apiserver's `--storage-media-type`.
    pub fn storage_media_type(mut self, media_type: StorageMediaType) -> Self {
        self.storage_media_type = media_type;
        self
    }

    /// Whether APIService objects with a service are served, by the servers behind these services.
    /// Default: yes.
    pub fn aggregation(mut self, is_on: bool) -> Self {
        self.aggregation = is_on;
        self
    }

    /// Finds the addresses of services that webhooks and APIServices name. Default: the Services
    /// and EndpointSlices among the control plane's own objects. An `ExternalName` is used as it
    /// is, then come ready addresses, then the cluster address. With a resolver of your own, the
    /// Services of APIServices need not be objects.
    pub fn service_resolver(mut self, resolver: Arc<dyn ServiceResolver>) -> Self {
        self.service_resolver = Some(resolver);
        self
    }

    /// A client certificate for webhooks and for servers of APIServices that ask for one. Default:
    /// none for webhooks; for servers of APIServices one that the listener makes.
    pub fn webhook_identity(mut self, identity: Identity) -> Self {
        self.webhook_identity = Some(identity);
        self
    }

    /// How tokens of service accounts are signed and accepted: issuers, audiences, lifetimes, and
    /// keys, unless [`ServeOptions`](crate::ServeOptions) has them. Default:
    /// [`ServiceAccountTokens::new`].
    pub fn service_account_tokens(mut self, tokens: ServiceAccountTokens) -> Self {
        self.service_account_tokens = tokens;
        self
    }

    /// Whether the bootstrap tokens in Secrets of `kube-system` authenticate new nodes. The
    /// built-in controllers then delete expired ones. Default: no.
    pub fn bootstrap_tokens(mut self, are_accepted: bool) -> Self {
        self.bootstrap_tokens = are_accepted;
        self
    }

    /// Nodes without containers, and a scheduler: pods are placed, start, become ready and end. A
    /// number is that many nodes; [`SimulatedNodes`] has more options. They run with the built-in
    /// [`controllers`](Self::controllers). Default: none, and no scheduler.
    pub fn nodes(mut self, nodes: impl Into<SimulatedNodes>) -> Self {
        self.nodes = Some(nodes.into());
        self
    }

    /// What it has in common with other control planes of this process. Default: nothing.
    pub fn shared_parts(mut self, parts: SharedParts) -> Self {
        self.shared_parts = Some(parts);
        self
    }

    /// Creates the control plane. Nothing runs yet.
    pub fn build(mut self) -> ControlPlane {
        let seed = self.seed.unwrap_or_else(seed::from_entropy);
        let services = Arc::new(ServedServices::default());
        let has_services = self.service_resolver.is_none();
        let resolver = self.service_resolver.unwrap_or_else(|| services.clone());
        let proxy = ProxyCertificate::of(self.webhook_identity.clone());
        let egress = self.egress.clone();
        let webhooks =
            Webhooks::with(resolver.clone(), self.clock.clone(), self.webhook_identity, egress);
        let own = OwnServer::default();
        let credentials = self.webhook_credentials;
        let clients = Clients { webhooks, credentials, own: own.clone() };
        let clock = self.clock.clone();
        let mut registry = Registry::builder(self.store, self.clock).webhooks(Arc::new(clients));
        // Without a seed, costly work runs on other threads.
        if let Some(seed) = self.seed {
            registry = registry.seed(seed);
        }
        for kind in self.kinds {
            registry = registry.kind(kind);
        }
        if let Some(parts) = &self.shared_parts {
            registry = registry.shared_objects(parts.objects.clone());
        }
        if let Some(n) = self.replayed_revisions {
            registry = registry.replayed_revisions(n);
        }
        let has_controllers = !self.controllers.is_none();
        // No client does them, so they are done without controllers, too.
        let checks_types = !has_controllers
            || self.controllers.is_enabled("validatingadmissionpolicy-status-controller");
        let has_accounts = self.service_accounts.unwrap_or(has_controllers);
        let registry = registry
            .event_ttl(self.event_ttl)
            .history(self.history)
            .shared(self.shared_as.is_some())
            .storage_media_type(self.storage_media_type)
            .service_accounts(has_accounts)
            .default_accounts(
                has_accounts && self.controllers.is_enabled("serviceaccount-controller"),
            )
            .roles(self.extensions.rbac().is_some())
            .service_networks(self.service_networks)
            .node_ports(self.node_ports)
            .runtime_config(self.runtime_config)
            .type_checks(checks_types)
            .service_account_tokens(self.service_account_tokens);
        let rbac = self.extensions.rbac();
        let (registry, worker) = self.extensions.registry(registry).build();
        services.follow(&registry);
        if let Some(metrics) = self.extensions.registry_metrics.take() {
            metrics.follow(&registry);
        }
        // Not the registry's seed: two generators must not produce the same numbers.
        let of_server = seed.wrapping_add(1);
        let server = ApiServer::builder(registry)
            .credentials(self.credentials)
            .bootstrap_tokens(self.bootstrap_tokens)
            .seed(of_server);
        let flow_metrics = self.extensions.flow_metrics.take();
        let server_metrics = self.extensions.server_metrics.take();
        let aggregated = self.extensions.aggregator_metrics.take();
        let to_cluster = self.egress.dialer(EgressType::Cluster);
        let to_peers = self.egress.dialer(EgressType::ControlPlane);
        self.extensions.connect(&clock, to_cluster.clone());
        let tasks = Tasks(self.extensions.take_tasks());
        let mut server = self.extensions.server(server);
        if let Some(address) = self.address {
            server = server.address(address);
        }
        let settings = Settings {
            selection: self.controllers,
            seed,
            aggregates: rbac.is_some(),
            accounts: has_accounts,
            bootstrap_tokens: self.bootstrap_tokens,
            api_services: self.api_services,
            root_ca: None,
            signers: None,
            nodes: self.nodes,
            coordinator: self.coordinator,
        };
        let controllers = match (has_controllers, self.shared_as) {
            (false, _) => Controllers::None,
            (true, None) => Controllers::Always(settings),
            (true, Some(identity)) => Controllers::Elected { identity, settings },
        };
        let server = server.build();
        if let (Some(metrics), Some(reader)) = (flow_metrics, server.flow_control()) {
            metrics.follow(reader);
        }
        if let Some(metrics) = server_metrics {
            metrics.follow(server.figures());
        }
        let aggregation = self.aggregation.then(|| {
            let ways =
                Ways { resolver, has_services, certificate: proxy.clone(), dialer: to_cluster };
            Aggregation::new(server.clone(), ways, aggregated)
        });
        let own_name = OwnName::default();
        let (certificate, name) = (proxy.clone(), own_name.clone());
        let peers = self.peers.filter(|_| PeerOptions::are_used(&server));
        let peers = peers.map(|options| options.worker(&server, certificate, name, to_peers));
        ControlPlane {
            server,
            worker,
            rbac,
            controllers,
            aggregation,
            own,
            own_name,
            peers,
            proxy,
            shared_parts: self.shared_parts,
            tasks,
            published: None,
            waits_for_storage_versions: false,
        }
    }
}

/// A control plane: store, registry and API server. Take handles from it, then run it.
#[derive(Debug)]
#[must_use = "a control plane does nothing until it is run"]
pub struct ControlPlane {
    server: ApiServer,
    worker: RegistryWorker,
    rbac: Option<Arc<Rbac>>,
    controllers: Controllers,
    aggregation: Option<Aggregation>,
    own: OwnServer,
    own_name: OwnName,
    peers: Option<PeerWorker>,
    /// The client certificate of the aggregation.
    pub(crate) proxy: ProxyCertificate,
    pub(crate) shared_parts: Option<SharedParts>,
    tasks: Tasks,
    published: Option<Published>,
    waits_for_storage_versions: bool,
}

/// Tasks of extensions.
struct Tasks(Vec<Task>);

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tasks", self.0.len())
    }
}

impl ControlPlane {
    /// A builder with the wall clock and the operating system's entropy, unless
    /// [`ControlPlaneBuilder::simulated`] replaces both.
    ///
    /// # Panics
    ///
    /// [`ControlPlaneBuilder::build`] panics if the operating system gives no randomness.
    pub fn builder() -> ControlPlaneBuilder {
        ControlPlaneBuilder {
            store: Arc::new(MemoryStore::default()),
            clock: Clock::wall(),
            seed: None,
            credentials: Credentials::none(),
            address: None,
            controllers: Selection::built_in(),
            service_accounts: None,
            coordinator: Timings::default(),
            service_networks: ServiceNetworks::default(),
            node_ports: NodePorts::default(),
            runtime_config: RuntimeConfig::default(),
            api_services: true,
            replayed_revisions: None,
            event_ttl: EVENT_TTL,
            history: HISTORY_PERIOD,
            shared_as: None,
            storage_media_type: StorageMediaType::default(),
            kinds: Vec::new(),
            service_resolver: None,
            webhook_identity: None,
            egress: EgressSelector::default(),
            peers: None,
            webhook_credentials: WebhookCredentials::default(),
            service_account_tokens: ServiceAccountTokens::new(),
            bootstrap_tokens: false,
            aggregation: true,
            nodes: None,
            shared_parts: None,
            extensions: Extensions::default(),
        }
    }

    /// The API server: a tower service, which the listeners serve.
    pub fn server(&self) -> &ApiServer {
        &self.server
    }

    /// An in-process client, authenticated as the server itself. Call it within a tokio runtime.
    pub fn client(&self) -> Client {
        self.server.client()
    }

    /// The source of an informer over all objects of `K`, in process and without HTTP. Like every
    /// handle, take it before the control plane runs. [`InProcessSource`] documents how to narrow
    /// it, and makes more of them from [`Self::server`].
    pub fn source<K: Resource>(&self) -> InProcessSource
    where
        K::DynamicType: Default,
    {
        InProcessSource::all::<K>(&self.server)
    }

    /// Whether certificate requests are signed here.
    pub(crate) fn signs_requests(&self) -> bool {
        self.controllers.runs("certificatesigningrequest-signing-controller")
    }

    /// The authorities that sign certificate requests.
    pub(crate) fn sign_with(&mut self, signers: Signers) {
        self.controllers.set_signers(signers);
    }

    /// Publishes a listener, and the CA (PEM) that clients verify its certificate with.
    pub(crate) fn publish(&mut self, root_ca: &str, published: Published) {
        let root_ca: Arc<str> = root_ca.into();
        if self.server.registry().has_default_accounts() {
            self.worker.set_root_ca(root_ca.clone());
        }
        self.controllers.set_root_ca(root_ca);
        self.published = (!matches!(self.controllers, Controllers::None)).then_some(published);
        if self.published.is_some() && has_storage_versions(self.server.registry()) {
            self.server.storage_versions().close();
            self.waits_for_storage_versions = true;
        }
    }

    /// Becomes true once the control plane serves requests; with [RBAC](ControlPlaneBuilder::rbac),
    /// once it has the roles of the start; on a listener with the feature gate `StorageVersionAPI`,
    /// once StorageVersions say what it stores, for which writes wait.
    pub fn ready(&self) -> watch::Receiver<bool> {
        match self.waits_for_storage_versions {
            true => self.server.storage_versions().opened(),
            false => self.answers(),
        }
    }

    /// The same without the StorageVersions.
    fn answers(&self) -> watch::Receiver<bool> {
        match &self.rbac {
            Some(rbac) => rbac.filled(),
            None => self.server.registry().ready(),
        }
    }
}
