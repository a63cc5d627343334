//! The informers that a manager's controllers share.

mod options;

use std::{
    any::{Any, TypeId},
    fmt,
    ops::Deref,
    sync::Arc,
};

pub use self::options::{
    ALL_NAMESPACES, ByType, CacheOptions, CacheRules, CacheRulesError, NAMESPACES_MAX, Namespaces,
};
use futures::future::BoxFuture;
use hashbrown::HashMap;
use parking_lot::Mutex;
use setpoint_informer::{
    Cacheable, InformerFactory, InformerLease, ResourceType, SharedInformer, SharedInformerBuilder,
    factory::{FactoryOptions, FactoryWorker, InformerRequest, Selection},
};

/// One informer per type, shared by the controllers of a manager. Cheap to clone.
///
/// A type is cached from the first request for its informer; the manager runs it from the start, or at once when it runs already.
/// Reading a type that nobody requested is an error and starts nothing: what a program holds in memory is what its code names.
#[derive(Clone)]
pub struct Cache {
    factory: InformerFactory,
    rules: Arc<CacheRules>,
    /// What is selected where the rules say nothing.
    selection: Arc<Selection>,
    informers: Arc<Mutex<Informers>>,
    /// Of the informers that somebody asked for by name.
    awaited: Arc<Mutex<Vec<Synced>>>,
}

/// Waits until an informer has synced or stopped.
type Synced = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// The informers of each type.
type Informers = HashMap<Id, Known>;

type Id = (TypeId, ResourceType);

/// An informer that somebody requested.
struct Known {
    /// A `SharedInformer<K>`.
    informer: Box<dyn Any + Send + Sync>,
    /// Somebody asked for it for good.
    is_pinned: bool,
    n_leases: usize,
}

impl Cache {
    pub(crate) fn new(
        client: kube_client::Client,
        options: FactoryOptions,
    ) -> (Self, FactoryWorker) {
        Self::with_rules(client, options, CacheRules::new())
    }

    pub(crate) fn with_rules(
        client: kube_client::Client,
        options: FactoryOptions,
        rules: CacheRules,
    ) -> (Self, FactoryWorker) {
        let mut selection = Selection::default();
        selection.namespace.clone_from(&options.namespace);
        selection.labels.clone_from(&options.labels);
        selection.fields.clone_from(&options.fields);
        selection.shard.clone_from(&options.shard);
        let (factory, worker) = InformerFactory::new(client, options);
        let cache = Self {
            factory,
            rules: Arc::new(rules),
            selection: Arc::new(selection),
            informers: Arc::default(),
            awaited: Arc::default(),
        };
        (cache, worker)
    }

