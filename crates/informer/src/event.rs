//! What a handler is told.
use crate::key::Key;
use crate::object::Object;

/// One change of the cache, as one handler sees it.
///
/// For one key a handler sees `Added (Updated)* Deleted`, repeated, in the order in which the cache
/// changed; between keys there is no order to rely on. When it is told, the cache holds this state
/// *or a later one* (EVT-7), so a handler should take the key and let its worker read the cache.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<K> {
    /// The object is in the cache and was not before.
    Added {
        /// The object.
        object: Object<K>,
        /// Whether it was there when the handler began: part of the informer's first list, or of
        /// the cache when the handler was added late (FIFO-23, SHI-3).
        in_initial_list: bool,
    },
    /// The object was in the cache already: it changed, or a resync or a relist tells of it again
    /// ([`Event::is_sync`]).
    ///
    /// An object that was deleted and made again under its name between two looks arrives as one
    /// update whose two uids differ (EVT-8).
    Updated {
        /// What the cache held before; for a queue that had to merge, what this handler saw last.
        old: Object<K>,
        /// What the cache holds now.
        new: Object<K>,
    },
    /// The object is gone.
    Deleted {
        /// What is known of it.
        tombstone: Tombstone<K>,
    },
}

/// What is known of an object that is gone. client-go passes either the object or a
/// `DeletedFinalStateUnknown` as an untyped value, which handlers forget to look for; here the key
/// is at hand in both cases.
#[derive(Debug)]
#[non_exhaustive]
pub enum Tombstone<K> {
    /// The deletion was watched: the object as it was when it went.
    Final(Object<K>),
    /// The deletion was missed and found out by a relist: the object as it was last seen, which may
    /// be stale.
    Missed {
        /// Its key.
        key: Key,
        /// As it was last seen, when it was.
        last_known: Option<Object<K>>,
    },
}

impl<K> Event<K> {
    /// The same event for a handler of another type.
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

    /// Which object this is about.
    pub fn key(&self) -> &Key {
        match self {
            Self::Added { object, .. } => object.key(),
            Self::Updated { new, .. } => new.key(),
            Self::Deleted { tombstone } => tombstone.key(),
        }
    }

    /// The newest state that the event carries; none for a deletion of which nothing is known but
    /// the key.
    pub fn object(&self) -> Option<&Object<K>> {
        match self {
            Self::Added { object, .. } => Some(object),
            Self::Updated { new, .. } => Some(new),
            Self::Deleted { tombstone } => tombstone.object(),
        }
    }

    /// An update that carries no news: both sides have the same resourceVersion. Resyncs and
    /// relists make them (SHI-22).
    pub fn is_sync(&self) -> bool {
        match self {
            Self::Updated { old, new } => {
                !new.resource_version().is_empty()
                    && old.resource_version() == new.resource_version()
            }
            _ => false,
        }
    }

    /// Whether this is an addition out of the initial list.
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

    /// Which object is gone.
    pub fn key(&self) -> &Key {
        match self {
            Self::Final(object) => object.key(),
            Self::Missed { key, .. } => key,
        }
    }

    /// Its last known state, which is final only for [`Tombstone::Final`].
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
