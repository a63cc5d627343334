//! Where a controller's keys come from: watched types, and how their events become keys.

use std::{any::TypeId, fmt, sync::Arc};

use kube_core::{ClusterResourceScope, Resource};
use setpoint_informer::{
    Cacheable, Event, HandlerOptions, HandlerRegistration, InformerStatus, Object, SharedInformer,
    Stopped,
};
use setpoint_object::GroupKind;
use setpoint_workqueue::WorkQueue;
use tokio::sync::Notify;

use crate::{
    cache::Cache,
    predicate::Predicate,
    request::{Request, RequestKey},
};

/// One watched type, and which of its events count.
#[must_use]
pub struct Watch<K: Resource> {
    dynamic_type: K::DynamicType,
    predicates: Vec<Predicate<K>>,
    informer: Option<SharedInformer<K>>,
    is_cluster_scoped: bool,
    any_owner: bool,
}

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
            is_cluster_scoped,
            any_owner: false,
        }
    }

    /// Only events that `predicate` passes, too.
    pub fn filter(mut self, predicate: Predicate<K>) -> Self {
        self.predicates.push(predicate);
        self
    }

    /// From this informer instead of the manager's cache: of another cluster, or with a selector of its own. Its owner runs it.
    pub fn informer(mut self, informer: SharedInformer<K>) -> Self {
        self.informer = Some(informer);
        self
    }

    /// Says that a type known at run time has no namespace, so that what it owns leads to keys without one.
    pub fn cluster_scoped(mut self) -> Self {
        self.is_cluster_scoped = true;
        self
    }

    /// For [`owns`](crate::ControllerBuilder::owns): every owner of the controller's type counts, not only the one flagged *controller*.
    pub fn any_owner(mut self) -> Self {
        self.any_owner = true;
        self
    }

    /// What owner references to this type look like.
    pub(crate) fn owner(&self) -> Owner {
        let kind = GroupKind {
            group: Arc::from(&*K::group(&self.dynamic_type)),
            kind: Arc::from(&*K::kind(&self.dynamic_type)),
        };
        Owner { kind, is_cluster_scoped: self.is_cluster_scoped }
    }

    /// The source whose keys are the objects themselves.
    pub(crate) fn of_objects(self) -> Source<Request> {
        self.mapped(|event: &Event<K>| vec![event.key().clone()])
    }

    /// The source whose keys are the owners of the objects.
    pub(crate) fn of_owners(self, owner: Owner) -> Source<Request> {
        let any_owner = self.any_owner;
        self.mapped(move |event: &Event<K>| match event {
            Event::Updated { old, new } => {
                let mut keys = owner.keys(new, any_owner);
                // An object that changed hands concerns the one that lost it, too.
                let lost = owner
                    .keys(old, any_owner)
                    .into_iter()
                    .filter(|key| !keys.contains(key))
                    .collect::<Vec<_>>();
                keys.extend(lost);
                keys
            }
            event => event.object().map(|object| owner.keys(object, any_owner)).unwrap_or_default(),
        })
    }

    /// The source whose keys are what `map` makes of each event.
    pub(crate) fn mapped<R: RequestKey>(
        self,
        map: impl Fn(&Event<K>) -> Vec<R> + Send + Sync + 'static,
    ) -> Source<R> {
        let Self { dynamic_type, predicates, informer, .. } = self;
        Source(Box::new(move |cache| {
            let informer = informer.unwrap_or_else(|| cache.informer_with::<K>(&dynamic_type));
            let watched = informer.clone();
            let lister = informer.lister();
            BoundSource {
                resource: informer.resource_type().to_string(),
                status: Box::new(move || watched.status()),
                resource_version: Box::new(move || lister.resource_version()),
                start: Box::new(move |queue, arrived| {
                    let enqueue = move |event: Event<K>| {
                        arrived.notify_waiters();
                        if predicates.iter().all(|predicate| predicate.admits(&event)) {
                            map(&event).into_iter().for_each(|key| queue.add(key));
                        }
                    };
                    informer.add_handler(enqueue, HandlerOptions::default())
                }),
            }
        }))
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

/// What an owner reference to a controller's type looks like: group and kind, whatever the version.
#[derive(Debug, Clone)]
pub(crate) struct Owner {
    kind: GroupKind,
    is_cluster_scoped: bool,
}

impl Owner {
    /// The keys of an object's owners of this kind, each once.
    fn keys<K: Resource>(&self, object: &Object<K>, any_owner: bool) -> Vec<Request> {
        let namespace = if self.is_cluster_scoped { "" } else { object.namespace() };
        let mut keys = Vec::new();
        for reference in &object.skim().owner_references {
            let group = reference.api_version.split_once('/').map_or("", |(group, _version)| group);
            if group == &*self.kind.group
                && reference.kind == *self.kind.kind
                && (any_owner || reference.controller)
            {
                let key = Request::new(namespace, &*reference.name);
                if !keys.contains(&key) {
                    keys.push(key);
                }
            }
        }
        keys
    }
}

/// A source that does not know its informer yet.
pub(crate) struct Source<R>(Bind<R>);

type Bind<R> = Box<dyn FnOnce(&Cache) -> BoundSource<R> + Send>;

impl<R> Source<R> {
    /// Finds the source's informer, requesting it if need be.
    pub(crate) fn bind(self, cache: &Cache) -> BoundSource<R> {
        (self.0)(cache)
    }
}

type Start<R> =
    Box<dyn FnOnce(WorkQueue<R>, Arc<Notify>) -> Result<HandlerRegistration, Stopped> + Send>;

/// A source with its informer.
pub(crate) struct BoundSource<R> {
    /// The watched resource.
    pub(crate) resource: String,
    /// How its informer does.
    pub(crate) status: Box<dyn Fn() -> InformerStatus + Send + Sync>,
    /// How far its cache has come.
    pub(crate) resource_version: Box<dyn Fn() -> Arc<str> + Send + Sync>,
    /// Begins to add keys to a queue, and to say whenever an event arrives.
    pub(crate) start: Start<R>,
}
