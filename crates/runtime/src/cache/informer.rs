//! The informers of one type, and leases of them.

use std::{fmt, ops::Deref, sync::Arc};

use futures::future::{select_all, try_join_all};
use parking_lot::Mutex;
use setpoint_informer::{
    Cacheable, Event, HandlerOptions, HandlerRegistration, InformerStatus, Object, ResourceType,
    SharedInformer, Stopped, indexer::AddIndexError,
};

use super::{CacheLister, Id, Informers, NamespaceNotCached};

/// The informers of one type: one, or one per namespace if the [options](super::CacheOptions) name
/// several (CCH-4). Cheap to clone.
///
/// It has those methods of [`SharedInformer`] that also make sense for several informers, so its
/// users need not know the number. With several informers, handlers may run concurrently. All
/// events of one object come from the same informer, in order. The caches of different namespaces
/// may be at different resource versions.
pub struct CacheInformer<K>(Arc<Members<K>>);

struct Members<K> {
    /// The informers of single namespaces, sorted by namespace; then the informer of all other
    /// namespaces, or of all.
    all: Vec<Member<K>>,
    n_named: usize,
}

/// One informer and its namespace.
pub(crate) struct Member<K> {
    /// `None`: every namespace that no other member holds.
    pub(crate) namespace: Option<Arc<str>>,
    pub(crate) informer: SharedInformer<K>,
}

/// The status of one of the informers of a type.
#[derive(Debug, Clone)]
pub(crate) struct MemberStatus {
    /// `configmaps`, or `configmaps in namespace a` where there are several.
    pub(crate) name: String,
    pub(crate) status: InformerStatus,
}

impl<K> CacheInformer<K> {
    /// Creates it from informers of which the first `n_named` hold one namespace each, sorted by
    /// namespace.
    pub(super) fn new(all: Vec<Member<K>>, n_named: usize) -> Self {
        assert!(!all.is_empty(), "a cached type has at least one informer");
        Self(Arc::new(Members { all, n_named }))
    }

    /// Wraps a single informer, whatever it selects.
    pub(crate) fn single(informer: SharedInformer<K>) -> Self {
        Self::new(vec![Member { namespace: None, informer }], 0)
    }

    /// The informers, each with the namespace whose objects it holds, sorted by namespace. The last
    /// may be the informer of all other namespaces: `None`.
    pub fn informers(&self) -> impl ExactSizeIterator<Item = (Option<&str>, &SharedInformer<K>)> {
        self.members().iter().map(|member| (member.namespace.as_deref(), &member.informer))
    }

    /// The informer that holds the objects of a namespace. Cluster-scoped objects have the empty
    /// namespace.
    ///
    /// # Errors
    ///
    /// The namespace is not cached.
    pub fn of_namespace(&self, namespace: &str) -> Result<&SharedInformer<K>, NamespaceNotCached> {
        match self.position(namespace) {
            Some(position) => Ok(&self.0.all[position].informer),
            None => Err(NamespaceNotCached {
                resource: self.resource_type().to_string().into(),
                namespace: namespace.into(),
            }),
        }
    }

