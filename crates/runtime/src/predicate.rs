//! Predicates: filters of events.

mod any;

use std::{any::Any, borrow::Cow, fmt, marker::PhantomData, sync::Arc};

use kube_core::Resource;
use setpoint_informer::{Event, Object, Tombstone};
use setpoint_object::label::Selector;

pub use self::any::{AnyEvent, Observed};

/// Decides which events lead to a pass. It filters events, not the contents of the cache.
///
/// A `Predicate<K>` filters a watch of `K` ([`Watch::filter`](crate::Watch::filter)). A `Predicate`
/// of [`AnyObject`] filters all of a controller's watches
/// ([`ControllerBuilder::filter`](crate::ControllerBuilder::filter)); [`of`](Self::of) makes it one
/// of a known type.
///
/// Runs in the informer's delivery, once per event and controller: it must be fast and free of side
/// effects. An update always has both sides: a queue that merges events for a slow handler keeps
/// what that handler saw last (PRD-1).
///
/// | predicate                                  | added | updated passes if        | deleted |
/// |--------------------------------------------|-------|--------------------------|---------|
/// | [`added`](Self::added)                     | f     | always                   | always  |
/// | [`updated`](Self::updated)                 | always | f of old and new        | always  |
/// | [`deleted`](Self::deleted)                 | always | always                  | f       |
/// | [`object`](Self::object), [`any_object`](Self::any_object) | f | f of the new one | f, and always if nothing is known of it |
/// | [`resource_version_changed`](Self::resource_version_changed) | always | it changed: drops resyncs | always |
/// | [`generation_changed`](Self::generation_changed) | always | it changed: drops writes of status and metadata, and resyncs; of an object without a generation, as `resource_version_changed` | always |
/// | [`labels_changed`](Self::labels_changed), [`annotations_changed`](Self::annotations_changed) | always | they changed | always |
/// | [`labels`](Self::labels)                   | match | the new one matches: leaving the selector is not seen | match |
///
/// They combine with [`and`](Self::and), [`or`](Self::or), [`not`](Self::not), [`all`](Self::all)
/// and [`any`](Self::any). The negation of a predicate that passes additions and deletions drops
/// them (PRD-2).
pub struct Predicate<K = AnyObject> {
    admits: Arc<Admits>,
    of: PhantomData<fn(&K)>,
}

type Admits = dyn Fn(&Seen<'_>) -> bool + Send + Sync;

/// Stands for objects of any type, in [`Predicate`].
#[derive(Debug, Clone, Copy)]
pub enum AnyObject {}

/// An event, typed and untyped.
pub(crate) struct Seen<'a> {
    any: AnyEvent<'a>,
    /// The `Event<K>`.
    typed: &'a dyn Any,
}

impl<'a> Seen<'a> {
    pub(crate) fn of<K: Resource + 'static>(event: &'a Event<K>) -> Self {
        Self { any: AnyEvent::of(event), typed: event }
    }
}

impl<K: Resource + 'static> Predicate<K> {
    /// Passes events for which `f` returns true.
    pub fn new(f: impl Fn(&Event<K>) -> bool + Send + Sync + 'static) -> Self {
        // A watch delivers only events of its type.
        Self::seen(move |seen| seen.typed.downcast_ref::<Event<K>>().is_none_or(&f))
    }

    /// Whether `event` passes.
    pub fn admits(&self, event: &Event<K>) -> bool {
        self.admits_seen(&Seen::of(event))
    }

    /// Makes a typed predicate of an untyped one.
    pub fn of(predicate: Predicate) -> Self {
        Self { admits: predicate.admits, of: PhantomData }
    }

    /// Passes events about objects for which `f` returns true: of an update, the new state.
    pub fn object(f: impl Fn(&Object<K>) -> bool + Send + Sync + 'static) -> Self {
        Self::new(move |event| event.object().is_none_or(&f))
    }

    /// Passes updates for which `f` of old and new returns true, and all other events.
    pub fn updated(f: impl Fn(&Object<K>, &Object<K>) -> bool + Send + Sync + 'static) -> Self {
        Self::new(move |event| match event {
            Event::Updated { old, new } => f(old, new),
            _ => true,
        })
    }

    /// Passes additions for which `f` returns true, and all other events. The flag says whether the
    /// object is in the handler's initial list.
    pub fn added(f: impl Fn(&Object<K>, bool) -> bool + Send + Sync + 'static) -> Self {
        Self::new(move |event| match event {
            Event::Added { object, in_initial_list } => f(object, *in_initial_list),
            _ => true,
        })
    }

    /// Passes deletions for which `f` returns true, and all other events.
    pub fn deleted(f: impl Fn(&Tombstone<K>) -> bool + Send + Sync + 'static) -> Self {
        Self::new(move |event| match event {
            Event::Deleted { tombstone } => f(tombstone),
            _ => true,
        })
    }
}

