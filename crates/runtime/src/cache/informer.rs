//! The informers of one type behind one face.

use std::{fmt, sync::Arc};

use futures::future::{select_all, try_join_all};
use setpoint_informer::{
    Cacheable, Event, HandlerOptions, HandlerRegistration, InformerStatus, Object, ResourceType,
    SharedInformer, Stopped, indexer::AddIndexError,
};

use super::{CacheLister, NamespaceNotCached};

/// What caches one type: one informer, or one per namespace where the
/// [options](super::CacheOptions) name several (CCH-4). Cheap to clone.
///
/// It has the methods of a [`SharedInformer`] that make sense of several: who uses it need not know
/// how many there are. Handlers may then be called by several informers at once; of one object all
/// events come from one of them, in order. The caches of different namespaces are of different
/// moments.
pub struct CacheInformer<K>(Arc<Members<K>>);

struct Members<K> {
    /// Those of one namespace each, by namespace; then the one of all others, or of all.
    all: Vec<Member<K>>,
    n_named: usize,
}

/// One informer, and whose objects it holds.
pub(crate) struct Member<K> {
    /// `None` is every namespace that no other member is of.
    pub(crate) namespace: Option<Arc<str>>,
    pub(crate) informer: SharedInformer<K>,
}

/// How one of the informers of a type does.
#[derive(Debug, Clone)]
pub(crate) struct MemberStatus {
    /// `configmaps`, or `configmaps in namespace a` where there are several.
    pub(crate) what: String,
    pub(crate) status: InformerStatus,
}

impl<K> CacheInformer<K> {
    /// Informers of which the first `n_named` are of one namespace each, in their order.
    pub(super) fn new(all: Vec<Member<K>>, n_named: usize) -> Self {
        assert!(!all.is_empty(), "a type is cached by one informer at least");
        Self(Arc::new(Members { all, n_named }))
    }

    /// One informer of whatever it selects.
    pub(crate) fn of_one(informer: SharedInformer<K>) -> Self {
        Self::new(vec![Member { namespace: None, informer }], 0)
    }

    /// The informers, each with the namespace whose objects it holds: by namespace, and then the
    /// one of all others. `None` is all namespaces that are not named.
    pub fn informers(&self) -> impl ExactSizeIterator<Item = (Option<&str>, &SharedInformer<K>)> {
        self.members().iter().map(|member| (member.namespace.as_deref(), &member.informer))
    }

    /// The informer that holds the objects of a namespace; that of cluster-scoped objects is empty.
    ///
    /// # Errors
    ///
    /// The rules name other namespaces.
    pub fn of_namespace(&self, namespace: &str) -> Result<&SharedInformer<K>, NamespaceNotCached> {
        match self.position(namespace) {
            Some(position) => Ok(&self.0.all[position].informer),
            None => Err(NamespaceNotCached {
                resource: self.resource_type().to_string().into(),
                namespace: namespace.into(),
            }),
        }
    }

    /// The same informers for a reader that decodes objects as `V`: see [`SharedInformer::view`].
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

    /// Which member holds the objects of a namespace.
    pub(crate) fn position(&self, namespace: &str) -> Option<usize> {
        let Members { all, n_named } = &*self.0;
        let named = all[..*n_named].binary_search_by(|member| {
            member.namespace.as_deref().unwrap_or_default().cmp(namespace)
        });
        named.ok().or_else(|| {
            // Of all others; or of the one that a field selector demands.
            let rest = all.get(*n_named)?;
            let holds = rest.namespace.as_deref().is_none_or(|demanded| demanded == namespace);
            holds.then_some(*n_named)
        })
    }

    /// Whether the objects of its members, one after the other, are out of the order of their keys.
    pub(super) fn is_interleaved(&self) -> bool {
        self.0.n_named > 0 && self.0.n_named < self.0.all.len()
    }

    /// The reading end.
    pub fn lister(&self) -> CacheLister<K> {
        CacheLister(self.clone())
    }

    /// The type that is watched.
    pub fn resource_type(&self) -> &ResourceType {
        self.0.all[0].informer.resource_type()
    }

    /// Whether the whole first list of each namespace is in the cache. Never reverts.
    pub fn has_synced(&self) -> bool {
        self.0.all.iter().all(|member| member.informer.has_synced())
    }

    /// Waits until the whole first list of each namespace is in the cache. Cancel safe: it only
    /// looks.
    ///
    /// # Errors
    ///
    /// One of the informers stops first.
    pub async fn synced(&self) -> Result<(), Stopped> {
        match &*self.0.all {
            [one] => one.informer.synced().await,
            all => try_join_all(all.iter().map(|member| member.informer.synced())).await.map(drop),
        }
    }

