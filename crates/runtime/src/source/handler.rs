//! Event handlers: from events to keys.

use std::{fmt, hash::Hash, sync::Arc, time::Duration};

use kube_core::Resource;
use setpoint_informer::{Cacheable, Event, Object, ResourceType, Tombstone};
use setpoint_object::{GroupKind, GroupVersion};
use setpoint_workqueue::{AddOptions, Tag, WorkQueue};

use super::{IndexRefused, Only};
use crate::{
    cache::{Cache, CacheLister},
    client::Client,
    pass::Cause,
    request::{Request, RequestKey},
};

/// Adds keys for the events of one watched type.
///
/// Every `Fn(&Event<K>, &Enqueue<'_, R>)` is one. It runs in the informer's delivery, one event at
/// a time: it must be fast and free of side effects.
pub trait EventHandler<K, R>: Send + Sync + 'static {
    /// Adds the keys that `event` concerns.
    fn handle(&self, event: &Event<K>, keys: &Enqueue<'_, R>);
}

impl<K, R, F: Fn(&Event<K>, &Enqueue<'_, R>) + Send + Sync + 'static> EventHandler<K, R> for F {
    fn handle(&self, event: &Event<K>, keys: &Enqueue<'_, R>) {
        self(event, keys);
    }
}

/// Adds the object's own key. A tombstone without an object has the key too (HND-3).
pub(crate) struct ForObject;

impl<K: Send + Sync + 'static> EventHandler<K, Request> for ForObject {
    fn handle(&self, event: &Event<K>, keys: &Enqueue<'_, Request>) {
        keys.add(event.key().clone());
    }
}

/// Adds the keys of the object's owners; for an update, of both sides.
pub(crate) struct ForOwner {
    pub(crate) owner: Owner,
    pub(crate) any_owner: bool,
}

impl<K: kube_core::Resource + Send + Sync + 'static> EventHandler<K, Request> for ForOwner {
    fn handle(&self, event: &Event<K>, keys: &Enqueue<'_, Request>) {
        let owners = |object: &Object<K>| self.owner.keys(object, self.any_owner);
        let mut wanted = event.object().map(owners).unwrap_or_default();
        if let Event::Updated { old, .. } = event {
            // An object with a new owner concerns the old one too.
            for lost in owners(old) {
                if !wanted.contains(&lost) {
                    wanted.push(lost);
                }
            }
        }
        wanted.into_iter().for_each(|key| keys.add(key));
    }
}

/// Adds the keys that a function returns for the event.
pub(crate) struct Mapped<F>(pub(crate) F);

impl<K, R: RequestKey, F: Fn(&Event<K>) -> Vec<R> + Send + Sync + 'static> EventHandler<K, R>
    for Mapped<F>
{
    fn handle(&self, event: &Event<K>, keys: &Enqueue<'_, R>) {
        (self.0)(event).into_iter().for_each(|key| keys.add(key));
    }
}

/// Adds the keys that a function returns for the object; for an update, of both sides. None for a
/// deletion of which only the key is known.
pub(crate) struct MappedObjects<F>(pub(crate) F);

impl<K, R, F> EventHandler<K, R> for MappedObjects<F>
where
    K: 'static,
    R: RequestKey,
    F: Fn(&Object<K>) -> Vec<R> + Send + Sync + 'static,
{
    fn handle(&self, event: &Event<K>, keys: &Enqueue<'_, R>) {
        let mut wanted = event.object().map(&self.0).unwrap_or_default();
        if let Event::Updated { old, .. } = event {
            for lost in (self.0)(old) {
                if !wanted.contains(&lost) {
                    wanted.push(lost);
                }
            }
        }
        wanted.into_iter().for_each(|key| keys.add(key));
    }
}

/// Adds the keys that a function returns for the event; it also gets the manager's client, to read
/// from the cache.
pub(crate) struct MappedWith<F> {
    pub(crate) client: Client,
    pub(crate) map: F,
}

impl<K, R, F> EventHandler<K, R> for MappedWith<F>
where
    R: RequestKey,
    F: Fn(&Event<K>, &Client) -> Vec<R> + Send + Sync + 'static,
{
    fn handle(&self, event: &Event<K>, keys: &Enqueue<'_, R>) {
        (self.map)(event, &self.client).into_iter().for_each(|key| keys.add(key));
    }
}

