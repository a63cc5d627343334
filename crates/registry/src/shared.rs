//! State that all stages of a request share: the store, the clock, the catalog, the watch cache,
//! allocated numbers, admission.
//!
//! `registry` creates and maintains it; `read`, `write` and `watch` use it.
mod figures;

use crate::admission::{self, Objects};
use crate::allocate::{Allocator, ServiceNetworks};
use crate::authorize;
use crate::cache::{self, StoredObject};
use crate::catalog::{Catalog, Resource};
use crate::conversion::{ConversionProvider, ConvertedBytes, Converter};
use crate::features::FeatureGates;
use crate::fifo_watch::FifoWatch;
use crate::figures::Figures;
use crate::origins::Origins;
use crate::routed::Attributes;
use crate::service_account::ServiceAccountTokens;
use crate::shared_objects::SharedObjects;
use crate::stored::store_error;
use crate::threads::Threads;
use crate::token_review::TokenReviewer;
use crate::turns::Turns;
use crate::unreadable::sealed;
use setpoint_object::time::Clock;
use setpoint_object::{ApiError, Origin};
use setpoint_store::{At, KeyValue, Revision, Store, is_sealed};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How long the store may take to answer before the server reports it as unreachable: two seconds,
/// as kube-apiserver's `--etcd-healthcheck-timeout`.
const HEALTH_PATIENCE: Duration = Duration::from_secs(2);
/// How long documents that list resources wait for the status of a definition: a second; the write
/// takes milliseconds.
const ANNOUNCE_MAX: Duration = Duration::from_secs(1);

