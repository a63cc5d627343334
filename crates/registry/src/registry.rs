//! The registry: one write path, one read path, every resource.
use crate::admission::{self, Admission, AdmissionPlugins};
use crate::allocate::{Allocator, NodePorts, ServiceNetworks};
use crate::authorize::{self, Authorizer};
use crate::conversion::{ConversionProvider, ConvertedBytes, WebhookConversions};
use crate::features::{Feature, FeatureGates};
use crate::fifo_watch::FifoWatch;
use crate::figures::{Figures, MeasuredStore};
use crate::foreign::{Encoding, ForeignStore, StorageMediaType};
use crate::kind::CompiledKind;
use crate::origins::Origins;
use crate::runtime_config::RuntimeConfig;
use crate::service_account::ServiceAccountTokens;
use crate::shared::Inner;
use crate::shared_objects::SharedObjects;
use crate::stored::store_error;
use crate::threads::Threads;
use crate::turns::Turns;
use crate::webhook::WebhookClients;
use crate::{bootstrap, cache, crd, type_check};
use setpoint_object::error::chain;

pub use crate::shared::{Registry, WeakRegistry};
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::{FuturesUnordered, TryStreamExt as _};
use rand::SeedableRng;
use setpoint_object::time::Clock;
use setpoint_object::{ApiError, keys};
use setpoint_store::{RangeRequest, Revision, Store, StoreError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Default period of history: how far back watches may begin. The watch cache keeps changes for
/// this long. The store's history is compacted once it is older, in steps of the same length.
///
/// Five minutes, as kube-apiserver's `--etcd-compaction-interval`, so that clients' watches live as
/// long as clients expect.
pub const HISTORY_PERIOD: Duration = Duration::from_secs(300);

/// Revisions of a durable store's history that are read at start. Watches from before the restart
/// continue if they are not further behind. 10,000: clients are seldom further behind, and reading
/// them takes a fraction of a second.
pub const REPLAYED_REVISIONS: u64 = 10_000;

/// Default lifetime of an Event: one hour, as kube-apiserver's `--event-ttl`.
pub const EVENT_TTL: Duration = Duration::from_secs(3600);
/// Default minimum duration of a watch that asks for none: thirty minutes, as kube-apiserver's
/// `--min-request-timeout`.
pub const WATCH_TIMEOUT_MIN: Duration = Duration::from_secs(1800);
/// How long the store may be unreachable at start before the worker gives up. 30 s is enough for a
/// cluster to elect a new leader.
const START_UP_PATIENCE: Duration = Duration::from_secs(30);
/// The pause between two attempts.
const START_UP_PAUSE: Duration = Duration::from_millis(500);
/// Builds a registry.
#[derive(Debug)]
pub struct RegistryBuilder {
    store: Arc<dyn Store>,
    clock: Clock,
    seed: Option<u64>,
    replayed_revisions: Option<u64>,
    event_ttl: Duration,
    history: Duration,
    view_bytes_max: usize,
    is_shared: bool,
    storage_media_type: StorageMediaType,
    kinds: Vec<CompiledKind>,
    converter: Option<Arc<dyn ConversionProvider>>,
    webhooks: Option<Arc<dyn WebhookClients>>,
    authorizers: Vec<Arc<dyn Authorizer>>,
    admission: Vec<Arc<dyn Admission>>,
    service_account_tokens: ServiceAccountTokens,
    service_accounts: bool,
    default_accounts: bool,
    roles: bool,
    shared_objects: Option<SharedObjects>,
    service_networks: ServiceNetworks,
    node_ports: NodePorts,
    runtime_config: RuntimeConfig,
    allows_privileged: bool,
    watch_cache: bool,
    watch_timeout_min: Duration,
    plugins: AdmissionPlugins,
    type_checks: bool,
}
impl RegistryBuilder {
    /// Adds a compiled-in kind. Definitions cannot replace it.
    pub fn kind(mut self, kind: CompiledKind) -> Self {
        self.kinds.push(kind);
        self
    }
    /// The seed of uids, generated names and watch timeouts. Default: from the operating system.
    /// Two registries with one seed generate the same names, so set it in simulations only. With a
    /// seed, costly work runs on the caller's thread; without one it runs on separate threads,
    /// whose relative speed would be random.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }
    /// Revisions of the store's history that are read at start, as far as the store has them. A
    /// watch from one of them continues as if there had been no restart. Each adds a little to the
    /// start-up time. Default: [`REPLAYED_REVISIONS`] for a store that keeps its history over
    /// restarts ([`Store::keeps_history`]), otherwise zero.
    pub fn replayed_revisions(mut self, n: u64) -> Self {
        self.replayed_revisions = Some(n);
        self
    }
    /// How long an Event is stored after its last write. Default: [`EVENT_TTL`].
    pub fn event_ttl(mut self, ttl: Duration) -> Self {
        self.event_ttl = ttl;
        self
    }
    /// How far back watches may begin. The watch cache keeps changes for this long (and the newest
    /// hundred of each resource) and has the store compact older history, in steps of the same
    /// length. Default: [`HISTORY_PERIOD`]. A store with limits of its own must keep twice as much.
    pub fn history(mut self, history: Duration) -> Self {
        self.history = history;
        self
    }
    /// Maximum bytes of cached objects per version that a conversion webhook makes. Beyond it,
    /// lists and watches of the whole resource in that version are refused with 503. Lists that
    /// convert objects by themselves, of a namespace or a page, hold at most as many bytes each
    /// (503) and together (429). Default: [`VIEW_BYTES_MAX`](crate::VIEW_BYTES_MAX).
    pub fn view_bytes_max(mut self, n_bytes: usize) -> Self {
        self.view_bytes_max = n_bytes;
        self
    }
    /// Whether other servers, perhaps other programs, write to the same store. The registry then
    /// does not rely on its own writes alone: it applies their schema to custom objects on every
    /// read, looks for a definition's objects once more before it removes the definition, and
    /// stores what a kube-apiserver would, in the same versions and encodings. Default: no.
    pub fn shared(mut self, is_shared: bool) -> Self {
        self.is_shared = is_shared;
        self
    }
    /// The encoding of built-in kinds in a store that is [shared](Self::shared). Whatever it is,
    /// all encodings are read. Default: protobuf, as kube-apiserver's.
    pub fn storage_media_type(mut self, media_type: StorageMediaType) -> Self {
        self.storage_media_type = media_type;
        self
    }
    /// Calls webhooks: those of webhook configurations, and the conversion webhooks of definitions.
    /// Default: none are called. Webhook configurations have no effect then.
    pub fn webhooks(mut self, clients: Arc<dyn WebhookClients>) -> Self {
        self.webhooks = Some(clients);
        self
    }
    /// Converts custom resources whose definitions have the conversion strategy `Webhook`. Default:
    /// calls the webhook of the definition ([`webhooks`](Self::webhooks)). Without that, requests
    /// for versions other than the stored one are refused.
    pub fn converter(mut self, converter: Arc<dyn ConversionProvider>) -> Self {
        self.converter = Some(converter);
        self
    }
    /// Adds an authorizer after those added before. The API server calls it for each request, the
    /// registry for the further actions of a request. Default: authenticated users may do
    /// everything ([`AllowAuthenticated`](crate::AllowAuthenticated)).
    pub fn authorizer(mut self, authorizer: Arc<dyn Authorizer>) -> Self {
        self.authorizers.push(authorizer);
        self
    }
    /// Adds an admission plugin after Kubernetes' own and those added before.
    pub fn admission(mut self, plugin: Arc<dyn Admission>) -> Self {
        self.admission.push(plugin);
        self
    }
    /// How tokens of service accounts are signed and accepted. Default:
    /// [`ServiceAccountTokens::new`]; with a seed, the key is made of it.
    pub fn service_account_tokens(mut self, tokens: ServiceAccountTokens) -> Self {
        self.service_account_tokens = tokens;
        self
    }
    /// Whether new pods get service accounts: Kubernetes' admission plugin of that name. Each
    /// namespace then needs the account `default`, which a controller creates; a pod whose account
    /// does not exist is refused. Default: no.
    pub fn service_accounts(mut self, has_accounts: bool) -> Self {
        self.service_accounts = has_accounts;
        self
    }
    /// Whether the first namespaces get their account `default` at the start, as the controller of
    /// service accounts would create it: such a controller then has nothing to do. Default: no.
    pub fn default_accounts(mut self, has_accounts: bool) -> Self {
        self.default_accounts = has_accounts;
        self
    }
    /// Whether an empty store gets the roles and bindings of [`Rbac`](crate::Rbac) with the other
    /// objects of the start, which then need not be read. Otherwise `Rbac` creates them. Default:
    /// no.
    pub fn roles(mut self, has_roles: bool) -> Self {
        self.roles = has_roles;
        self
    }
    /// Objects of the start that registries of this process have in common: roles and bindings
    /// ([`roles`](Self::roles)), flow control, APIServices and priority classes. They then have the
    /// same uids and the creation time of the first registry. Default: each registry has its own.
    pub fn shared_objects(mut self, objects: SharedObjects) -> Self {
        self.shared_objects = Some(objects);
        self
    }
    /// Which of Kubernetes' own admission plugins run. Default: those that a kube-apiserver runs by
    /// default.
    pub fn admission_plugins(mut self, plugins: AdmissionPlugins) -> Self {
        self.plugins = plugins;
        self
    }
    /// Whether validating admission policies are checked against the types that they name, with the
    /// result in their status. Default: true.
    pub fn type_checks(mut self, are_done: bool) -> Self {
        self.type_checks = are_done;
        self
    }
    /// The networks of the ServiceCIDR `kubernetes`, if there is none yet. New Services get their
    /// cluster addresses from them, and from further ServiceCIDRs. Default: 10.0.0.0/16.
    pub fn service_networks(mut self, networks: ServiceNetworks) -> Self {
        self.service_networks = networks;
        self
    }
    /// The ports that may be node ports of Services. Default: 30000-32767.
    pub fn node_ports(mut self, ports: NodePorts) -> Self {
        self.node_ports = ports;
        self
    }
    /// Which built-in resources are served. Default: all, in their stable versions.
    pub fn runtime_config(mut self, config: RuntimeConfig) -> Self {
        self.runtime_config = config;
        self
    }
    /// Whether containers may be privileged, as kube-apiserver's `--allow-privileged`. Otherwise
    /// new ones are refused with 422. Default: yes.
    pub fn allow_privileged(mut self, is_allowed: bool) -> Self {
        self.allows_privileged = is_allowed;
        self
    }
    /// Whether lists of any version are answered at once and in one page, as with kube-apiserver's
    /// watch cache; without it (`--watch-cache=false`) they are of the newest version, and have
    /// pages. Default: yes.
    pub fn watch_cache(mut self, is_on: bool) -> Self {
        self.watch_cache = is_on;
        self
    }
    /// Minimum duration of a watch that asks for none; a random part of up to the same length is
    /// added. Zero ends such a watch after its first events. Default: [`WATCH_TIMEOUT_MIN`].
    pub fn watch_timeout_min(mut self, timeout: Duration) -> Self {
        self.watch_timeout_min = timeout;
        self
    }
    /// Returns the registry and the worker, which the caller runs. Nothing is served before the
    /// worker has started up.
    pub fn build(self) -> (Registry, RegistryWorker) {
        let seed = self.seed.unwrap_or_else(setpoint_object::seed::from_entropy);
        let compiled = self.runtime_config.catalog(&self.kinds);
        let store = match self.is_shared {
            true => {
                // Another server may serve what this one does not.
                let oldest = self.runtime_config.features().emulation().min_compatibility();
                let formers = bootstrap::catalog_with(&self.kinds, None).formers(oldest);
                let encoding = Encoding {
                    built_in: self.storage_media_type,
                    is_cbor: self.runtime_config.features().is_on(Feature::CBORServingAndStorage),
                };
                Arc::new(ForeignStore::new(self.store, formers, encoding))
            }
            false => self.store,
        };
        let figures = Figures::default();
        let store = Arc::new(MeasuredStore::new(store, figures.store.clone()));
        let default = || if store.keeps_history() { REPLAYED_REVISIONS } else { 0 };
        let replayed_revisions = self.replayed_revisions.unwrap_or_else(default);
        // Not the registry's generator, so that conversions leave the uids of objects unchanged.
        let of_reviews = rand::rngs::SmallRng::seed_from_u64(seed.wrapping_add(2));
        let threads = Threads::new(self.seed.is_some());
        let convert = |clients: &Arc<dyn WebhookClients>| -> Arc<dyn ConversionProvider> {
            Arc::new(WebhookConversions::new(clients.clone(), of_reviews, threads.clone()))
        };
        let converter = self.converter.or_else(|| self.webhooks.as_ref().map(convert));
        let inner = Arc::new(Inner {
            store,
            is_shared: self.is_shared,
            default_accounts: self.default_accounts,
            has_roles: self.roles
                && bootstrap::absent_roles::has_all(self.runtime_config.features()),
            shared_objects: self.shared_objects,
            started_at: AtomicU64::new(0),
            clock: self.clock,
            rng: parking_lot::Mutex::new(rand::rngs::SmallRng::seed_from_u64(seed)),
            catalog: FifoWatch::new(compiled.clone()),
            is_announcing: FifoWatch::default(),
            compiled,
            ready: FifoWatch::default(),
            cache: cache::WatchCache::new(self.history, self.view_bytes_max),
            converted_by_lists: ConvertedBytes::new(self.view_bytes_max),
            replayed_revisions,
            event_ttl: self.event_ttl,
            allows_privileged: self.allows_privileged,
            watch_cache: self.watch_cache,
            watch_timeout_min: self.watch_timeout_min,
            features: self.runtime_config.features(),
            history: self.history,
            origins: Origins::default(),
            figures,
            allocator: Allocator::new(self.service_networks, self.node_ports),
            admission: admission::Chain::new(
                self.plugins,
                self.admission,
                self.webhooks,
                self.service_accounts,
            ),
            authorization: authorize::Chain::new(self.authorizers),
            converter,
            threads,
            turns: Turns::default(),
            // Not the registry's generator: keys leave the uids of objects unchanged.
            service_account_tokens: self
                .service_account_tokens
                .with_keys(self.seed.map(|seed| seed.wrapping_add(3))),
            token_reviewer: parking_lot::Mutex::default(),
        });
        let registry = Registry { inner: inner.clone() };
        (registry, RegistryWorker { inner, root_ca: None, type_checks: self.type_checks })
    }
}
/// The background work of a registry: start-up objects, the watch cache's feed, CRD controllers,
/// type checks of admission policies, compaction.
#[derive(Debug)]
pub struct RegistryWorker {
    pub(crate) inner: Arc<Inner>,
    root_ca: Option<Arc<str>>,
    type_checks: bool,
}
impl RegistryWorker {
    /// The CA (PEM) that clients verify a listener with. The namespaces of an empty store get it at
    /// the start, in the ConfigMap `kube-root-ca.crt`, as its controller would create it. Default:
    /// none.
    pub fn set_root_ca(&mut self, pem: Arc<str>) {
        self.root_ca = Some(pem);
    }
    /// Runs until `stop`, which ends watches cleanly.
    ///
    /// # Errors
    /// The store cannot be read at start-up, or the cache's feed breaks for good.
    ///
    /// Dropping the future stops everything at once. No acknowledged write is lost.
    pub async fn run(self, stop: CancellationToken) -> Result<(), ApiError> {
        let inner = &*self.inner;
        let started = tokio::select! {
            biased;
            // Cancel safe: completed steps stay, and the next start checks them again.
            // Boxed: its space is free once the registry has started.
            started = Box::pin(self.start_up()) => started?,
            () = stop.cancelled() => return Ok(()),
        };
        let (definitions, present) = started;
        let ready = async {
            tokio::select! {
                biased;
                // Cancel safe: waiting takes nothing.
                () = inner.cache.wait_until(present.0) => inner.set_ready(true),
                () = stop.cancelled() => {}
            }
            Ok(())
        };
        let registry = Registry { inner: self.inner.clone() };
        let check_types = async {
            match self.type_checks {
                true => type_check::run(&registry, stop.clone()).await,
                false => Ok(()),
            }
        };
        // Each is polled when it is woken itself: they are seldom. Every write wakes the cache, and
        // definitions are polled with it, so that a changed schema is served at once.
        let others: FuturesUnordered<BoxFuture<'_, Result<(), ApiError>>> = [
            check_types.boxed(),
            compact(inner, &stop).boxed(),
            bootstrap::objects::maintain(&registry, &stop).boxed(),
            bootstrap::objects::keep_service(&registry, &stop).boxed(),
            bootstrap::objects::keep_addresses(&registry, &stop).boxed(),
            ready.boxed(),
        ]
        .into_iter()
        .collect();
        let result = tokio::try_join!(
            inner.cache.run(&inner.store, inner.replayed_revisions, &inner.threads, stop.clone()),
            definitions.run(stop.clone()),
            others.try_collect::<()>(),
        );
        inner.set_ready(false);
        result.map(|_| ())
    }
}
impl RegistryWorker {
    /// Prepares everything that must exist before requests are served. Retries if the store is
    /// temporarily unavailable.
    async fn start_up(&self) -> Result<(crd::Controller, Revision), ApiError> {
        let first = tokio::time::Instant::now();
        loop {
            let error = match self.attempt_start_up().await {
                Err(error) if matches!(error.code(), 503 | 504) => error,
                ended => return ended,
            };
            if first.elapsed() >= START_UP_PATIENCE {
                return Err(error);
            }
            tracing::warn!(error = chain(&error), "start up; trying again");
            tokio::time::sleep(START_UP_PAUSE).await;
        }
    }
    async fn attempt_start_up(&self) -> Result<(crd::Controller, Revision), ApiError> {
        let inner = &*self.inner;
        let before = inner.store.revision().await.map_err(store_error)?;
        let is_empty = !inner.is_shared && self.is_empty().await?;
        let n_objects = if is_empty {
            bootstrap::objects::create_all(inner, self.root_ca.as_deref()).await?
        } else {
            inner.allocator.repair(&*inner.store, &inner.birth()).await?;
            bootstrap::objects::ensure(inner).await?;
            0
        };
        let definitions = crd::Controller::load(&Registry { inner: self.inner.clone() }).await?;
        let present = inner.store.revision().await.map_err(store_error)?;
        // Each object is a revision: nobody else has written.
        if is_empty && present.0 == before.0 + n_objects as u64 {
            inner.started_at.store(present.0, Ordering::Relaxed);
        }
        Ok((definitions, present))
    }
    async fn is_empty(&self) -> Result<bool, ApiError> {
        let root = RangeRequest::prefix(Bytes::from_static(keys::ROOT.as_bytes()));
        let found = self.inner.store.range(RangeRequest { limit: 1, ..root }).await;
        Ok(found.map_err(store_error)?.value.entries.is_empty())
    }
}
/// Once per period of history, compacts revisions before the one seen a period ago.
async fn compact(inner: &Inner, stop: &CancellationToken) -> Result<(), ApiError> {
    let mut seen: Option<Revision> = None;
    loop {
        tokio::select! {
            biased;
            // Cancel safe: a sleep takes nothing.
            () = tokio::time::sleep(inner.history) => {}
            () = stop.cancelled() => return Ok(()),
        }
        if let Some(revision) = seen {
            match inner.store.compact(revision).await {
                // A store with many changes has dropped it by its own bounds.
                Ok(()) | Err(StoreError::Compacted { .. }) => {}
                // The next round retries. Compaction is not urgent.
                Err(error) => tracing::warn!(error = chain(&error), %revision, "compact the store"),
            }
        }
        seen = inner.store.revision().await.ok();
    }
}
impl Registry {
    /// Whether its built-in resources are those that every server has by default: the command line
    /// changes none, and an embedder compiled in no kinds.
    pub fn has_default_resources(&self) -> bool {
        Arc::ptr_eq(&self.inner.compiled, &bootstrap::catalog())
    }
    /// Which features are on.
    pub fn features(&self) -> FeatureGates {
        self.inner.features
    }
    /// Whether objects that cannot be read may be deleted
    /// ([`DeleteOptions::ignore_store_read_error`](crate::DeleteOptions)).
    pub fn deletes_unreadable(&self) -> bool {
        self.inner.deletes_unreadable()
    }
    /// A builder over a store.
    pub fn builder(store: Arc<dyn Store>, clock: Clock) -> RegistryBuilder {
        RegistryBuilder {
            store,
            clock,
            seed: None,
            replayed_revisions: None,
            event_ttl: EVENT_TTL,
            history: HISTORY_PERIOD,
            view_bytes_max: cache::VIEW_BYTES_MAX,
            is_shared: false,
            storage_media_type: StorageMediaType::default(),
            kinds: Vec::new(),
            converter: None,
            webhooks: None,
            authorizers: Vec::new(),
            admission: Vec::new(),
            service_account_tokens: ServiceAccountTokens::new(),
            service_accounts: false,
            default_accounts: false,
            roles: false,
            shared_objects: None,
            service_networks: ServiceNetworks::default(),
            node_ports: NodePorts::default(),
            runtime_config: RuntimeConfig::default(),
            allows_privileged: true,
            watch_cache: true,
            watch_timeout_min: WATCH_TIMEOUT_MIN,
            plugins: AdmissionPlugins::default(),
            type_checks: true,
        }
    }
}
