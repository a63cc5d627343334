//! The informers that a manager's controllers share.
//!
//! # Theory
//!
//! | a type's rules name     | its informers                                    | a read of a namespace       | a read of all namespaces |
//! |-------------------------|--------------------------------------------------|-----------------------------|--------------------------|
//! | nothing                 | one                                              | asks it                     | asks it                  |
//! | namespaces              | one per namespace                                | asks its informer; of one that is not named it is [`NamespaceNotCached`] | concatenates |
//! | namespaces, and [`ALL_NAMESPACES`] | one per namespace, and one of all others, which a field selector excludes | asks its informer | concatenates |
//!
//! What has several informers has them behind one face, [`CacheInformer`]: controllers and clients
//! do not see how many there are (CCH-4). A watch of the type has synced when each of them has;
//! reads of one namespace work as soon as its own has. Each is a list and a watch of its own at the
//! server, so that permissions for single namespaces are enough. Types that have no namespaces have
//! one informer, whatever is named for all types.
//!
//! What is cached is a resource, not a Rust type: `Pod`, a struct that declares three fields of it,
//! `PartialObjectMeta<Pod>` and `DynamicObject` read one watch and one store of bytes, and each
//! decodes what it declares. A type that nobody asked for reads what another type of its resource
//! caches. The rules of [`CacheOptions`] are those of the resource, so that types of one resource
//! have the same; where a policy is `Decoded`, each type has informers of its own, as the cache
//! holds the values of one type. Index names are shared, too.
//!
//! | a type is cached  | when                                                        | until                                                   |
//! |-------------------|-------------------------------------------------------------|---------------------------------------------------------|
//! | for good          | a controller is built with a watch of it, or [`Cache::informer`] asks for it | the manager ends, or it is [removed](Cache::remove_with) |
//! | for a while       | a watch is added at run time ([`Watches`](crate::source::Watches))  | the last such watch is removed, unless it is cached for good |
//!
//! Reads start nothing: of a type that nobody asked for they are an error,
//! [`ClientError::NotCached`](crate::ClientError::NotCached). That is controller-runtime's
//! `ReaderFailOnMissingInformer`, and there is no other way here (CCH-6): what a program holds in
//! memory is what its code names.

mod informer;
mod lease;
mod lister;
mod options;

use std::{
    any::{Any, TypeId},
    fmt,
    sync::Arc,
    time::Duration,
};

use self::informer::Member;
pub(crate) use self::informer::MemberStatus;
pub(crate) use self::lease::CacheLease;
pub use self::{
    informer::{CacheInformer, CacheRegistration},
    lister::{CacheLister, CacheReadError, NamespaceNotCached},
    options::{
        ALL_NAMESPACES, ByType, CacheConfig, CacheOptions, CacheOptionsError, NAMESPACES_MAX,
        Namespaces,
    },
};
use futures::future::{BoxFuture, join_all};
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

/// How often handlers are told again of every cached object, unless chosen otherwise.
///
/// 10 h, as controller-runtime: a safety net for events that user code dropped. It asks no server.
/// What it enqueues has the low priority.
pub const SYNC_PERIOD: Duration = Duration::from_secs(36_000);

/// By what part of it the period of each informer is shorter or longer: ± 10 %, as
/// controller-runtime.
const SYNC_SPREAD: f64 = 0.1;

/// What caches each type, shared by the controllers of a manager. Cheap to clone.
///
/// A type is cached from the first request for its informer; the manager runs it from the start, or
/// at once when it runs already. Reading a type that nobody requested is an error and starts
/// nothing: what a program holds in memory is what its code names.
#[derive(Clone)]
pub struct Cache {
    factory: InformerFactory,
    options: Arc<CacheOptions>,
    /// Where informers tell of themselves, and as whom.
    metrics: Option<(MetricsRegistry, Arc<str>)>,
    informers: Arc<Mutex<Informers>>,
}

/// What caches each type.
#[derive(Default)]
struct Informers {
    by_id: HashMap<Id, Known>,
    /// What reads of a type known at compile time found last: a `CacheInformer<K>`. Emptied when
    /// anything is requested or forgotten.
    found: HashMap<TypeId, Arc<dyn Any + Send + Sync>>,
    /// The types of the functions of declared indexes: as many as the program's code declares.
    indexes: HashMap<(ResourceType, Arc<str>), TypeId>,
    /// The number of the next that is requested.
    next: u64,
}