    /// The same informers, decoding objects as `V`. See [`SharedInformer::view`].
    pub fn view<V: 'static>(&self) -> Option<CacheInformer<V>> {
        let member = |member: &Member<K>| {
            let informer = member.informer.view()?;
            Some(Member { namespace: member.namespace.clone(), informer })
        };
        let all = self.0.all.iter().map(member).collect::<Option<Vec<_>>>()?;
        Some(CacheInformer::new(all, self.0.n_named))
    }

    pub(crate) fn members(&self) -> &[Member<K>] {
        &self.0.all
    }

    /// The position of the member that holds the objects of a namespace.
    pub(crate) fn position(&self, namespace: &str) -> Option<usize> {
        let Members { all, n_named } = &*self.0;
        let named = all[..*n_named].binary_search_by(|member| {
            member.namespace.as_deref().unwrap_or_default().cmp(namespace)
        });
        named.ok().or_else(|| {
            // The informer of all other namespaces, or of the one that a field selector demands.
            let rest = all.get(*n_named)?;
            let holds = rest.namespace.as_deref().is_none_or(|demanded| demanded == namespace);
            holds.then_some(*n_named)
        })
    }

    /// Whether the concatenated objects of its members may be out of key order: the members are
    /// sorted by namespace alone, and the last may hold several.
    pub(super) fn is_interleaved(&self) -> bool {
        self.0.all.len() > 1
    }

    /// Returns a lister over its informers.
    pub fn lister(&self) -> CacheLister<K> {
        CacheLister(self.clone())
    }

    /// The watched type.
    pub fn resource_type(&self) -> &ResourceType {
        self.0.all[0].informer.resource_type()
    }

    /// Whether the whole first list of each namespace is in the cache. Never becomes false again.
    pub fn has_synced(&self) -> bool {
        self.0.all.iter().all(|member| member.informer.has_synced())
    }

    /// Waits until the whole first list of each namespace is in the cache. Cancel safe: has no side
    /// effects.
    ///
    /// # Errors
    ///
    /// One of the informers stopped first.
    pub async fn synced(&self) -> Result<(), Stopped> {
        match &*self.0.all {
            [one] => one.informer.synced().await,
            all => try_join_all(all.iter().map(|member| member.informer.synced())).await.map(drop),
        }
    }

    /// Whether one of its informers has ended. The objects of that informer are no longer updated.
    pub fn has_stopped(&self) -> bool {
        self.0.all.iter().any(|member| member.informer.has_stopped())
    }

    /// Waits until one of its informers has ended. Cancel safe: has no side effects.
    pub async fn stopped(&self) {
        let stopped = self.0.all.iter().map(|member| Box::pin(member.informer.stopped()));
        // There is at least one.
        select_all(stopped).await;
    }

    /// The combined status of its informers: synced when all have synced, stopped when one has
    /// stopped, degraded as the informer that has been degraded for the longest time. Panics and
    /// objects without values in an index are those of all.
    pub fn status(&self) -> InformerStatus {
        let mut statuses = self.statuses().into_iter();
        let mut all = statuses.next().unwrap_or_default();
        for status in statuses {
            all.has_synced &= status.has_synced;
            all.has_stopped |= status.has_stopped;
            all.has_given_up |= status.has_given_up;
            all.panics += status.panics;
            all.last_panic = all.last_panic.or(status.last_panic);
            all.unindexed += status.unindexed;
            all.last_unindexed = all.last_unindexed.or(status.last_unindexed);
            let degraded = [all.degraded.take(), status.degraded].into_iter().flatten();
            all.degraded = degraded.min_by_key(|degraded| degraded.since);
        }
        all
    }

    /// The status of each informer, in the order of [`informers`](Self::informers).
    pub fn statuses(&self) -> Vec<InformerStatus> {
        self.0.all.iter().map(|member| member.informer.status()).collect()
    }

    pub(crate) fn member_statuses(&self) -> Vec<MemberStatus> {
        let is_alone = self.0.all.len() == 1;
        let status = |member: &Member<K>| {
            let resource = member.informer.resource_type();
            let name = match &member.namespace {
                _ if is_alone => resource.to_string(),
                Some(namespace) => format!("{resource} in namespace {namespace}"),
                None => format!("{resource} in all other namespaces"),
            };
            MemberStatus { name, status: member.informer.status() }
        };
        self.0.all.iter().map(status).collect()
    }
}

impl<K: Cacheable> CacheInformer<K> {
    /// Adds a handler to each informer, before or after the start. The handler receives every
    /// cached object as an initial addition, and then every change.
    ///
    /// # Errors
    ///
    /// One of the informers has stopped. Then the handler is added to none.
    pub fn add_handler(
        &self,
        handler: impl Fn(Event<K>) + Send + Sync + 'static,
        options: HandlerOptions,
    ) -> Result<CacheRegistration, Stopped> {
        let handler = Arc::new(handler);
        let mut registrations = Vec::with_capacity(self.0.all.len());
        for member in &self.0.all {
            let handler = handler.clone();
            let handler = move |event: Event<K>| handler(event);
            match member.informer.add_callback(handler, options.clone()) {
                Ok(registration) => registrations.push(registration),
                Err(stopped) => {
                    registrations.iter().for_each(HandlerRegistration::remove);
                    return Err(stopped);
                }
            }
        }
        Ok(CacheRegistration(registrations.into()))
    }

