//! The informers that a manager's controllers share.
//!
//! # Theory
//!
//! | the options of a resource name | informers | read of one namespace | read of all namespaces |
//! |---|---|---|---|
//! | nothing | one | reads it | reads it |
//! | namespaces | one per namespace | reads that namespace's informer; [`NamespaceNotCached`] if the namespace is not named | concatenates all informers |
//! | namespaces and [`ALL_NAMESPACES`] | one per namespace, and one for all other namespaces, whose field selector excludes the named ones | reads the informer of that namespace | concatenates all informers |
//!
//! [`CacheInformer`] hides the number of informers from controllers and clients (CCH-4). A watch of
//! the type has synced when all informers have synced; reads of one namespace work as soon as that
//! namespace's informer has synced. Each informer sends its own list and watch, so permissions in
//! single namespaces are enough. A cluster-scoped type has one informer, whatever the options name
//! for all types.
//!
//! The cache is keyed by resource, not by Rust type. `Pod`, a struct that declares three of its
//! fields, `PartialObjectMeta<Pod>` and `DynamicObject` share one watch and one store of bytes, and
//! each decodes the fields that it declares. A read by a type that was never requested uses the
//! cache of another type of the same resource. [`CacheOptions`] apply to the resource, so all its
//! types have the same options and share index names. The policy `Decoded` is the exception: such a
//! cache holds the values of one Rust type, so each type has its own informers.
//!
//! | cached | from | until |
//! |---|---|---|
//! | permanently | a controller with a watch of the type is built, or [`Cache::informer`] is called | the manager ends, or the type is [removed](Cache::remove_with) |
//! | temporarily | a watch is added at run time ([`Watches`](crate::source::Watches)) | the last such watch is removed, unless the type is cached permanently |
//!
//! A read never starts an informer. A read of a type that was never requested returns
//! [`ClientError::NotCached`](crate::ClientError::NotCached), like controller-runtime's
//! `ReaderFailOnMissingInformer` (CCH-6). There is no option to change this: the memory of a
//! program depends only on the types that its code requests.

mod id;
mod informer;
mod lister;
mod options;
mod sync;

use std::{
    any::{Any, TypeId},
    fmt,
    sync::Arc,
    time::Duration,
};

use self::informer::Member;
pub(crate) use self::informer::{CacheLease, MemberStatus};
pub use self::{
    informer::{CacheInformer, CacheRegistration},
    lister::{CacheLister, CacheReadError, NamespaceNotCached},
    options::{
        ALL_NAMESPACES, ByType, CacheConfig, CacheOptions, CacheOptionsError, NAMESPACES_MAX,
        Namespaces,
    },
};
use crate::pass::CacheId;
use futures::future::BoxFuture;
use hashbrown::{HashMap, hash_map::Entry};
use parking_lot::Mutex;
use setpoint_informer::{
    Cacheable, InformerFactory, InformerLease, MetricsRegistry, ResourceType, SharedInformer,
    SharedInformerBuilder,
    factory::{ChooseSource, FactoryOptions, FactoryWorker},
    source::{
        ListPage,
        saved::{SavedSource, Unused},
    },
};
pub use setpoint_informer::{
    factory::SourceRequest,
    source::saved::{SAVED_BYTES_MAX, SavedLists, SavedListsError},
};
use tokio_util::sync::CancellationToken;

/// The default resync period: how often handlers receive every cached object again.
///
/// 10 h, as controller-runtime: a safety net for events that user code dropped. A resync sends no
/// request. It enqueues with low priority.
pub const SYNC_PERIOD: Duration = Duration::from_secs(36_000);

/// The random spread of each informer's resync period, as a fraction of it: ± 10 %, as
/// controller-runtime.
const SYNC_SPREAD: f64 = 0.1;

