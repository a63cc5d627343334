//! Watches of a controller.

use std::{any::TypeId, fmt, sync::Arc};

use kube_core::{ClusterResourceScope, PartialObjectMeta, Resource};
use setpoint_informer::{
    Cacheable, SharedInformer,
    indexer::{AddIndexError, LABEL_INDEX},
};
use setpoint_object::GroupVersionKind;

use super::{
    EventHandler, IndexRefused, Owner, Unbound,
    feed::{Binding, Hold, Rule, WatchFeed},
    handler::{ForObject, ForOwner},
    retry::Panics,
};
use crate::{
    cache::{Cache, CacheInformer},
    client::Client,
    cluster::Cluster,
    error::chain,
    predicate::Predicate,
    request::{Request, RequestKey},
};

/// A watched type, and filters of its events.
#[must_use]
pub struct Watch<K: Resource> {
    dynamic_type: K::DynamicType,
    predicates: Vec<Predicate<K>>,
    informer: Option<SharedInformer<K>>,
    /// The cache of another cluster than the manager's own.
    cache: Option<Cache>,
    /// A given informer is of the manager's own cluster.
    is_of_own_cluster: bool,
    is_cluster_scoped: bool,
    any_owner: bool,
    indexes: Vec<Index<K>>,
}

/// An index that a watch declares.
struct Index<K> {
    name: Arc<str>,
    /// The type of its function: equal if two watches declare the same index.
    function: TypeId,
    add: Box<AddIndex<K>>,
}

/// Stands for the function of the index by labels, which is the same for all types.
struct ByLabels;

type AddIndex<K> = dyn Fn(&SharedInformer<K>) -> Result<(), AddIndexError> + Send;

impl<K: Cacheable> Watch<K>
where
    K::DynamicType: Default,
{
    /// All events of a type known at compile time, from the manager's cache.
    pub fn new() -> Self {
        Self::dynamic(K::DynamicType::default())
    }
}

