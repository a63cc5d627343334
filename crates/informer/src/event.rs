//! The notifications of handlers.
use crate::key::Key;
use crate::object::Object;

/// One change of the cache, as one handler sees it.
///
/// For one key a handler sees `Added (Updated)* Deleted`, repeated, in the order in which the cache
/// changed. Events of different keys have no order to rely on. When the handler is called, the
/// cache holds this state *or a later one* (EVT-7), so a handler should enqueue the key, and its
/// worker should read the cache.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<K> {
    /// The object was added to the cache.
    Added {
        /// The object.
        object: Object<K>,
        /// Whether the object was part of the informer's first list, or in the cache when the
        /// handler was added (FIFO-23, SHI-3).
        in_initial_list: bool,
    },
    /// The object was in the cache already: it changed, or a resync or a relist reports it
    /// unchanged ([`Event::is_sync`]).
    ///
    /// If an object is deleted and created again between two lists, there is one update whose two
    /// uids differ (EVT-8).
    Updated {
        /// The version that the cache held before; if events were merged, the version that this
        /// handler saw last.
        old: Object<K>,
        /// The new version.
        new: Object<K>,
    },
    /// The object was deleted.
    Deleted {
        /// The last known state of the object.
        tombstone: Tombstone<K>,
    },
}

/// The last known state of a deleted object. client-go passes either the object or a
/// `DeletedFinalStateUnknown` as an untyped value, which handlers forget to check. Here both cases
/// have the key.
#[derive(Debug)]
#[non_exhaustive]
pub enum Tombstone<K> {
    /// The watch reported the deletion: the final state.
    Final(Object<K>),
    /// The watch missed the deletion and a relist showed it: the state that was seen last, which
    /// may be stale.
    Missed {
        /// The key.
        key: Key,
        /// The state that was seen last, if any.
        last_known: Option<Object<K>>,
    },
}

impl<K> Event<K> {
    /// The event for a handler of another type.
    pub(crate) fn into_type<V>(self) -> Event<V> {
        match self {
            Self::Added { object, in_initial_list } => {
                Event::Added { object: object.into_type(), in_initial_list }
            }
            Self::Updated { old, new } => {
                Event::Updated { old: old.into_type(), new: new.into_type() }
            }
            Self::Deleted { tombstone } => Event::Deleted { tombstone: tombstone.into_type() },
        }
    }

    /// The key of the object.
    pub fn key(&self) -> &Key {
        match self {
            Self::Added { object, .. } => object.key(),
            Self::Updated { new, .. } => new.key(),
            Self::Deleted { tombstone } => tombstone.key(),
        }
    }

    /// The newest state in the event; `None` for a deletion of which only the key is known.
    pub fn object(&self) -> Option<&Object<K>> {
        match self {
            Self::Added { object, .. } => Some(object),
            Self::Updated { new, .. } => Some(new),
            Self::Deleted { tombstone } => tombstone.object(),
        }
    }

    /// Whether this is an update of an unchanged object: both versions have the same
    /// resourceVersion. Resyncs and relists make such events (SHI-22).
    pub fn is_sync(&self) -> bool {
        match self {
            Self::Updated { old, new } => old.has_version_of(new),
            _ => false,
        }
    }

    /// Whether this is an addition of the initial list.
    pub fn in_initial_list(&self) -> bool {
        matches!(self, Self::Added { in_initial_list: true, .. })
    }
}

impl<K> Tombstone<K> {
    fn into_type<V>(self) -> Tombstone<V> {
        match self {
            Self::Final(object) => Tombstone::Final(object.into_type()),
            Self::Missed { key, last_known } => {
                Tombstone::Missed { key, last_known: last_known.map(Object::into_type) }
            }
        }
    }

    /// The key of the deleted object.
    pub fn key(&self) -> &Key {
        match self {
            Self::Final(object) => object.key(),
            Self::Missed { key, .. } => key,
        }
    }

    /// The last known state, which is final only for [`Tombstone::Final`].
    pub fn object(&self) -> Option<&Object<K>> {
        match self {
            Self::Final(object) => Some(object),
            Self::Missed { last_known, .. } => last_known.as_ref(),
        }
    }
}

impl<K> Clone for Event<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Added { object, in_initial_list } => {
                Self::Added { object: object.clone(), in_initial_list: *in_initial_list }
            }
            Self::Updated { old, new } => Self::Updated { old: old.clone(), new: new.clone() },
            Self::Deleted { tombstone } => Self::Deleted { tombstone: tombstone.clone() },
        }
    }
}

impl<K> Clone for Tombstone<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Final(object) => Self::Final(object.clone()),
            Self::Missed { key, last_known } => {
                Self::Missed { key: key.clone(), last_known: last_known.clone() }
            }
        }
    }
}