/// The informers shared by the controllers of a manager. Cheap to clone.
///
/// A type is cached from the first request for its informer. The manager runs that informer from
/// its start, or at once if it already runs. A read of a type that was never requested returns an
/// error and starts nothing, so the memory of a program depends only on the types that its code
/// requests.
#[derive(Clone)]
pub struct Cache {
    id: CacheId,
    factory: InformerFactory,
    options: Arc<CacheOptions>,
    /// The registry that informers report to, and their name there.
    metrics: Option<(MetricsRegistry, Arc<str>)>,
    informers: Arc<Mutex<Informers>>,
    /// Cancelled when its cluster was removed.
    closed: CancellationToken,
}

/// The informers of all cached types.
#[derive(Default)]
struct Informers {
    by_id: HashMap<Id, CachedType>,
    /// The `CacheInformer<K>` that the last read of each compile-time type found. Cleared on every
    /// request and removal.
    found: HashMap<TypeId, Arc<dyn Any + Send + Sync>>,
    /// The resource of each compile-time type that was asked for, as [`ResourceType`] displays it.
    /// Bounded by the number of types in the program's code.
    names: HashMap<TypeId, Arc<str>>,
    /// The function type of each declared index of the cached types. Bounded by the number of
    /// indexes in the program's code.
    indexes: HashMap<(ResourceType, Arc<str>), TypeId>,
    /// The number of the last request.
    last_number: u64,
}

/// A Rust type and the resource that it reads. Several types share the informers of a resource.
type Id = (TypeId, ResourceType);

/// A cached type.
struct CachedType {
    /// A `CacheInformer<K>`.
    informer: Arc<dyn AnyInformer>,
    /// Keeps the informers running: one `InformerLease<K>` for each.
    _leases: Box<dyn Any + Send + Sync>,
    /// Distinguishes this request from a new request after a removal.
    number: u64,
    /// Cached permanently.
    is_pinned: bool,
    /// The manager waits for its sync before it starts controllers.
    is_awaited: bool,
    n_leases: usize,
}

/// A [`CacheInformer`] with its type erased.
trait AnyInformer: Any + Send + Sync {
    fn statuses(&self) -> Vec<MemberStatus>;

    /// Waits until it has synced or stopped.
    fn synced(&self) -> BoxFuture<'static, ()>;

    /// The same informers as an untyped view, from which a reader takes a view of its own type.
    /// `None` if the cache holds decoded values of one type.
    fn view(&self) -> Option<CacheInformer<()>>;

    /// Whether its type reads metadata only.
    fn is_metadata(&self) -> bool;

    /// Adds the objects of the informers that have synced.
    fn save(&self, lists: &mut SavedLists) -> Result<(), SavedListsError>;
}

impl<K: Cacheable> AnyInformer for CacheInformer<K> {
    fn statuses(&self) -> Vec<MemberStatus> {
        self.member_statuses()
    }

    fn synced(&self) -> BoxFuture<'static, ()> {
        let informer = self.clone();
        Box::pin(async move { _ = CacheInformer::synced(&informer).await })
    }

    fn view(&self) -> Option<CacheInformer<()>> {
        CacheInformer::view(self)
    }

    fn is_metadata(&self) -> bool {
        K::metadata_api()
    }

    fn save(&self, lists: &mut SavedLists) -> Result<(), SavedListsError> {
        let resource = &self.resource_type().resource;
        for (_, informer) in self.informers() {
            let (selection, snapshot) = (informer.selection(), informer.lister().snapshot());
            let is_known = lists.has_whole(resource, selection);
            if !informer.has_synced() || snapshot.resource_version().is_empty() || is_known {
                continue;
            }
            let metadata_only = K::metadata_api() || snapshot.iter().any(|item| item.is_partial());
            // `None`: the cache holds decoded values.
            let Some(items) = snapshot.iter().map(|item| item.json()).collect() else { continue };
            let page = ListPage::new(snapshot.resource_version(), items);
            lists.insert(resource.clone(), selection.clone(), metadata_only, page)?;
        }
        Ok(())
    }
}