impl<K> Predicate<K> {
    fn seen(f: impl Fn(&Seen<'_>) -> bool + Send + Sync + 'static) -> Self {
        Self { admits: Arc::new(f), of: PhantomData }
    }

    pub(crate) fn admits_seen(&self, seen: &Seen<'_>) -> bool {
        (self.admits)(seen)
    }

    /// Passes events for which `f` returns true, for objects of any type.
    pub fn any_event(f: impl Fn(&AnyEvent<'_>) -> bool + Send + Sync + 'static) -> Self {
        Self::seen(move |seen| f(&seen.any))
    }

    /// [`object`](Self::object), for objects of any type.
    pub fn any_object(f: impl Fn(&dyn Observed) -> bool + Send + Sync + 'static) -> Self {
        Self::any_event(move |event| event.object().is_none_or(&f))
    }

    /// Passes updates for which `f` of old and new returns true, and all other events. An object
    /// that was deleted and created again between two looks is another one (EVT-8).
    fn changed(f: impl Fn(&dyn Observed, &dyn Observed) -> bool + Send + Sync + 'static) -> Self {
        Self::any_event(move |event| match event {
            AnyEvent::Updated { old, new } => old.uid() != new.uid() || f(*old, *new),
            _ => true,
        })
    }

    /// Drops updates without a change: resyncs, and relists of known objects.
    pub fn resource_version_changed() -> Self {
        Self::changed(|old, new| old.resource_version() != new.resource_version())
    }

    /// Drops updates that do not change `metadata.generation`: writes of the status and of most
    /// metadata, and resyncs.
    ///
    /// A deletion that waits for finalizers increases the generation, and so passes.
    ///
    /// Several types have no generation, as ConfigMap and Secret: of these, every change passes, as
    /// with [`resource_version_changed`](Self::resource_version_changed). controller-runtime's
    /// `GenerationChangedPredicate` drops all their updates.
    pub fn generation_changed() -> Self {
        Self::changed(|old, new| match (old.skim().generation, new.skim().generation) {
            (0, 0) => old.resource_version() != new.resource_version(),
            (old, new) => old != new,
        })
    }

    /// Drops updates that do not change the labels.
    pub fn labels_changed() -> Self {
        Self::changed(|old, new| sorted(&old.skim().labels) != sorted(&new.skim().labels))
    }

    /// Drops updates that do not change the annotations.
    pub fn annotations_changed() -> Self {
        Self::changed(|old, new| sorted(&old.skim().annotations) != sorted(&new.skim().annotations))
    }

    /// Passes events about objects whose labels match. Of an update the new labels count, so an
    /// object that stops matching is not seen.
    pub fn labels(selector: Selector) -> Self {
        Self::any_object(move |object| {
            let skim = object.skim();
            selector.matches(|label| skim.label(label))
        })
    }
}

impl<K: 'static> Predicate<K> {
    /// Passes events that pass all of these; without predicates, every event. Evaluated in order,
    /// until one returns false.
    pub fn all(predicates: impl IntoIterator<Item = Self>) -> Self {
        let predicates: Vec<Self> = predicates.into_iter().collect();
        Self::seen(move |seen| predicates.iter().all(|predicate| predicate.admits_seen(seen)))
    }

    /// Passes events that pass any of these; without predicates, no event. Evaluated in order,
    /// until one returns true.
    pub fn any(predicates: impl IntoIterator<Item = Self>) -> Self {
        let predicates: Vec<Self> = predicates.into_iter().collect();
        Self::seen(move |seen| predicates.iter().any(|predicate| predicate.admits_seen(seen)))
    }

    /// Passes events that pass both. Short-circuits.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self::seen(move |seen| self.admits_seen(seen) && other.admits_seen(seen))
    }

    /// Passes events that pass either. Short-circuits.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self::seen(move |seen| self.admits_seen(seen) || other.admits_seen(seen))
    }

    /// Passes events that this one drops. So the negation of
    /// [`generation_changed`](Self::generation_changed) drops additions and deletions (PRD-2).
    #[expect(
        clippy::should_implement_trait,
        reason = "beside `and` and `or` it reads better than an operator"
    )]
    #[must_use]
    pub fn not(self) -> Self {
        Self::seen(move |seen| !self.admits_seen(seen))
    }
}

fn sorted<'a>(pairs: &'a [(Cow<'a, str>, Cow<'a, str>)]) -> Vec<(&'a str, &'a str)> {
    let mut pairs: Vec<(&str, &str)> =
        pairs.iter().map(|(key, value)| (&**key, &**value)).collect();
    pairs.sort_unstable();
    pairs
}

impl<K> Clone for Predicate<K> {
    fn clone(&self) -> Self {
        Self { admits: self.admits.clone(), of: PhantomData }
    }
}

impl<K> fmt::Debug for Predicate<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Predicate")
    }
}

#[cfg(test)]
mod tests;
