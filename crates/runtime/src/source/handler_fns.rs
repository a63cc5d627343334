//! A handler made of functions.

use std::fmt;

use setpoint_informer::{Event, Object, Tombstone};

use super::{Enqueue, EventHandler};

type Function<T, R> = Box<dyn Fn(&T, &Enqueue<'_, R>) + Send + Sync>;
type Update<K, R> = Box<dyn Fn(&Object<K>, &Object<K>, &Enqueue<'_, R>) + Send + Sync>;

/// An [`EventHandler`] made of a function per kind of event, each of them optional: what has none
/// leads to nothing.
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

    /// For an object that is there, or that came. The last one set counts, here and below.
    pub fn added(
        mut self,
        f: impl Fn(&Object<K>, &Enqueue<'_, R>) + Send + Sync + 'static,
    ) -> Self {
        self.added = Some(Box::new(f));
        self
    }

    /// For an object that changed, or is told again: old and new.
    pub fn updated(
        mut self,
        f: impl Fn(&Object<K>, &Object<K>, &Enqueue<'_, R>) + Send + Sync + 'static,
    ) -> Self {
        self.updated = Some(Box::new(f));
        self
    }

    /// For an object that is gone, of which perhaps nothing is known but the key.
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
            // There is no further kind.
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