impl<K: Cacheable> Default for Watch<K>
where
    K::DynamicType: Default,
{
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Cacheable> Watch<K> {
    /// All events of a type known at run time, from the manager's cache.
    pub fn dynamic(dynamic_type: K::DynamicType) -> Self {
        let is_cluster_scoped = TypeId::of::<K::Scope>() == TypeId::of::<ClusterResourceScope>();
        Self {
            dynamic_type,
            predicates: Vec::new(),
            informer: None,
            cache: None,
            is_of_own_cluster: false,
            is_cluster_scoped,
            any_owner: false,
            indexes: Vec::new(),
        }
    }

    /// All events of the metadata of a type known at compile time, from the manager's cache. Only
    /// metadata is requested and cached. Read it as `PartialObjectMeta<K>`. A read of whole objects
    /// needs a watch of whole objects: a second cache, not synchronized with this one (BLD-4).
    pub fn metadata() -> Watch<PartialObjectMeta<K>>
    where
        K::DynamicType: Default,
    {
        Watch::dynamic(K::DynamicType::default())
    }

    /// [`metadata`](Self::metadata) of a type known at run time.
    pub fn metadata_dynamic(dynamic_type: K::DynamicType) -> Watch<PartialObjectMeta<K>> {
        Watch::dynamic(dynamic_type)
    }

    /// Passes only events that match `predicate`; with several, an event must match all.
    pub fn filter(mut self, predicate: Predicate<K>) -> Self {
        self.predicates.push(predicate);
        self
    }

    /// Declares an index of this type's cache: [`Select::index`](crate::client::Select::index)
    /// finds objects by the values that `function` returns. Objects that are cached undecoded are
    /// decoded once for each write.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # use setpoint_runtime::Watch;
    /// let pods = Watch::<Pod>::new().index("spec.nodeName", |pod| {
    ///     pod.spec.iter().flat_map(|spec| spec.node_name.clone()).collect()
    /// });
    /// ```
    ///
    /// The cache is shared: every reader of the type can use an index that one watch declares. The
    /// same function, by its type, may be declared again under its name. A different function is
    /// refused when the controller is added.
    pub fn index<F>(mut self, name: impl Into<Arc<str>>, function: F) -> Self
    where
        F: Fn(&K) -> Vec<String> + Send + Sync + 'static,
    {
        let (name, function) = (name.into(), Arc::new(function));
        let of = name.clone();
        let add = Box::new(move |informer: &SharedInformer<K>| {
            let function = function.clone();
            informer.add_index(of.clone(), move |object| function(object))
        });
        self.indexes.push(Index { name, function: TypeId::of::<F>(), add });
        self
    }

    /// Declares the index by labels of this type's cache: a read by a label selector that requires
    /// one value of a label, as [`Select::labels`](crate::client::Select::labels) and
    /// [`Api::list`](crate::client::Api::list), looks only at objects with that label. Decodes
    /// nothing. May be declared by several watches.
    ///
    /// Without it such a read looks at the labels of all objects of the namespace: 10,000 of them
    /// take some milliseconds. Declare it when passes select by label among many objects.
    pub fn index_labels(mut self) -> Self {
        let add = Box::new(|informer: &SharedInformer<K>| informer.add_label_index());
        let name = LABEL_INDEX.into();
        self.indexes.push(Index { name, function: TypeId::of::<ByLabels>(), add });
        self
    }

    /// Uses this informer instead of the manager's cache: one of another cluster, or with its own
    /// selector. Its owner must run it.
    ///
    /// Keys are not held back until it shows what their passes wrote: it may be of a cluster whose
    /// versions are others. They are if it is one of the manager's cache, or if
    /// [`of_own_cluster`](Self::of_own_cluster) or [`cluster`](Self::cluster) says whose it is.
    pub fn informer(mut self, informer: SharedInformer<K>) -> Self {
        self.informer = Some(informer);
        self
    }

    /// Says that the given [`informer`](Self::informer) is of the manager's own cluster.
    pub fn of_own_cluster(mut self) -> Self {
        self.is_of_own_cluster = true;
        self
    }

    /// Uses the cache of another cluster than the manager's own. A given
    /// [`informer`](Self::informer) is of that cluster then.
    pub fn cluster(mut self, cluster: &Cluster) -> Self {
        self.cache = Some(cluster.cache().clone());
        self
    }

    /// Marks a type known at run time as cluster-scoped. Keys of owners of this type have no
    /// namespace then, and cache rules by namespace do not apply.
    pub fn cluster_scoped(mut self) -> Self {
        self.is_cluster_scoped = true;
        self
    }

    /// For [`owns`](crate::ControllerBuilder::owns): follows every owner reference to the
    /// controller's type, not only the one flagged *controller*.
    pub fn any_owner(mut self) -> Self {
        self.any_owner = true;
        self
    }

    /// Matches owner references to this type.
    pub(crate) fn owner(&self) -> Owner {
        Owner { kind: self.kind().group_kind(), is_cluster_scoped: self.is_cluster_scoped }
    }

    /// The type.
    pub(crate) fn kind(&self) -> GroupVersionKind {
        GroupVersionKind::new(
            K::group(&self.dynamic_type),
            K::version(&self.dynamic_type),
            K::kind(&self.dynamic_type),
        )
    }

    /// A source whose keys are the objects' own.
    pub(crate) fn of_objects(self) -> Unbound<Request> {
        self.handled(ForObject)
    }

    /// A source whose keys are the objects' owners.
    pub(crate) fn of_owners(self, owner: Owner) -> Unbound<Request> {
        let any_owner = self.any_owner;
        self.handled(ForOwner { owner, any_owner })
    }

    /// A source whose keys `handler` adds.
    pub(crate) fn handled<R: RequestKey>(self, handler: impl EventHandler<K, R>) -> Unbound<R> {
        self.handled_with(|_, _| Ok(handler))
    }

    /// A source whose handler is made from the manager's client and the cache of the watch's
    /// cluster.
    pub(crate) fn handled_with<R: RequestKey, H: EventHandler<K, R>>(
        self,
        handler: impl FnOnce(&Client, &Cache) -> Result<H, IndexRefused> + Send + 'static,
    ) -> Unbound<R> {
        let Self { dynamic_type, predicates, informer, cache: of_cluster, indexes, .. } = self;
        let is_cluster_scoped = self.is_cluster_scoped;
        let is_known = of_cluster.is_some() || self.is_of_own_cluster;
        Box::new(move |Binding { client, hold, filters }| {
            let cache = of_cluster.as_ref().unwrap_or_else(|| client.cache());
            let is_own = informer.is_some();
            let is_of_cache = informer.as_ref().is_none_or(|informer| {
                is_known || cache.has_informer::<K>(&dynamic_type, informer)
            });
            let shown = is_of_cache.then(|| cache.id());
            let (informer, lease) = match (informer, hold) {
                (Some(informer), _) => (CacheInformer::single(informer), None),
                (None, Hold::Pinned) => {
                    (cache.watched::<K>(&dynamic_type, is_cluster_scoped), None)
                }
                (None, Hold::Leased) => {
                    let lease = cache.leased::<K>(&dynamic_type, is_cluster_scoped);
                    (CacheInformer::clone(&lease), Some(lease))
                }
            };
            for index in indexes {
                let known = match is_own {
                    true => Ok(false),
                    false => cache.declare_index::<K>(&dynamic_type, &index.name, index.function),
                };
                let mut members = informer.informers().map(|(_, informer)| informer);
                let added = known.and_then(|is_known| {
                    let added = members.try_for_each(|informer| match (index.add)(informer) {
                        Err(AddIndexError::Exists(_)) if is_known => Ok(()),
                        added => added.map_err(|error| chain(&error)),
                    });
                    if added.is_err() && !is_known && !is_own {
                        cache.forget_index::<K>(&dynamic_type, &index.name);
                    }
                    added
                });
                added.map_err(|reason| IndexRefused {
                    resource: informer.resource_type().to_string(),
                    index: index.name,
                    reason,
                })?;
            }
            let (handler, panics) = (Box::new(handler(client, cache)?), Panics::default());
            let rule = Rule { predicates, filters, handler, panics };
            let (removed, rule) = (cache.closed().clone(), Arc::new(rule));
            Ok(Arc::new(WatchFeed { informer, cache: shown, removed, _lease: lease, rule }))
        })
    }
}

impl<K: Resource> fmt::Debug for Watch<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("kind", &K::kind(&self.dynamic_type))
            .field("n_predicates", &self.predicates.len())
            .finish_non_exhaustive()
    }
}