impl Cache {
    pub(crate) fn new(
        client: kube_client::Client,
        mut options: CacheOptions,
        seed: u64,
    ) -> (Self, FactoryWorker) {
        let mut factory_options = FactoryOptions::default();
        factory_options.source = source(&mut options);
        factory_options.resync = SYNC_PERIOD;
        factory_options.resync_spread = SYNC_SPREAD;
        factory_options.decoded_bytes = options.decoded_bytes;
        factory_options.backoff = options.backoff;
        factory_options.watch_quiet_timeout = options.watch_quiet_timeout;
        factory_options.on_error.clone_from(&options.on_error);
        factory_options.give_up_after = options.give_up_after;
        factory_options.seed = Some(seed);
        if let Some((registry, name)) = &options.metrics {
            factory_options.metrics = Some(registry.clone());
            factory_options.name.clone_from(name);
        }
        let metrics = options.metrics.clone().map(|(registry, name)| (registry, name.into()));
        let (factory, worker) = InformerFactory::new(client, factory_options);
        let (id, options, informers) = (CacheId::next(), Arc::new(options), Arc::default());
        let closed = CancellationToken::new();
        let cache = Self { id, factory, options, metrics, informers, closed };
        (cache, worker)
    }

    /// Requests the informers of a type, as the options demand. Informers that already run are
    /// shared.
    fn request<K: Cacheable>(
        &self,
        dynamic_type: &K::DynamicType,
        is_cluster_scoped: bool,
    ) -> (CacheInformer<K>, Vec<InformerLease<K>>) {
        let resource = ResourceType::of::<K>(dynamic_type);
        let mut resolved = self.options.resolve::<K>(&resource, is_cluster_scoped);
        // Informers of single namespaces first, sorted by namespace.
        resolved.sort_by_key(|rule| !rule.is_named);
        let n_named = resolved.iter().filter(|rule| rule.is_named).count();
        let is_alone = resolved.len() == 1;
        let mut leases = Vec::with_capacity(resolved.len());
        let mut members = Vec::with_capacity(resolved.len());
        for rule in resolved {
            let selection = rule.selection;
            let namespace: Option<Arc<str>> = selection.namespace.as_deref().map(Arc::from);
            // The plain metrics name belongs to the informer of all other namespaces.
            let metrics = self.metrics.as_ref().filter(|_| !is_alone && rule.is_named);
            let request = self.factory.request::<K>(dynamic_type).selection(selection);
            let lease = request
                .build(|builder| match (metrics, &namespace) {
                    (Some((registry, name)), Some(namespace)) => {
                        rule.config.apply(builder).metrics(registry, format!("{name}/{namespace}"))
                    }
                    _ => rule.config.apply(builder),
                })
                .leased();
            members.push(Member { namespace, informer: SharedInformer::clone(&lease) });
            leases.push(lease);
        }
        (CacheInformer::new(members, n_named), leases)
    }

    /// Returns the informer of a type known at compile time. The type is cached permanently, until
    /// it is [removed](Self::remove). The informer runs at once if the manager does.
    ///
    /// This function does not wait. A starting manager waits for the informer's first list before
    /// it leads and runs tasks; for one of an [additional cluster](crate::cluster) at most
    /// [`SYNC_TIMEOUT`](crate::controller::SYNC_TIMEOUT).
    pub fn informer<K: Cacheable>(&self) -> CacheInformer<K>
    where
        K::DynamicType: Default,
    {
        self.informer_with(&K::DynamicType::default())
    }

    /// [`informer`](Self::informer) for a type known at run time.
    pub fn informer_with<K: Cacheable>(&self, dynamic_type: &K::DynamicType) -> CacheInformer<K> {
        self.pinned(dynamic_type, false, true)
    }

