//! What makes keys of an event.

use std::sync::Arc;

use setpoint_informer::{Cacheable, Event, Object, ResourceType};

use super::{Enqueue, IndexRefused, Owner};
use crate::{
    cache::CacheLister,
    client::Client,
    request::{Request, RequestKey},
};

/// Makes keys of the events of one watched type.
///
/// Every `Fn(&Event<K>, &Enqueue<'_, R>)` is one. It runs in the informer's delivery, one event at
/// a time: quick and pure, please.
pub trait EventHandler<K, R>: Send + Sync + 'static {
    /// Adds the keys that `event` concerns.
    fn handle(&self, event: &Event<K>, keys: &Enqueue<'_, R>);
}

impl<K, R, F: Fn(&Event<K>, &Enqueue<'_, R>) + Send + Sync + 'static> EventHandler<K, R> for F {
    fn handle(&self, event: &Event<K>, keys: &Enqueue<'_, R>) {
        self(event, keys);
    }
}

/// The object itself. A tombstone without an object carries its key (HND-3).
pub(crate) struct ForObject;

impl<K: Send + Sync + 'static> EventHandler<K, Request> for ForObject {
    fn handle(&self, event: &Event<K>, keys: &Enqueue<'_, Request>) {
        keys.add(event.key().clone());
    }
}

/// The owners of the object; of an update, those of both sides.
pub(crate) struct ForOwner {
    pub(crate) owner: Owner,
    pub(crate) any_owner: bool,
}

impl<K: kube_core::Resource + Send + Sync + 'static> EventHandler<K, Request> for ForOwner {
    fn handle(&self, event: &Event<K>, keys: &Enqueue<'_, Request>) {
        let owners = |object: &Object<K>| self.owner.keys(object, self.any_owner);
        let mut wanted = event.object().map(owners).unwrap_or_default();
        if let Event::Updated { old, .. } = event {
            // An object that changed hands concerns the one that lost it, too.
            for lost in owners(old) {
                if !wanted.contains(&lost) {
                    wanted.push(lost);
                }
            }
        }
        wanted.into_iter().for_each(|key| keys.add(key));
    }
}

/// What a function makes of the event.
pub(crate) struct Mapped<F>(pub(crate) F);

impl<K, R: RequestKey, F: Fn(&Event<K>) -> Vec<R> + Send + Sync + 'static> EventHandler<K, R>
    for Mapped<F>
{
    fn handle(&self, event: &Event<K>, keys: &Enqueue<'_, R>) {
        (self.0)(event).into_iter().for_each(|key| keys.add(key));
    }
}

/// What a function makes of the object; of an update, of both sides. A deletion of which nothing is
/// known leads nowhere.
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

/// What a function makes of the event, with the manager's client to read from the cache.
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

/// The objects of another type that an index files under the key of the event's object.
pub(crate) struct MappedByIndex<T> {
    pub(crate) objects: CacheLister<T>,
    pub(crate) index: Arc<str>,
}

impl<T: Cacheable> MappedByIndex<T> {
    /// # Errors
    ///
    /// The type is not cached, or has no such index.
    pub(crate) fn new(
        client: &Client,
        dynamic_type: &T::DynamicType,
        index: Arc<str>,
    ) -> Result<Self, IndexRefused> {
        let refused = |reason: &str| IndexRefused {
            resource: ResourceType::of::<T>(dynamic_type).to_string(),
            index: index.clone(),
            reason: reason.to_owned(),
        };
        let Some(informer) = client.cache().known::<T>(dynamic_type) else {
            return Err(refused("the type is not watched: watch it, with the index, before"));
        };
        let objects = informer.lister();
        if objects.objects_by_index(&index, "").is_err() {
            return Err(refused("there is none of that name: declare it by Watch::index, before"));
        }
        Ok(Self { objects, index })
    }
}

impl<T: Cacheable, K: Send + Sync + 'static> EventHandler<K, Request> for MappedByIndex<T> {
    fn handle(&self, event: &Event<K>, keys: &Enqueue<'_, Request>) {
        // The index is there: it was asked for at the start, and indexes are never removed.
        let found = self.objects.objects_by_index(&self.index, &event.key().to_string());
        found.unwrap_or_default().iter().for_each(|object| keys.add(object.key().clone()));
    }
}

#[cfg(test)]
mod tests;