/// State shared by every part of the registry.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) store: Arc<dyn Store>,
    /// Other servers write to the store too.
    pub(crate) is_shared: bool,
    /// The first namespaces get their ServiceAccount at the start.
    pub(crate) default_accounts: bool,
    /// An empty store gets roles and bindings at the start.
    pub(crate) has_roles: bool,
    /// Objects of the start that other registries have, too.
    pub(crate) shared_objects: Option<SharedObjects>,
    /// The revision of the last object of the start, if this start found an empty store and wrote
    /// all objects itself; otherwise zero.
    pub(crate) started_at: AtomicU64,
    pub(crate) clock: Clock,
    /// Source of uids, generated names and watch timeouts.
    pub(crate) rng: parking_lot::Mutex<rand::rngs::SmallRng>,
    /// The rows that do not depend on definitions.
    pub(crate) compiled: Arc<Catalog>,
    /// The present catalog; replaced with every change.
    pub(crate) catalog: FifoWatch<Arc<Catalog>>,
    /// Whether definitions are served whose stored status does not say so yet.
    pub(crate) is_announcing: FifoWatch<bool>,
    /// Whether requests are served.
    pub(crate) ready: FifoWatch<bool>,
    pub(crate) cache: cache::WatchCache,
    /// What lists hold of objects that were converted for them.
    pub(crate) converted_by_lists: ConvertedBytes,
    /// How many revisions the cache reads at start.
    pub(crate) replayed_revisions: u64,
    /// How long Events are stored.
    pub(crate) event_ttl: Duration,
    /// Which features are on.
    pub(crate) features: FeatureGates,
    /// Whether containers may be privileged.
    pub(crate) allows_privileged: bool,
    /// Whether lists of any version are what the cache has, in one page.
    pub(crate) watch_cache: bool,
    /// Minimum duration of a watch that asks for none.
    pub(crate) watch_timeout_min: Duration,
    /// How long history is kept.
    pub(crate) history: Duration,
    /// The reconciles that recent changes come from.
    pub(crate) origins: Origins,
    /// What is counted, for metrics.
    pub(crate) figures: Figures,
    /// Cluster addresses and node ports in use.
    pub(crate) allocator: Allocator,
    /// The admission plugins.
    pub(crate) admission: admission::Chain,
    /// The authorizers.
    pub(crate) authorization: authorize::Chain,
    /// Calls conversion webhooks.
    pub(crate) converter: Option<Arc<dyn ConversionProvider>>,
    /// Threads for costly work.
    pub(crate) threads: Threads,
    /// The writers that wait for objects.
    pub(crate) turns: Turns,
    /// How tokens of service accounts are signed and accepted.
    pub(crate) service_account_tokens: ServiceAccountTokens,
    /// Authenticates the tokens of reviews.
    pub(crate) token_reviewer: parking_lot::Mutex<Option<Weak<dyn TokenReviewer>>>,
}
/// A handle; cheap to clone.
#[derive(Debug, Clone)]
pub struct Registry {
    pub(crate) inner: Arc<Inner>,
}
/// A handle that does not keep the registry's state alive.
#[derive(Debug, Clone)]
pub struct WeakRegistry(Weak<Inner>);
impl WeakRegistry {
    /// The registry, unless its last handle was dropped.
    pub fn upgrade(&self) -> Option<Registry> {
        self.0.upgrade().map(|inner| Registry { inner })
    }
}
impl Inner {
    /// The converter to a row's version, if the conversion may wait.
    pub(crate) fn served(&self, row: &Resource) -> Option<Arc<Converter>> {
        let webhook = row.stored.as_ref()?.webhook.as_ref()?;
        webhook.served(&**self.converter.as_ref()?, self.for_conversions(), row)
    }
    /// The converter to the storage version of a row, if the conversion may wait.
    pub(crate) fn stored(&self, row: &Resource) -> Option<Arc<Converter>> {
        let webhook = row.stored.as_ref()?.webhook.as_ref()?;
        let provider =
            self.converter.as_ref().filter(|_| row.gvk.version != row.storage_version)?;
        let kind = row.group_kind();
        webhook.converter(&**provider, self.for_conversions(), &kind, &row.storage_version)
    }
    /// The converter to a row's version, from any other version, if the conversion may wait.
    pub(crate) fn converter_to(&self, row: &Resource) -> Option<Arc<Converter>> {
        let webhook = row.stored.as_ref()?.webhook.as_ref()?;
        let (provider, kind) = (self.converter.as_ref()?, row.group_kind());
        webhook.converter(&**provider, self.for_conversions(), &kind, &row.gvk.version)
    }
    fn for_conversions(&self) -> (&Figures, &Threads) {
        (&self.figures, &self.threads)
    }
    /// The cached view of a row's objects as it serves them, if their conversion may wait.
    pub(crate) fn view(&self, row: &Arc<Resource>) -> Option<cache::ViewReader> {
        self.served(row).map(|converter| self.cache.view(row, converter))
    }
    /// Compiles the schemas that reads of a row's objects may need, if that takes long.
    ///
    /// # Errors
    ///
    /// As [`Threads::run`].
    pub(crate) async fn compile(&self, row: &Resource) -> Result<(), ApiError> {
        let slow = row.schemas().filter(|schema| schema.compiles_slowly());
        let slow: Vec<_> = slow.cloned().collect();
        let is_needed = || {
            let (index, _) = self.cache.resource(&row.storage_prefix).snapshot();
            !index.is_empty() || row.gvk.version != row.storage_version
        };
        if slow.is_empty() || !self.threads.are_used() || !is_needed() {
            return Ok(());
        }
        let compile = async move { slow.iter().for_each(|schema| _ = schema.view()) };
        self.threads.run(compile).await
    }
    /// Sets whether requests are served.
    pub(crate) fn set_ready(&self, ready: bool) {
        self.ready.change(|present| *present = ready);
    }
}
impl Registry {
    /// The present catalog.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.inner.catalog.borrow().clone()
    }
    /// The networks of the ServiceCIDR `kubernetes`. Services have addresses of their families.
    pub fn service_networks(&self) -> ServiceNetworks {
        self.inner.allocator.networks()
    }
    /// A handle for parts that the registry itself holds, such as its clients of webhooks.
    pub fn downgrade(&self) -> WeakRegistry {
        WeakRegistry(Arc::downgrade(&self.inner))
    }
    /// Reads again which addresses and node ports Services have. For callers that change the store
    /// beside the registry, such as back to a snapshot: numbers that became free there are given
    /// again as if they had never been used.
    ///
    /// # Errors
    ///
    /// If the store cannot be read. What was known stays then; no number is given twice.
    pub async fn reload_service_numbers(&self) -> Result<(), ApiError> {
        let Inner { allocator, store, .. } = &*self.inner;
        allocator.reload(&**store).await.map_err(store_error)
    }
    /// The present objects, as admission plugins read them.
    pub fn objects(&self) -> Objects<'_> {
        Objects::new(&self.inner)
    }
    /// Waits until the status of every served definition says that it is, a second at most.
    /// Documents that list resources wait: a client that finds a new resource there may change its
    /// definition, and must not meet the write of the status.
    pub async fn wait_announced(&self) {
        if self.inner.is_announcing.get() {
            let announced = self.inner.is_announcing.wait_for(|is_announcing| !is_announcing);
            // The documents are true in either case.
            _ = tokio::time::timeout(ANNOUNCE_MAX, announced).await;
        }
    }
    /// A receiver that changes with every new catalog.
    pub fn catalog_changes(&self) -> tokio::sync::watch::Receiver<Arc<Catalog>> {
        self.inner.catalog.subscribe()
    }
    /// A receiver that becomes true once start-up is done (built-in namespaces exist, the watch
    /// cache is filled).
    pub fn ready(&self) -> tokio::sync::watch::Receiver<bool> {
        self.inner.ready.subscribe()
    }
    /// Waits until start-up is done. Waiting callers continue in the order in which they arrived.
    /// Dropping the future has no effect.
    pub async fn wait_ready(&self) {
        self.inner.ready.wait_for(|ready| *ready).await;
    }
    /// Whether the store answers within two seconds. Dropping the future has no effect.
    pub async fn store_answers(&self) -> bool {
        let answer = tokio::time::timeout(HEALTH_PATIENCE, self.inner.store.revision()).await;
        matches!(answer, Ok(Ok(_)))
    }
    /// The reconcile that made a change, as its client reported: controller, key and pass. Known
    /// for the newest 8,192 changes that have an origin and went through this server since it
    /// started.
    pub fn origin_of(&self, revision: Revision) -> Option<Arc<Origin>> {
        self.inner.origins.of(revision)
    }
    /// Every existing object and every change of one, in order, for a reader in this process.
    /// Replaces one watch per resource. Costs nothing until it is created, and an idle reader
    /// does not block.
    pub fn object_changes(&self) -> cache::ObjectChanges {
        self.object_changes_where(|_, _| true)
    }
    /// The same, for a reader that does not want every change: others do not wake it. `is_wanted`
    /// gets an object's key and its bytes, or the last ones of a deleted object. It is called for
    /// every change before the next, so it must be fast. A resync sends all objects nevertheless.
    pub fn object_changes_where(
        &self,
        is_wanted: impl Fn(&[u8], &[u8]) -> bool + Send + Sync + 'static,
    ) -> cache::ObjectChanges {
        self.inner.cache.object_changes(is_wanted)
    }
    /// The revision of the newest change of a resource's objects, for readers that hold something
    /// made from them. `None`: the watch cache is being filled.
    pub fn newest_change(&self, storage_prefix: &str) -> Option<u64> {
        let is_filled = self.inner.cache.reached().is_filled;
        is_filled.then(|| self.inner.cache.resource(storage_prefix).newest())
    }
    /// Whether an object of this revision is one that this server has written at its start, to a
    /// store that was empty: nothing in it is left to do. False for all objects of another store.
    pub fn is_of_start(&self, revision: u64) -> bool {
        // Relaxed: a reader of an object is behind the end of the start.
        (1..=self.inner.started_at.load(Ordering::Relaxed)).contains(&revision)
    }
    /// Whether the objects of a resource are those that this server has written at its start, to a
    /// store that was empty, and no other. `storage_prefix` is
    /// [`Resource::storage_prefix`](crate::Resource::storage_prefix).
    pub fn is_as_started(&self, storage_prefix: &str) -> bool {
        self.newest_change(storage_prefix).is_some_and(|newest| self.is_of_start(newest))
    }
    /// Whether the first namespaces got their account `default` at the start
    /// ([`RegistryBuilder::default_accounts`](crate::RegistryBuilder::default_accounts)).
    pub fn has_default_accounts(&self) -> bool {
        self.inner.default_accounts
    }
    /// Whether the roles and bindings of the start were written by this start, to a store that was
    /// empty ([`RegistryBuilder::roles`](crate::RegistryBuilder::roles)).
    pub(crate) fn has_started_with_roles(&self) -> bool {
        self.inner.has_roles && self.is_of_start(1)
    }
    /// Waits until the resource has an object, for what a server without any need not have.
    /// `storage_prefix` is [`Resource::storage_prefix`](crate::Resource::storage_prefix). Cancel
    /// safe.
    pub async fn any_object(&self, storage_prefix: &str) {
        self.inner.cache.resource(storage_prefix).any().await;
    }
    /// A signal of the changes of a resource's objects from now on; only of those with a name, if
    /// there is one.
    pub fn change_signal(&self, storage_prefix: &str, name: Option<&str>) -> cache::ChangeSignal {
        cache::ChangeSignal::new(self.inner.cache.resource(storage_prefix), name)
    }
    /// The objects of a resource as they are stored, by key, and the revision of their newest
    /// change.
    pub fn stored_objects(&self, storage_prefix: &str) -> (Vec<StoredObject>, u64) {
        let (index, newest) = self.inner.cache.resource(storage_prefix).snapshot();
        let items = index.range(Bound::Unbounded, Bound::Unbounded);
        let object = |item: &Arc<cache::Item>| {
            StoredObject::new(item.key.clone(), item.revision, item.value.clone())
        };
        (items.map(object).collect(), newest)
    }
    /// Whether a resource has at most `n_max` objects in all namespaces.
    pub fn has_at_most(&self, storage_prefix: &str, n_max: usize) -> bool {
        let (index, _) = self.inner.cache.resource(storage_prefix).snapshot();
        index.count(n_max.saturating_add(1)) <= n_max
    }
    /// The number of a resource's objects in all namespaces, at most `n_max`.
    pub fn count_objects(&self, resource: &Resource, n_max: usize) -> usize {
        let (index, _) = self.inner.cache.resource(&resource.storage_prefix).snapshot();
        index.count(n_max)
    }
    /// Authorizes a request
    /// ([`RegistryBuilder::authorizer`](crate::RegistryBuilder::authorizer)).
    ///
    /// # Errors
    ///
    /// 403; the error of an authorizer that cannot decide, if no other allows the request.
    pub async fn authorize(&self, request: &Attributes) -> Result<(), ApiError> {
        let Inner { authorization, figures, .. } = &*self.inner;
        authorization.authorize(request, figures).await
    }
    /// How tokens of service accounts are signed and accepted.
    pub fn service_account_tokens(&self) -> &ServiceAccountTokens {
        &self.inner.service_account_tokens
    }
    /// Sets what authenticates the tokens of TokenReviews: the API server does. Without it, or if
    /// it was dropped, no token is known.
    pub fn set_token_reviewer(&self, reviewer: Weak<dyn TokenReviewer>) {
        *self.inner.token_reviewer.lock() = Some(reviewer);
    }
    /// Whether costly work runs on the caller's thread, because the registry
    /// [has a seed](crate::RegistryBuilder::seed).
    pub fn works_in_place(&self) -> bool {
        !self.inner.threads.are_used()
    }
    /// The clock of this registry.
    pub fn clock(&self) -> &Clock {
        &self.inner.clock
    }
}
impl Inner {
    /// The present state of a key in the store.
    pub(crate) async fn live(&self, key: &[u8]) -> Result<Option<KeyValue>, ApiError> {
        let unread = |error| self.error_of_write(error);
        let found = self.store.get(key, At::Latest).await.map_err(unread)?.value;
        match found {
            Some(kv) if is_sealed(&kv.value) => Err(self.error_of_write(sealed(key))),
            found => Ok(found),
        }
    }
    /// The state of a key in the watch cache, which may be behind the store; `None` if the cache
    /// has no entry, or is not filled yet.
    ///
    /// For writes that end in a compare: the commit fails unless this was the newest state. Any
    /// other outcome needs [`Inner::live`].
    pub(crate) fn recent(&self, storage_prefix: &str, key: &[u8]) -> Option<KeyValue> {
        if !self.cache.reached().is_filled {
            return None;
        }
        let item = self.cache.resource(storage_prefix).get(key)?;
        let (modified, key, value) =
            (Revision(item.revision), item.key.clone(), item.value.clone());
        // Writes do not use the creation revision.
        (!is_sealed(&value)).then_some(KeyValue { key, value, modified, created: Revision(0) })
    }
}