    /// [`informer_with`](Self::informer_with), but a starting manager does not wait for its sync
    /// (CCH-11). For a type that may not be served yet, or that may not be permitted. Until it has
    /// synced, reads return [`ClientError::NotSynced`](crate::ClientError::NotSynced).
    pub fn informer_unawaited<K: Cacheable>(
        &self,
        dynamic_type: &K::DynamicType,
    ) -> CacheInformer<K> {
        self.pinned(dynamic_type, false, false)
    }

    /// Returns the informer of a type for a caller that waits for its sync itself.
    /// `is_cluster_scoped` is for types whose scope is known only at run time.
    pub(crate) fn watched<K: Cacheable>(
        &self,
        dynamic_type: &K::DynamicType,
        is_cluster_scoped: bool,
    ) -> CacheInformer<K> {
        self.pinned(dynamic_type, is_cluster_scoped, false)
    }

    fn pinned<K: Cacheable>(
        &self,
        dynamic_type: &K::DynamicType,
        is_cluster_scoped: bool,
        is_awaited: bool,
    ) -> CacheInformer<K> {
        let (informer, leases) = self.request::<K>(dynamic_type, is_cluster_scoped);
        self.insert(dynamic_type, &informer, leases, |cached| {
            cached.is_pinned = true;
            cached.is_awaited |= is_awaited;
        });
        self.factory.start();
        informer
    }

    /// Returns the informer of a type as a lease. The type stays cached until the last lease is
    /// dropped, unless it is cached permanently.
    pub(crate) fn leased<K: Cacheable>(
        &self,
        dynamic_type: &K::DynamicType,
        is_cluster_scoped: bool,
    ) -> CacheLease<K> {
        let (informer, leases) = self.request::<K>(dynamic_type, is_cluster_scoped);
        let (id, number) =
            self.insert(dynamic_type, &informer, leases, |cached| cached.n_leases += 1);
        self.factory.start();
        CacheLease { informer, informers: self.informers.clone(), id, number }
    }

    fn insert<K: Cacheable>(
        &self,
        dynamic_type: &K::DynamicType,
        informer: &CacheInformer<K>,
        leases: Vec<InformerLease<K>>,
        update: impl FnOnce(&mut CachedType),
    ) -> (Id, u64) {
        let id = id_of::<K>(dynamic_type);
        let mut new = CachedType {
            informer: Arc::new(informer.clone()),
            _leases: Box::new(leases),
            number: 0,
            is_pinned: false,
            is_awaited: false,
            n_leases: 0,
        };
        let mut informers = self.informers.lock();
        match informers.by_id.get(&id) {
            // Replaces the informer: the factory returns a new one if the old one has ended.
            Some(cached) => {
                new.number = cached.number;
                new.is_pinned = cached.is_pinned;
                new.is_awaited = cached.is_awaited;
                new.n_leases = cached.n_leases;
            }
            None => {
                informers.last_number += 1;
                new.number = informers.last_number;
            }
        }
        update(&mut new);
        informers.found.clear();
        let number = new.number;
        let before = informers.by_id.insert(id.clone(), new);
        // Drop without the lock, because destructors may request informers.
        drop(informers);
        drop(before);
        (id, number)
    }

    /// [`remove_with`](Self::remove_with) for a type known at compile time.
    pub fn remove<K: Cacheable>(&self) -> bool
    where
        K::DynamicType: Default,
    {
        self.remove_with::<K>(&K::DynamicType::default())
    }