    /// A request for the informer of a type, as the rules have it.
    fn request<'a, K: Cacheable>(
        &self,
        dynamic_type: &'a K::DynamicType,
    ) -> InformerRequest<'a, K> {
        let request = self.factory.request::<K>(dynamic_type);
        let mut resolved = self.rules.resolve::<K>(&ResourceType::of::<K>(dynamic_type));
        // One at most: the rules were checked for it.
        let Some(rule) = resolved.pop() else { return request };
        let mut selection = Selection::clone(&self.selection);
        if rule.chose_namespaces || rule.selection.namespace.is_some() {
            selection.namespace = rule.selection.namespace;
        }
        if rule.options.labels.is_some() {
            selection.labels = rule.selection.labels;
        }
        if rule.options.fields.is_some() {
            selection.fields = rule.selection.fields;
        }
        let options = rule.options;
        request.selection(selection).build(move |builder| options.apply(builder))
    }

    /// The informer of a type known at compile time.
    pub fn informer<K: Cacheable>(&self) -> SharedInformer<K>
    where
        K::DynamicType: Default,
    {
        self.informer_with(&K::DynamicType::default())
    }

    /// The informer of a type known at run time.
    pub fn informer_with<K: Cacheable>(&self, dynamic_type: &K::DynamicType) -> SharedInformer<K> {
        let informer = self.watched::<K>(dynamic_type);
        let awaited = informer.clone();
        let synced: Synced = Arc::new(move || {
            let awaited = awaited.clone();
            Box::pin(async move { _ = awaited.synced().await })
        });
        self.awaited.lock().push(synced);
        informer
    }

    /// The informer of a type, for one who waits for it.
    pub(crate) fn watched<K: Cacheable>(&self, dynamic_type: &K::DynamicType) -> SharedInformer<K> {
        let informer = self.request::<K>(dynamic_type).pinned();
        self.note(dynamic_type, &informer, |known| known.is_pinned = true);
        self.factory.start();
        informer
    }

    /// The informer of a type, for as long as the lease lives; and for as long as others need it.
    pub(crate) fn leased<K: Cacheable>(&self, dynamic_type: &K::DynamicType) -> CacheLease<K> {
        let lease = self.request::<K>(dynamic_type).leased();
        let id = self.note(dynamic_type, &lease, |known| known.n_leases += 1);
        self.factory.start();
        CacheLease { lease, informers: self.informers.clone(), id }
    }

    fn note<K: Cacheable>(
        &self,
        dynamic_type: &K::DynamicType,
        informer: &SharedInformer<K>,
        note: impl FnOnce(&mut Known),
    ) -> Id {
        let id = (TypeId::of::<K>(), ResourceType::of::<K>(dynamic_type));
        let informer = Box::new(informer.clone());
        let mut informers = self.informers.lock();
        let new = || Known { informer: Box::new(()), is_pinned: false, n_leases: 0 };
        let known = informers.entry(id.clone()).or_insert_with(new);
        // The factory's latest: one that has ended by itself gives way to a new one.
        let before = std::mem::replace(&mut known.informer, informer);
        note(known);
        drop(informers);
        drop(before);
        id
    }

    /// Waits until the informers that were asked for by name so far have synced, or stopped. Cancel safe: it only looks.
    pub(crate) fn synced(&self) -> impl Future<Output = ()> + Send + 'static {
        let awaited = self.awaited.clone();
        async move {
            let awaited = awaited.lock().clone();
            for synced in awaited {
                synced().await;
            }
        }
    }

    /// The informers that have not synced, each with what it was told last: for probes and logs.
    pub fn unsynced(&self) -> Vec<String> {
        let unsynced = self.factory.statuses().into_iter().filter(|(_, status)| !status.has_synced);
        unsynced
            .map(|(resource, status)| match status.degraded {
                Some(degraded) => format!("{resource} has not synced: {degraded}"),
                None => format!("{resource} has not synced"),
            })
            .collect()
    }

    /// The informer of a type if somebody requested it.
    pub fn known<K: Cacheable>(&self, dynamic_type: &K::DynamicType) -> Option<SharedInformer<K>> {
        let id = (TypeId::of::<K>(), ResourceType::of::<K>(dynamic_type));
        let informers = self.informers.lock();
        informers.get(&id)?.informer.downcast_ref::<SharedInformer<K>>().cloned()
    }
}

/// The informer of a type for a while.
pub(crate) struct CacheLease<K> {
    lease: InformerLease<K>,
    informers: Arc<Mutex<Informers>>,
    id: Id,
}

impl<K> Deref for CacheLease<K> {
    type Target = SharedInformer<K>;

    fn deref(&self) -> &SharedInformer<K> {
        &self.lease
    }
}

impl<K> Drop for CacheLease<K> {
    fn drop(&mut self) {
        let mut informers = self.informers.lock();
        let Some(known) = informers.get_mut(&self.id) else { return };
        known.n_leases -= 1;
        if known.n_leases == 0 && !known.is_pinned {
            let forgotten = informers.remove(&self.id);
            drop(informers);
            drop(forgotten);
        }
    }
}

impl CacheOptions {
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
            .field("n_informers", &self.informers.lock().len())
            .finish_non_exhaustive()
    }
}
