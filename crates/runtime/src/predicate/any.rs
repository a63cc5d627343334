//! Untyped events.

use std::fmt;

use kube_core::Resource;
use setpoint_informer::{Event, Key, Object};
use setpoint_object::Skim;

/// The properties of an object of any type that filters can use.
pub trait Observed {
    /// Namespace and name.
    fn key(&self) -> &Key;

    /// The uid.
    fn uid(&self) -> &str;

    /// The resourceVersion.
    fn resource_version(&self) -> &str;

    /// The metadata, without decoding the object.
    fn skim(&self) -> Skim<'_>;
}

impl<K: Resource + 'static> Observed for Object<K> {
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

/// An untyped [`Event`].
#[non_exhaustive]
pub enum AnyEvent<'a> {
    /// The object is new to the handler.
    Added {
        /// The object.
        object: &'a dyn Observed,
        /// Whether it is in the handler's initial list.
        in_initial_list: bool,
    },
    /// The object changed or was resynced.
    Updated {
        /// The old state.
        old: &'a dyn Observed,
        /// The new state.
        new: &'a dyn Observed,
    },
    /// The object was deleted.
    Deleted {
        /// Its key.
        key: &'a Key,
        /// Its last known state, if any.
        last_known: Option<&'a dyn Observed>,
    },
}

impl<'a> AnyEvent<'a> {
    /// The untyped form of an event.
    pub fn of<K: Resource + 'static>(event: &'a Event<K>) -> Self {
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

    /// The key of the event's object.
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
