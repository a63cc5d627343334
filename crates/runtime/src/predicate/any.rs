//! Events whose type is forgotten.

use std::fmt;

use kube_core::Resource;
use setpoint_informer::{Event, Key, Object};
use setpoint_object::Skim;

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