/// Adds the keys of the objects of another type that an index finds under the key of the event's
/// object.
pub(crate) struct MappedByIndex<T> {
    pub(crate) objects: CacheLister<T>,
    pub(crate) index: Arc<str>,
}

impl<T: Cacheable> MappedByIndex<T> {
    /// Takes the index from the first cache that has it.
    ///
    /// # Errors
    ///
    /// The type is not cached, or has no such index.
    pub(crate) fn new(
        caches: [&Cache; 2],
        dynamic_type: &T::DynamicType,
        index: Arc<str>,
    ) -> Result<Self, IndexRefused> {
        let mut reason = "the type is not watched: first watch it, with the index";
        for informer in caches.iter().filter_map(|cache| cache.known::<T>(dynamic_type)) {
            let objects = informer.lister();
            if objects.objects_by_index(&index, "").is_ok() {
                return Ok(Self { objects, index });
            }
            reason = "it does not exist: first declare it with Watch::index";
        }
        let resource = ResourceType::of::<T>(dynamic_type).to_string();
        Err(IndexRefused { resource, index, reason: reason.to_owned() })
    }
}

impl<T: Cacheable, K: Send + Sync + 'static> EventHandler<K, Request> for MappedByIndex<T> {
    fn handle(&self, event: &Event<K>, keys: &Enqueue<'_, Request>) {
        // The index exists: it was requested at the start, and indexes are never removed.
        let found = self.objects.objects_by_index(&self.index, &event.key().to_string());
        found.unwrap_or_default().iter().for_each(|object| keys.add(object.key().clone()));
    }
}

/// Adds the keys of one event to a controller's queue.
///
/// Sets the priority from the event, so that handlers need not (PQ-40 to PQ-43, PQ-45, PQ-47):
///
/// | event                                              | priority                                          |
/// |----------------------------------------------------|---------------------------------------------------|
/// | added, in the initial list of the handler          | the controller's low priority, -100 by default    |
/// | updated with the same version on both sides: a resync, or a relist of a known object | the same            |
/// | everything else                                    | 0                                                 |
///
/// [`add_with`](Self::add_with) can set another one.
pub struct Enqueue<'a, R> {
    queue: &'a WorkQueue<R>,
    priority: i32,
    cause: Cause,
    /// Other keys are skipped.
    only: Option<&'a Only<'a, R>>,
}

impl<'a, R: Clone + Eq + Hash + Send + 'static> Enqueue<'a, R> {
    pub(crate) fn new(
        queue: &'a WorkQueue<R>,
        priority: i32,
        cause: Cause,
        only: Option<&'a Only<'a, R>>,
    ) -> Self {
        Self { queue, priority, cause, only }
    }

    /// Queues `key`.
    pub fn add(&self, key: R) {
        self.add_with(key, AddOptions::default());
    }

    /// Queues `key` in `delay`. If it is due earlier already, that stays.
    pub fn add_after(&self, key: R, delay: Duration) {
        self.add_with(key, AddOptions::default().after(delay));
    }

    /// Queues `key` with `options`. The default priority is the event's.
    pub fn add_with(&self, key: R, mut options: AddOptions) {
        if self.only.is_some_and(|only| !only(&key)) {
            return;
        }
        options.priority.get_or_insert(self.priority);
        if options.tag == Tag::NONE {
            options.tag = self.cause.tag();
        }
        self.queue.add_with(key, options);
    }

    /// The cause that the resulting passes are recorded with.
    pub fn cause(&self) -> Cause {
        self.cause
    }

    /// The priority that the event gives to its keys.
    pub fn priority(&self) -> i32 {
        self.priority
    }
}

impl<R> fmt::Debug for Enqueue<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Enqueue")
            .field("priority", &self.priority)
            .field("cause", &self.cause)
            .finish_non_exhaustive()
    }
}

/// The priority of an event's keys: the table at [`Enqueue`].
pub(crate) fn priority_of<K>(event: &Event<K>, low: i32) -> i32 {
    if event.in_initial_list() || event.is_sync() { low } else { 0 }
}

/// Matches owner references to a controller's type: by group and kind, in any version (HND-1).
#[derive(Debug, Clone)]
pub(crate) struct Owner {
    pub(crate) kind: GroupKind,
    pub(crate) is_cluster_scoped: bool,
}

