//! Filters that do not know the type they filter.

use std::{borrow::Cow, fmt, sync::Arc};

use kube_core::Resource;
use setpoint_informer::{Event, Key, Object};
use setpoint_object::{Skim, label::Selector};

/// What a filter may ask of an object, whatever its type is.
pub trait Observed {
    /// Namespace and name.
    fn key(&self) -> &Key;

    /// The uid.
    fn uid(&self) -> &str;

    /// The version.
    fn resource_version(&self) -> &str;

    /// The metadata, without decoding the object.
    fn skim(&self) -> Skim<'_>;
}

impl<K: Resource> Observed for Object<K> {
    fn key(&self) -> &Key {
        Object::key(self)
    }

    fn uid(&self) -> &str {
        Object::uid(self)
    }

    fn resource_version(&self) -> &str {
        Object::resource_version(self)
    }

    fn skim(&self) -> Skim<'_> {
        Object::skim(self)
    }
}

/// An [`Event`] whose type is forgotten.
#[non_exhaustive]
pub enum AnyEvent<'a> {
    /// The object is there and was not before.
    Added {
        /// The object.
        object: &'a dyn Observed,
        /// Whether it was there when the handler began.
        in_initial_list: bool,
    },
    /// The object changed, or is told again.
    Updated {
        /// What it was before.
        old: &'a dyn Observed,
        /// What it is now.
        new: &'a dyn Observed,
    },
    /// The object is gone.
    Deleted {
        /// Its key.
        key: &'a Key,
        /// Its last known state, if any is known.
        last_known: Option<&'a dyn Observed>,
    },
}

impl<'a> AnyEvent<'a> {
    /// The same event, with its type forgotten.
    pub fn of<K: Resource>(event: &'a Event<K>) -> Self {
        match event {
            Event::Added { object, in_initial_list } => {
                Self::Added { object, in_initial_list: *in_initial_list }
            }
            Event::Updated { old, new } => Self::Updated { old, new },
            event => Self::Deleted {
                key: event.key(),
                last_known: event.object().map(|object| object as &dyn Observed),
            },
        }
    }

    /// Which object this is about.
    pub fn key(&self) -> &Key {
        match self {
            Self::Added { object, .. } => object.key(),
            Self::Updated { new, .. } => new.key(),
            Self::Deleted { key, .. } => key,
        }
    }

    /// The newest state that the event carries.
    pub fn object(&self) -> Option<&'a dyn Observed> {
        match self {
            Self::Added { object, .. } => Some(*object),
            Self::Updated { new, .. } => Some(*new),
            Self::Deleted { last_known, .. } => *last_known,
        }
    }
}

impl fmt::Debug for AnyEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::Added { .. } => "Added",
            Self::Updated { .. } => "Updated",
            Self::Deleted { .. } => "Deleted",
        };
        f.debug_tuple(kind).field(self.key()).finish()
    }
}

/// Says which events of all of a controller's watches lead to a pass: a
/// [`Predicate`](crate::Predicate) that does not know the type. The table there holds for its stock
/// ones too.
///
/// For [`ControllerBuilder::filter`](crate::ControllerBuilder::filter).
#[derive(Clone)]
pub struct EventFilter(Arc<Admits>);

type Admits = dyn Fn(&AnyEvent<'_>) -> bool + Send + Sync;

impl EventFilter {
    /// One that passes what `f` says yes to.
    pub fn new(f: impl Fn(&AnyEvent<'_>) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(f))
    }

    /// Whether `event` passes.
    pub fn admits(&self, event: &AnyEvent<'_>) -> bool {
        (self.0)(event)
    }

    /// Passes events about objects that `f` says yes to: for updates, about the new state. A
    /// deletion of which nothing is known passes.
    pub fn object(f: impl Fn(&dyn Observed) -> bool + Send + Sync + 'static) -> Self {
        Self::new(move |event| event.object().is_none_or(&f))
    }

    /// Passes updates for which `f`, given old and new, says yes; and all else.
    pub fn updated(
        f: impl Fn(&dyn Observed, &dyn Observed) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self::new(move |event| match event {
            AnyEvent::Updated { old, new } => f(*old, *new),
            _ => true,
        })
    }

    /// Drops updates that bring no news: resyncs, and relists of what is known.
    pub fn resource_version_changed() -> Self {
        Self::updated(|old, new| old.resource_version() != new.resource_version())
    }

    /// Drops updates that leave `metadata.generation` as it is: writes of the status, of most
    /// metadata, and resyncs.
    pub fn generation_changed() -> Self {
        Self::updated(|old, new| old.skim().generation != new.skim().generation)
    }

    /// Drops updates that leave the labels as they are.
    pub fn labels_changed() -> Self {
        Self::updated(|old, new| sorted(&old.skim().labels) != sorted(&new.skim().labels))
    }

    /// Drops updates that leave the annotations as they are.
    pub fn annotations_changed() -> Self {
        Self::updated(|old, new| sorted(&old.skim().annotations) != sorted(&new.skim().annotations))
    }

    /// Passes events about objects whose labels `selector` matches: of updates, the new ones, so
    /// that leaving the selector is not seen.
    pub fn labels(selector: Selector) -> Self {
        Self::object(move |object| {
            let skim = object.skim();
            selector.matches(|label| skim.label(label))
        })
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

    /// Passes what this does not: of [`generation_changed`](Self::generation_changed) also no
    /// addition and no deletion (PRD-2).
    #[expect(
        clippy::should_implement_trait,
        reason = "beside `and` and `or` it reads better than an operator"
    )]
    #[must_use]
    pub fn not(self) -> Self {
        Self::new(move |event| !self.admits(event))
    }
}

fn sorted<'a>(pairs: &'a [(Cow<'a, str>, Cow<'a, str>)]) -> Vec<(&'a str, &'a str)> {
    let mut pairs: Vec<(&str, &str)> =
        pairs.iter().map(|(key, value)| (&**key, &**value)).collect();
    pairs.sort_unstable();
    pairs
}

impl fmt::Debug for EventFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventFilter")
    }
}