    /// Stops and removes the informers of a resource, for all Rust types that read it. Returns
    /// whether there were any (CCH-10). A later request creates new informers with empty caches and
    /// no indexes.
    ///
    /// For a type that no longer exists, or whose cache must be built again. For a type that is
    /// needed temporarily, add a [watch](crate::source::Watches) instead. The effects on users of
    /// the type:
    ///
    /// | user | effect |
    /// |---|---|
    /// | cached read | returns [`ClientError::NotCached`](crate::ClientError::NotCached) from now on |
    /// | read that waits for an own write | returns [`ClientError::Unordered`](crate::ClientError::Unordered) |
    /// | controller that waits for its first list | fails with [`ControllerError::SourceStopped`](crate::controller::ControllerError::SourceStopped), and so does its manager |
    /// | running controller that watches it | continues without its events, logs a warning, and sets [`SourceStatus::has_stopped`](crate::source::SourceStatus::has_stopped); a watch that is added later uses the new informers |
    /// | handler, [`CacheInformer`], lister | handlers receive no more events; [`CacheInformer::stopped`] returns; cached objects stay readable |
    pub fn remove_with<K: Cacheable>(&self, dynamic_type: &K::DynamicType) -> bool {
        let resource = ResourceType::of::<K>(dynamic_type);
        let removed: Vec<_> = {
            let mut informers = self.informers.lock();
            informers.found.clear();
            let removed = informers.by_id.extract_if(|(_, of), _| *of == resource).collect();
            informers.forget_indexes(&resource);
            removed
        };
        // Drop without the lock, because destructors may request informers.
        !removed.is_empty()
    }

    /// Saves the cached objects for [`CacheOptions::restore`] in a later process. Encode them with
    /// [`SavedLists::to_bytes`].
    ///
    /// May be called at any time, also after the manager has stopped. Skips caches that have not
    /// synced, and caches with the policy `Decoded`, which hold no bytes. Copies no objects, except
    /// from compressed caches. Takes time in proportion to the number of objects: for several
    /// hundred thousand, call it on a blocking thread.
    ///
    /// # Errors
    ///
    /// There are too many lists.
    pub fn save(&self) -> Result<SavedLists, SavedListsError> {
        let mut informers: Vec<Arc<dyn AnyInformer>> = {
            let informers = self.informers.lock();
            informers.by_id.values().map(|cached| cached.informer.clone()).collect()
        };
        // Readers of metadata may share a cache of whole objects.
        informers.sort_by_key(|informer| informer.is_metadata());
        let mut lists = SavedLists::default();
        informers.iter().try_for_each(|informer| informer.save(&mut lists))?;
        Ok(lists)
    }

    /// Declares an index with its function's type, until the type is no longer cached. Returns
    /// whether the same function was declared before. Rejects a different function under the same
    /// name, also one over another Rust type of the resource, because the types share its indexes.
    pub(crate) fn declare_index<K: Cacheable>(
        &self,
        dynamic_type: &K::DynamicType,
        name: &Arc<str>,
        function: TypeId,
    ) -> Result<bool, String> {
        let mut informers = self.informers.lock();
        let declared = informers.indexes.entry((ResourceType::of::<K>(dynamic_type), name.clone()));
        match declared {
            Entry::Vacant(vacant) => {
                vacant.insert(function);
                Ok(false)
            }
            Entry::Occupied(occupied) if *occupied.get() == function => Ok(true),
            Entry::Occupied(_) => Err("it is already declared with another function".to_owned()),
        }
    }

    /// Takes back a declaration whose function was refused by an informer.
    pub(crate) fn forget_index<K: Cacheable>(
        &self,
        dynamic_type: &K::DynamicType,
        name: &Arc<str>,
    ) {
        let index = (ResourceType::of::<K>(dynamic_type), name.clone());
        self.informers.lock().indexes.remove(&index);
    }

    /// The name of a type's resource, as [`ResourceType`] displays it. Shared among the calls of a
    /// compile-time type, of which a reconciler makes several in each pass.
    pub(crate) fn resource_name<K: Cacheable>(&self, dynamic_type: &K::DynamicType) -> Arc<str> {
        let new = || Arc::from(ResourceType::of::<K>(dynamic_type).to_string());
        let Some(of) = compile_time::<K>() else { return new() };
        if let Some(known) = self.informers.lock().names.get(&of) {
            return known.clone();
        }
        let name = new();
        self.informers.lock().names.entry(of).or_insert(name).clone()
    }