impl Owner {
    /// The keys of an object's owners of this kind, each once. Empty if one of its references
    /// cannot be parsed (HND-1).
    pub(crate) fn keys<K: Resource + 'static>(
        &self,
        object: &Object<K>,
        any_owner: bool,
    ) -> Vec<Request> {
        let mut keys = Vec::new();
        for reference in &object.skim().owner_references {
            let Some(owner) = GroupVersion::parse(&reference.api_version) else {
                tracing::warn!(
                    object = %object.key(),
                    api_version = %reference.api_version,
                    "unparsable owner reference: the object's owners are not queued"
                );
                return Vec::new();
            };
            if owner.group == self.kind.group
                && reference.kind == *self.kind.kind
                && (any_owner || reference.controller)
            {
                let namespace = match self.is_cluster_scoped {
                    true => Arc::default(),
                    false => object.key().namespace.clone(),
                };
                let key = Request::new(namespace, &*reference.name);
                if !keys.contains(&key) {
                    keys.push(key);
                }
            }
        }
        keys
    }
}

type Function<T, R> = Box<dyn Fn(&T, &Enqueue<'_, R>) + Send + Sync>;
type Update<K, R> = Box<dyn Fn(&Object<K>, &Object<K>, &Enqueue<'_, R>) + Send + Sync>;

/// An [`EventHandler`] made of one optional function per kind of event. An event without a function
/// adds nothing.
///
/// ```
/// # use std::time::Duration;
/// # use k8s_openapi::api::core::v1::Pod;
/// # use setpoint_runtime::{source::HandlerFns, Request};
/// let handler = HandlerFns::<Pod, Request>::new()
///     .added(|pod, keys| keys.add(pod.key().clone()))
///     .deleted(|tombstone, keys| keys.add_after(tombstone.key().clone(), Duration::from_secs(5)));
/// # let _ = handler;
/// ```
#[must_use]
pub struct HandlerFns<K, R> {
    added: Option<Function<Object<K>, R>>,
    updated: Option<Update<K, R>>,
    deleted: Option<Function<Tombstone<K>, R>>,
}

impl<K, R> HandlerFns<K, R> {
    /// No functions yet.
    pub fn new() -> Self {
        Self { added: None, updated: None, deleted: None }
    }

    /// Called for an object of the initial list, or a new one. The last call applies, here and
    /// below.
    pub fn added(
        mut self,
        f: impl Fn(&Object<K>, &Enqueue<'_, R>) + Send + Sync + 'static,
    ) -> Self {
        self.added = Some(Box::new(f));
        self
    }

    /// Called for an object that changed or was resynced, with its old and new state.
    pub fn updated(
        mut self,
        f: impl Fn(&Object<K>, &Object<K>, &Enqueue<'_, R>) + Send + Sync + 'static,
    ) -> Self {
        self.updated = Some(Box::new(f));
        self
    }

    /// Called for a deleted object; of a missed deletion, only the key may be known.
    pub fn deleted(
        mut self,
        f: impl Fn(&Tombstone<K>, &Enqueue<'_, R>) + Send + Sync + 'static,
    ) -> Self {
        self.deleted = Some(Box::new(f));
        self
    }
}

impl<K: Send + Sync + 'static, R: 'static> EventHandler<K, R> for HandlerFns<K, R> {
    fn handle(&self, event: &Event<K>, keys: &Enqueue<'_, R>) {
        match event {
            Event::Added { object, .. } => {
                if let Some(added) = &self.added {
                    added(object, keys);
                }
            }
            Event::Updated { old, new } => {
                if let Some(updated) = &self.updated {
                    updated(old, new, keys);
                }
            }
            Event::Deleted { tombstone } => {
                if let Some(deleted) = &self.deleted {
                    deleted(tombstone, keys);
                }
            }
            // There are no other kinds.
            _ => {}
        }
    }
}

impl<K, R> Default for HandlerFns<K, R> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K, R> fmt::Debug for HandlerFns<K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerFns")
            .field("added", &self.added.is_some())
            .field("updated", &self.updated.is_some())
            .field("deleted", &self.deleted.is_some())
            .finish()
    }
}

#[cfg(test)]
mod tests;