    /// Adds an index over typed objects, before or after the start (CCH-9). The index is usable at
    /// once and covers the objects that are already cached. With
    /// [`CachePolicy::Compact`](setpoint_informer::CachePolicy::Compact), each change then decodes
    /// the object once.
    ///
    /// # Errors
    ///
    /// The name is taken, or an informer has stopped. Then some informers may already have the
    /// index, and reads by it fail.
    pub fn add_index(
        &self,
        name: impl Into<Arc<str>>,
        function: impl Fn(&K) -> Vec<String> + Send + Sync + 'static,
    ) -> Result<(), AddIndexError> {
        let (name, function) = (name.into(), Arc::new(function));
        self.0.all.iter().try_for_each(|member| {
            let function = function.clone();
            member.informer.add_index(name.clone(), move |object| function(object))
        })
    }

    /// [`add_index`](Self::add_index) over encoded objects.
    ///
    /// # Errors
    ///
    /// As [`add_index`](Self::add_index).
    pub fn add_object_index(
        &self,
        name: impl Into<Arc<str>>,
        function: impl Fn(&Object<K>) -> Vec<String> + Send + Sync + 'static,
    ) -> Result<(), AddIndexError> {
        let (name, function) = (name.into(), Arc::new(function));
        self.0.all.iter().try_for_each(|member| {
            let function = function.clone();
            member.informer.add_object_index(name.clone(), move |object| function(object))
        })
    }

    /// Adds the index by labels to all informers:
    /// [`LABEL_INDEX`](setpoint_informer::indexer::LABEL_INDEX).
    ///
    /// # Errors
    ///
    /// As [`add_index`](Self::add_index).
    pub fn add_label_index(&self) -> Result<(), AddIndexError> {
        self.0.all.iter().try_for_each(|member| member.informer.add_label_index())
    }
}

impl<K> Clone for CacheInformer<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K> fmt::Debug for CacheInformer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.informers()).finish()
    }
}

/// The registration of a handler at the informers of a type. Cheap to clone. Dropping it does not
/// remove the handler.
#[derive(Debug, Clone)]
pub struct CacheRegistration(Arc<[HandlerRegistration]>);

impl CacheRegistration {
    /// Whether the handler has received every object of the initial state.
    pub fn has_synced(&self) -> bool {
        self.0.iter().all(HandlerRegistration::has_synced)
    }

    /// Waits for [`has_synced`](Self::has_synced). Cancel safe: has no side effects.
    ///
    /// # Errors
    ///
    /// The handler was removed, or one of the informers ended first.
    pub async fn synced(&self) -> Result<(), Stopped> {
        try_join_all(self.0.iter().map(HandlerRegistration::synced)).await.map(drop)
    }

    /// Waits until the handler has received every event that is pending now, or is removed. Cancel
    /// safe: has no side effects.
    pub async fn delivered(&self) {
        for registration in &*self.0 {
            registration.delivered().await;
        }
    }

    /// Removes the handler. Calls that are already running finish; no new call starts. Idempotent.
    pub fn remove(&self) {
        self.0.iter().for_each(HandlerRegistration::remove);
    }
}

/// A lease of the informers of a type. Dropping the last lease stops them, unless the type is
/// cached permanently.
pub(crate) struct CacheLease<K> {
    pub(super) informer: CacheInformer<K>,
    pub(super) informers: Arc<Mutex<Informers>>,
    pub(super) id: Id,
    /// Distinguishes the leased informers from those of a new request after a removal.
    pub(super) number: u64,
}

impl<K> Deref for CacheLease<K> {
    type Target = CacheInformer<K>;

    fn deref(&self) -> &CacheInformer<K> {
        &self.informer
    }
}

impl<K> Drop for CacheLease<K> {
    fn drop(&mut self) {
        let mut informers = self.informers.lock();
        let cached = informers.by_id.get_mut(&self.id);
        let Some(cached) = cached.filter(|cached| cached.number == self.number) else { return };
        cached.n_leases -= 1;
        if cached.n_leases == 0 && !cached.is_pinned {
            let removed = informers.by_id.remove(&self.id);
            informers.found.clear();
            informers.forget_indexes(&self.id.1);
            drop(informers);
            drop(removed);
        }
    }
}

impl<K> fmt::Debug for CacheLease<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CacheLease").field(&self.informer).finish()
    }
}