/// Who asked, and for what: readers of several types share the informers of a resource.
type Id = (TypeId, ResourceType);

/// A type that somebody requested.
struct Known {
    /// A `CacheInformer<K>`.
    informer: Arc<dyn AnyInformer>,
    /// What keeps its informers running: an `InformerLease<K>` of each.
    _leases: Box<dyn Any + Send + Sync>,
    /// Tells what was requested from what is requested anew after it was removed.
    number: u64,
    /// Somebody asked for it for good.
    is_pinned: bool,
    /// Somebody asked for it by name, and the manager is to wait for it.
    is_awaited: bool,
    n_leases: usize,
}

/// What caches a type that is forgotten.
trait AnyInformer: Any + Send + Sync {
    fn statuses(&self) -> Vec<MemberStatus>;

    /// Waits until it has synced, or stopped.
    fn synced(&self) -> BoxFuture<'static, ()>;

    /// The same informers for a reader of any type, who then chooses its own; `None` when that
    /// cannot be.
    fn view(&self) -> Option<CacheInformer<()>>;

    /// Whether it was asked for to read nothing but metadata.
    fn is_metadata(&self) -> bool;

    /// Adds the objects of its informers that have synced.
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
        let mut of_all = FactoryOptions::default();
        of_all.source = source(&mut options);
        of_all.resync = SYNC_PERIOD;
        of_all.resync_spread = SYNC_SPREAD;
        of_all.decoded_bytes = options.decoded_bytes;
        of_all.backoff = options.backoff;
        of_all.give_up_after = options.give_up_after;
        of_all.seed = Some(seed);
        if let Some((registry, name)) = &options.metrics {
            of_all.metrics = Some(registry.clone());
            of_all.name.clone_from(name);
        }
        let metrics = options.metrics.clone().map(|(registry, name)| (registry, name.into()));
        let (factory, worker) = InformerFactory::new(client, of_all);
        let cache =
            Self { factory, options: Arc::new(options), metrics, informers: Arc::default() };
        (cache, worker)
    }

    /// The informers of a type, as the rules have it; those that run already, or new ones.
    fn request<K: Cacheable>(
        &self,
        dynamic_type: &K::DynamicType,
        is_cluster_scoped: bool,
    ) -> (CacheInformer<K>, Vec<InformerLease<K>>) {
        let resource = ResourceType::of::<K>(dynamic_type);
        let mut resolved = self.options.resolve::<K>(&resource, is_cluster_scoped);
        // Those of one namespace each, by namespace, and then the other.
        resolved.sort_by_key(|rule| !rule.is_named);
        let n_named = resolved.iter().filter(|rule| rule.is_named).count();
        let is_alone = resolved.len() == 1;
        let mut leases = Vec::with_capacity(resolved.len());
        let mut members = Vec::with_capacity(resolved.len());
        for rule in resolved {
            let selection = rule.selection;
            let namespace: Option<Arc<str>> = selection.namespace.as_deref().map(Arc::from);
            // An informer of this resource tells of itself under the plain name already.
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

    /// What caches a type known at compile time: cached for good from now on, or until it is
    /// [removed](Self::remove). It runs at once if the manager does. Nothing waits here; a manager
    /// that starts waits for its first list before it runs what does not say what it reads.
    pub fn informer<K: Cacheable>(&self) -> CacheInformer<K>
    where
        K::DynamicType: Default,
    {
        self.informer_with(&K::DynamicType::default())
    }

    /// [`informer`](Self::informer) of a type known at run time.
    pub fn informer_with<K: Cacheable>(&self, dynamic_type: &K::DynamicType) -> CacheInformer<K> {
        self.pinned(dynamic_type, false, true)
    }

    /// [`informer_with`](Self::informer_with), for which a manager that starts does not wait
    /// (CCH-11): for a type that may not be served yet, or may not be permitted. Until it has
    /// synced, reads are [`ClientError::NotSynced`](crate::ClientError::NotSynced).
    pub fn informer_unawaited<K: Cacheable>(
        &self,
        dynamic_type: &K::DynamicType,
    ) -> CacheInformer<K> {
        self.pinned(dynamic_type, false, false)
    }

    /// What caches a type, for one who waits for it. The type may be known at run time only to have
    /// no namespaces.
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
        self.note(dynamic_type, &informer, leases, |known| {
            known.is_pinned = true;
            known.is_awaited |= is_awaited;
        });
        self.factory.start();
        informer
    }

    /// What caches a type, for as long as the lease lives; and for as long as others need it.
    pub(crate) fn leased<K: Cacheable>(
        &self,
        dynamic_type: &K::DynamicType,
        is_cluster_scoped: bool,
    ) -> CacheLease<K> {
        let (informer, leases) = self.request::<K>(dynamic_type, is_cluster_scoped);
        let (id, number) = self.note(dynamic_type, &informer, leases, |known| known.n_leases += 1);
        self.factory.start();
        CacheLease { informer, informers: self.informers.clone(), id, number }
    }

    fn note<K: Cacheable>(
        &self,
        dynamic_type: &K::DynamicType,
        informer: &CacheInformer<K>,
        leases: Vec<InformerLease<K>>,
        note: impl FnOnce(&mut Known),
    ) -> (Id, u64) {
        let id = id_of::<K>(dynamic_type);
        let mut new = Known {
            informer: Arc::new(informer.clone()),
            _leases: Box::new(leases),
            number: 0,
            is_pinned: false,
            is_awaited: false,
            n_leases: 0,
        };
        let mut informers = self.informers.lock();
        match informers.by_id.get(&id) {
            // The factory's latest: one that has ended by itself gives way to a new one.
            Some(known) => {
                new.number = known.number;
                new.is_pinned = known.is_pinned;
                new.is_awaited = known.is_awaited;
                new.n_leases = known.n_leases;
            }
            None => {
                informers.next += 1;
                new.number = informers.next;
            }
        }
        note(&mut new);
        informers.found.clear();
        let number = new.number;
        let before = informers.by_id.insert(id.clone(), new);
        // What it drops may ask for informers: not under the lock.
        drop(informers);
        drop(before);
        (id, number)
    }

    /// Stops what caches a type known at compile time, and forgets it:
    /// [`remove_with`](Self::remove_with).
    pub fn remove<K: Cacheable>(&self) -> bool
    where
        K::DynamicType: Default,
    {
        self.remove_with::<K>(&K::DynamicType::default())
    }

    /// Stops what caches a resource, whoever asked for it and by whatever Rust type they read it,
    /// and forgets it; says whether anything did (CCH-10). A later request makes new informers with
    /// empty caches and without indexes.
    ///
    /// This is for a type that is gone, or is to be cached anew. A type that is needed for a while
    /// is better [watched](crate::source::Watches) for a while. Who uses the type learns it:
    ///
    /// | who                                           | what becomes of it                                                       |
    /// |-----------------------------------------------|--------------------------------------------------------------------------|
    /// | a cached read                                 | is [`ClientError::NotCached`](crate::ClientError::NotCached) from now on  |
    /// | a read that waits for an own write            | ends with [`ClientError::Unordered`](crate::ClientError::Unordered)       |
    /// | a controller that waits for its first list    | fails with [`ControllerError::SourceStopped`](crate::controller::ControllerError::SourceStopped), as does its manager |
    /// | a controller that runs and watches it         | goes on without its events, says so in the log, and [`SourceStatus::has_stopped`](crate::source::SourceStatus::has_stopped) is true; a watch that is added is of the new informers |
    /// | a handler, a [`CacheInformer`], a lister      | is told nothing more; [`CacheInformer::stopped`] ends; what was cached stays readable by it |
    pub fn remove_with<K: Cacheable>(&self, dynamic_type: &K::DynamicType) -> bool {
        let resource = ResourceType::of::<K>(dynamic_type);
        let removed: Vec<_> = {
            let mut informers = self.informers.lock();
            informers.found.clear();
            informers.by_id.extract_if(|(_, of), _| *of == resource).collect()
        };
        // What they drop may ask for informers: not under the lock.
        !removed.is_empty()
    }

    /// Waits until the informers that were asked for by name so far have synced, or stopped. Cancel
    /// safe: it only looks.
    pub(crate) fn synced(&self) -> impl Future<Output = ()> + Send + 'static {
        let informers = self.informers.clone();
        async move {
            let awaited: Vec<_> = {
                let informers = informers.lock();
                let awaited = informers.by_id.values().filter(|known| known.is_awaited);
                awaited.map(|known| known.informer.synced()).collect()
            };
            join_all(awaited).await;
        }
    }

    /// The informers that have not synced, each with what it was told last: for probes and logs. Of
    /// a type that is cached by namespace they are named with theirs.
    pub fn unsynced(&self) -> Vec<String> {
        let mut statuses: Vec<MemberStatus> = {
            let informers = self.informers.lock();
            informers.by_id.values().flat_map(|known| known.informer.statuses()).collect()
        };
        statuses.retain(|member| !member.status.has_synced);
        let mut unsynced: Vec<_> = statuses
            .into_iter()
            .map(|MemberStatus { what, status }| match status.degraded {
                Some(degraded) => format!("{what} has not synced: {degraded}"),
                None => format!("{what} has not synced"),
            })
            .collect();
        unsynced.sort();
        // Readers of several types have one informer.
        unsynced.dedup();
        unsynced
    }

    /// What is cached, for [`CacheOptions::restore`] in a later process. Encode it with
    /// [`SavedLists::to_bytes`].
    ///
    /// Call it at any time, also after the manager has stopped. It leaves out caches that have not
    /// synced, and those with the policy `Decoded`, which hold no bytes. It copies no object,
    /// except from compressed caches, and takes time in proportion to their number: for several
    /// hundred thousand, call it on a blocking thread.
    ///
    /// # Errors
    ///
    /// There are too many lists.
    pub fn save(&self) -> Result<SavedLists, SavedListsError> {
        let mut informers: Vec<Arc<dyn AnyInformer>> = {
            let informers = self.informers.lock();
            informers.by_id.values().map(|known| known.informer.clone()).collect()
        };
        // Readers of metadata may share a cache of whole objects.
        informers.sort_by_key(|informer| informer.is_metadata());
        let mut lists = SavedLists::default();
        informers.iter().try_for_each(|informer| informer.save(&mut lists))?;
        Ok(lists)
    }

    /// Notes that an index of a type is declared by a function of this type. Says whether it was
    /// declared before; another function under the name is refused, also one over another type that
    /// reads the same resource: they share its indexes.
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
            Entry::Occupied(known) if *known.get() == function => Ok(true),
            Entry::Occupied(_) => Err("it is declared with another function already".to_owned()),
        }
    }

    /// What caches a type, if somebody requested its resource, by this type or another. Requests
    /// nothing, and nobody waits for it.
    pub fn known<K: Cacheable>(&self, dynamic_type: &K::DynamicType) -> Option<CacheInformer<K>> {
        // Of a type known at compile time there is one resource: it need not be spelled.
        let of = (TypeId::of::<K::DynamicType>() == TypeId::of::<()>()).then(TypeId::of::<K>);
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
    /// What caches a type: what was requested of it, or of another type of its resource.
    fn find<K: Cacheable>(&self, id: &Id) -> Option<CacheInformer<K>> {
        if let Some(known) = self.by_id.get(id) {
            let known: &dyn Any = &*known.informer;
            return known.downcast_ref::<CacheInformer<K>>().cloned();
        }
        let others = self.by_id.iter().filter(|((_, resource), known)| {
            *resource == id.1 && (K::metadata_api() || !known.informer.is_metadata())
        });
        // The first that was requested.
        let mut others: Vec<&Known> = others.map(|(_, known)| known).collect();
        others.sort_by_key(|known| known.number);
        others.iter().find_map(|known| known.informer.view()?.view())
    }
}

/// How the source of each informer is chosen: the chosen one, behind the saved lists.
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

fn id_of<K: Cacheable>(dynamic_type: &K::DynamicType) -> Id {
    (TypeId::of::<K>(), ResourceType::of::<K>(dynamic_type))
}

impl CacheConfig {
    /// What is said of how objects are held.
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