    /// Whether one of its informers has ended: what that held is kept up to date no longer.
    pub fn has_stopped(&self) -> bool {
        self.0.all.iter().any(|member| member.informer.has_stopped())
    }

    /// Waits until one of its informers has ended. Cancel safe: it only looks.
    pub async fn stopped(&self) {
        let stopped = self.0.all.iter().map(|member| Box::pin(member.informer.stopped()));
        // There is one at least.
        select_all(stopped).await;
    }

    /// How its informers do together: synced when all have, stopped when one has; degraded as the
    /// one that is for the longest time.
    pub fn status(&self) -> InformerStatus {
        let mut statuses = self.statuses().into_iter();
        let mut all = statuses.next().unwrap_or_default();
        for status in statuses {
            all.has_synced &= status.has_synced;
            all.has_stopped |= status.has_stopped;
            all.has_given_up |= status.has_given_up;
            let degraded = [all.degraded.take(), status.degraded].into_iter().flatten();
            all.degraded = degraded.min_by_key(|degraded| degraded.since);
        }
        all
    }

    /// How each of its informers does, in the order of [`informers`](Self::informers).
    pub fn statuses(&self) -> Vec<InformerStatus> {
        self.0.all.iter().map(|member| member.informer.status()).collect()
    }

    pub(crate) fn member_statuses(&self) -> Vec<MemberStatus> {
        let is_alone = self.0.all.len() == 1;
        let status = |member: &Member<K>| {
            let resource = member.informer.resource_type();
            let what = match &member.namespace {
                _ if is_alone => resource.to_string(),
                Some(namespace) => format!("{resource} in namespace {namespace}"),
                None => format!("{resource} in all other namespaces"),
            };
            MemberStatus { what, status: member.informer.status() }
        };
        self.0.all.iter().map(status).collect()
    }
}

impl<K: Cacheable> CacheInformer<K> {
    /// Adds a handler to each informer, before or after the start. It is told of every cached
    /// object as an initial addition and then of every change.
    ///
    /// # Errors
    ///
    /// One of the informers has stopped; then none has the handler.
    pub fn add_handler(
        &self,
        handler: impl Fn(Event<K>) + Send + Sync + 'static,
        options: HandlerOptions,
    ) -> Result<CacheRegistration, Stopped> {
        let handler = Arc::new(handler);
        let mut registrations = Vec::with_capacity(self.0.all.len());
        for member in &self.0.all {
            let handler = handler.clone();
            let told = move |event: Event<K>| handler(event);
            match member.informer.add_handler(told, options.clone()) {
                Ok(registration) => registrations.push(registration),
                Err(stopped) => {
                    registrations.iter().for_each(HandlerRegistration::remove);
                    return Err(stopped);
                }
            }
        }
        Ok(CacheRegistration(registrations.into()))
    }

    /// Adds an index over typed objects, before or after the start (CCH-9). The index is there at
    /// once, over what is cached so far. Under
    /// [`CachePolicy::Compact`](setpoint_informer::CachePolicy::Compact) each write then decodes
    /// the object once.
    ///
    /// # Errors
    ///
    /// The name is taken; or an informer has stopped, or a cached object does not decode: then some
    /// namespaces may have the index, and reads by it fail.
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

    /// [`add_index`](Self::add_index), over objects that are not decoded.
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

/// A handler's place at the informers of a type. Cheap to clone; dropping it leaves the handler
/// where it is.
#[derive(Debug, Clone)]
pub struct CacheRegistration(Arc<[HandlerRegistration]>);

impl CacheRegistration {
    /// Whether the handler has been told of everything that was there at the start.
    pub fn has_synced(&self) -> bool {
        self.0.iter().all(HandlerRegistration::has_synced)
    }

    /// Waits for [`has_synced`](Self::has_synced). Cancel safe: it only looks.
    ///
    /// # Errors
    ///
    /// The handler is removed, or one of the informers ends first.
    pub async fn synced(&self) -> Result<(), Stopped> {
        try_join_all(self.0.iter().map(HandlerRegistration::synced)).await.map(drop)
    }

    /// Waits until the handler was called with everything that waits for it now, or is removed.
    /// Cancel safe: it only looks.
    pub async fn delivered(&self) {
        for registration in &*self.0 {
            registration.delivered().await;
        }
    }

    /// Removes the handler: no call starts after those that may be running. Idempotent.
    pub fn remove(&self) {
        self.0.iter().for_each(HandlerRegistration::remove);
    }
}
