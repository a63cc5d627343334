//! Which events are worth a pass.

mod any;

use std::{fmt, sync::Arc};

use kube_core::Resource;
use setpoint_informer::{Event, Object, Tombstone};
use setpoint_object::label::Selector;

pub use self::any::{AnyEvent, EventFilter, Observed};

/// Says which events lead to a pass. It filters events, not what the cache holds.
///
/// Runs in the informer's delivery, once per event and controller: quick and pure, please. An
/// update always has both sides: a queue that merges events for a slow handler keeps what that
/// handler saw last (PRD-1).
///
/// | predicate                                  | added | updated passes if        | deleted |
/// |--------------------------------------------|-------|--------------------------|---------|
/// | [`added`](Self::added)                     | f     | always                   | always  |
/// | [`updated`](Self::updated)                 | always | f of old and new        | always  |
/// | [`deleted`](Self::deleted)                 | always | always                  | f       |
/// | [`object`](Self::object)                   | f     | f of the new one         | f, and always if nothing is known of it |
/// | [`resource_version_changed`](Self::resource_version_changed) | always | it did: drops resyncs | always |
/// | [`generation_changed`](Self::generation_changed) | always | it did: drops writes of status and metadata, and resyncs | always |
/// | [`labels_changed`](Self::labels_changed), [`annotations_changed`](Self::annotations_changed) | always | they did | always |
/// | [`labels`](Self::labels)                   | match | the new one matches: leaving the selector is not seen | match |
///
/// They combine with [`and`](Self::and), [`or`](Self::or), [`not`](Self::not), [`all`](Self::all)
/// and [`any`](Self::any). Mind that the negation of one that passes additions and deletions drops
/// them (PRD-2).
pub struct Predicate<K>(Arc<Admits<K>>);

type Admits<K> = dyn Fn(&Event<K>) -> bool + Send + Sync;

impl<K> Predicate<K> {
    /// One that passes what `f` says yes to.
    pub fn new(f: impl Fn(&Event<K>) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(f))
    }

    /// Whether `event` passes.
    pub fn admits(&self, event: &Event<K>) -> bool {
        (self.0)(event)
    }
}

impl<K: 'static> Predicate<K> {
    /// Passes events about objects that `f` says yes to: for updates, about the new state.
    pub fn object(f: impl Fn(&Object<K>) -> bool + Send + Sync + 'static) -> Self {
        Self::new(move |event| event.object().is_none_or(&f))
    }

    /// Drops updates that bring no news: resyncs, and relists of what is known.
    pub fn resource_version_changed() -> Self {
        Self::updated(|old, new| old.resource_version() != new.resource_version())
    }

    /// Passes updates for which `f`, given old and new, says yes; and all else.
    pub fn updated(f: impl Fn(&Object<K>, &Object<K>) -> bool + Send + Sync + 'static) -> Self {
        Self::new(move |event| match event {
            Event::Updated { old, new } => f(old, new),
            _ => true,
        })
    }

    /// Passes additions that `f`, given whether the object was there when the handler began, says
    /// yes to; and all else.
    pub fn added(f: impl Fn(&Object<K>, bool) -> bool + Send + Sync + 'static) -> Self {
        Self::new(move |event| match event {
            Event::Added { object, in_initial_list } => f(object, *in_initial_list),
            _ => true,
        })
    }

    /// Passes deletions that `f` says yes to; and all else.
    pub fn deleted(f: impl Fn(&Tombstone<K>) -> bool + Send + Sync + 'static) -> Self {
        Self::new(move |event| match event {
            Event::Deleted { tombstone } => f(tombstone),
            _ => true,
        })
    }

    /// Passes what all of these pass; with none of them, everything. Asked in order, until one says
    /// no.
    pub fn all(predicates: impl IntoIterator<Item = Self>) -> Self {
        let predicates: Vec<Self> = predicates.into_iter().collect();
        Self::new(move |event| predicates.iter().all(|predicate| predicate.admits(event)))
    }

    /// Passes what one of these passes; with none of them, nothing. Asked in order, until one says
    /// yes.
    pub fn any(predicates: impl IntoIterator<Item = Self>) -> Self {
        let predicates: Vec<Self> = predicates.into_iter().collect();
        Self::new(move |event| predicates.iter().any(|predicate| predicate.admits(event)))
    }

    /// Passes what both pass. The second is not asked if the first says no.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self::new(move |event| self.admits(event) && other.admits(event))
    }

    /// Passes what one of them passes. The second is not asked if the first says yes.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self::new(move |event| self.admits(event) || other.admits(event))
    }

    /// Passes what this does not.
    #[expect(
        clippy::should_implement_trait,
        reason = "beside `and` and `or` it reads better than an operator"
    )]
    #[must_use]
    pub fn not(self) -> Self {
        Self::new(move |event| !self.admits(event))
    }
}

impl<K: Resource + 'static> Predicate<K> {
    /// The same for a type that is known.
    pub fn of(filter: EventFilter) -> Self {
        Self::new(move |event| filter.admits(&AnyEvent::of(event)))
    }

    /// Drops updates that leave `metadata.generation` as it is: writes of the status, of most
    /// metadata, and resyncs.
    ///
    /// A deletion that waits for finalizers counts up the generation, and passes.
    pub fn generation_changed() -> Self {
        Self::of(EventFilter::generation_changed())
    }

    /// Drops updates that leave the labels as they are.
    pub fn labels_changed() -> Self {
        Self::of(EventFilter::labels_changed())
    }

    /// Drops updates that leave the annotations as they are.
    pub fn annotations_changed() -> Self {
        Self::of(EventFilter::annotations_changed())
    }

    /// Passes events about objects whose labels `selector` matches.
    pub fn labels(selector: Selector) -> Self {
        Self::of(EventFilter::labels(selector))
    }
}

impl<K> Clone for Predicate<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K> fmt::Debug for Predicate<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Predicate")
    }
}

#[cfg(test)]
mod tests;