    /// Returns the informer of a type, if its resource was requested by this type or another.
    /// Requests nothing.
    pub fn known<K: Cacheable>(&self, dynamic_type: &K::DynamicType) -> Option<CacheInformer<K>> {
        let of = compile_time::<K>();
        if let Some(of) = of
            && let Some(found) = self.informers.lock().found.get(&of)
        {
            return found.downcast_ref::<CacheInformer<K>>().cloned();
        }
        let id = id_of::<K>(dynamic_type);
        let mut informers = self.informers.lock();
        let found = informers.find::<K>(&id)?;
        if let Some(of) = of {
            informers.found.insert(of, Arc::new(found.clone()));
        }
        Some(found)
    }
}

impl Informers {
    /// Forgets the declared indexes of a resource, if no type of it is cached any more.
    fn forget_indexes(&mut self, resource: &ResourceType) {
        if !self.by_id.keys().any(|(_, of)| of == resource) {
            self.indexes.retain(|(of, _), _| of != resource);
        }
    }

    /// The informer requested by this type, or by another type of its resource.
    fn find<K: Cacheable>(&self, id: &Id) -> Option<CacheInformer<K>> {
        if let Some(cached) = self.by_id.get(id) {
            let cached: &dyn Any = &*cached.informer;
            return cached.downcast_ref::<CacheInformer<K>>().cloned();
        }
        let others = self.by_id.iter().filter(|((_, resource), cached)| {
            *resource == id.1 && (K::metadata_api() || !cached.informer.is_metadata())
        });
        // Prefer the first request.
        let mut others: Vec<&CachedType> = others.map(|(_, cached)| cached).collect();
        others.sort_by_key(|cached| cached.number);
        others.iter().find_map(|cached| cached.informer.view()?.view())
    }
}

/// Returns the function that chooses each informer's source: the configured one, behind the saved
/// lists.
fn source(options: &mut CacheOptions) -> Option<ChooseSource> {
    let chosen = options.source.clone();
    let Some(saved) = options.saved.take() else { return chosen };
    let unused = Unused::new(saved);
    Some(Arc::new(move |request, source| {
        let source = match &chosen {
            Some(choose) => choose(request, source),
            None => source,
        };
        let SourceRequest { resource_type, selection, metadata_only, .. } = request.clone();
        let unused = unused.clone();
        let resource = resource_type.resource;
        Arc::new(SavedSource::new(source, resource, selection, metadata_only, unused))
    }))
}

/// The key of a type of which the compiler knows the resource. It has one resource, so the Rust
/// type is a sufficient key.
fn compile_time<K: Cacheable>() -> Option<TypeId> {
    (TypeId::of::<K::DynamicType>() == TypeId::of::<()>()).then(TypeId::of::<K>)
}

fn id_of<K: Cacheable>(dynamic_type: &K::DynamicType) -> Id {
    (TypeId::of::<K>(), ResourceType::of::<K>(dynamic_type))
}

impl CacheConfig {
    /// Applies the options of how objects are stored.
    fn apply<K: Cacheable>(
        self,
        mut builder: SharedInformerBuilder<K>,
    ) -> SharedInformerBuilder<K> {
        if let Some(transform) = self.transform {
            builder = builder.transform(move |object| transform(object));
        }
        if let Some(prune) = self.prune {
            builder = builder.prune(prune);
        }
        if let Some(keep) = self.keep_managed_fields {
            builder = builder.keep_managed_fields(keep);
        }
        if let Some(policy) = self.policy {
            builder = builder.policy(policy);
        }
        if let Some(resync) = self.resync {
            builder = builder.resync(resync);
        }
        builder
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("n_types", &self.informers.lock().by_id.len())
            .finish_non_exhaustive()
    }
}
