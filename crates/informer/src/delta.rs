//! The queue between the reflector, which reads the server, and whoever holds the objects.
//!
//! # Theory
//!
//! A writer offers [`Delta`]s as a server tells them; a reader takes them out in batches. The
//! writer's alphabet is the same for every queue: `Added`, `Updated`, `Deleted`, `ReplacedAll`,
//! `SyncAll`, `Bookmark`. What a queue does in between is order and translate, per its kind; every
//! kind stands behind [`DeltaQueue`], so that a reflector fills any of them. What is in a delta is
//! the queue's user's choice: anything that has a key ([`Keyed`]).
//!
//! | queue                                  | order                | a relist leaves as                    | a resync as        | knows the store |
//! |----------------------------------------|----------------------|---------------------------------------|--------------------|-----------------|
//! | [`OrderedFifo::new`], *atomic*         | the server's         | one `ReplacedAll`                     | one `SyncAll`      | no              |
//! | [`OrderedFifo::with_known_objects`]    | the server's         | tombstones, then a `Replaced` an item | a `Sync` an object | yes             |
//! | [`DeltaFifo`]                          | of each key's first  | a `Replaced` an item, then tombstones | a `Sync` an object | yes             |
//!
//! Informers run on the first. The others are for hand-wired controllers that want to be told of
//! single objects only.
//!
//! # Who waits for whom
//!
//! No queue runs its reader's code, and no lock is held while a batch is processed (FIFO-16): a
//! [`Batch`] is processed for as long as it exists, and dropping it says that it is done. That
//! cannot be forgotten, and what panics is done too: a delta leaves before it is processed and is
//! never put back (FIFO-20).
//!
//! - The writer waits while [`DELTAS_MAX`] deltas wait: a slow reader holds up the reading of the
//!   watch, not memory.
//! - A queue that knows the store asks it what it holds. While a batch is out the store does not
//!   say yet what the batch will do to it, and a deletion could get lost; until the batch is done
//!   the writer waits with what needs the store. client-go holds the queue's lock instead, for
//!   every write (FIFO-21); an atomic queue never needs to.
//! - One writer and one reader. What a poll of either takes in is bounded: both pay from their
//!   task's budget.

mod batch;
mod fifo;
mod keyed;
mod known;
mod queue;
mod synced;

pub use batch::{Batch, IntoIter};
pub use fifo::OrderedFifo;
pub use keyed::DeltaFifo;
pub use known::KnownObjects;
pub use queue::{BATCH_MAX, DELTAS_MAX, DeltaQueue, QueueClosed, push};
pub use synced::Synced;

use crate::key::Key;

/// What a queue can carry: a version of an object with its name.
pub trait Keyed: Send + Sync + 'static {
    /// Namespace and name.
    fn key(&self) -> &Key;
    /// `metadata.resourceVersion`; empty when the server sent none.
    fn resource_version(&self) -> &str;
}

/// One step of the cache's history.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Delta<T> {
    /// A watch said `ADDED`.
    Added(T),
    /// A watch said `MODIFIED`.
    Updated(T),
    /// A watch said `DELETED`; the object as it was last.
    Deleted(T),
    /// A list shows that the object is gone; its deletion was missed, and what is known of it may
    /// be stale (FIFO-4, FIFO-12). Called a tombstone. Only queues that know the store make these.
    DeletedFinalStateUnknown {
        /// The object's key.
        key: Key,
        /// The object as the queue or the store saw it last, if either did.
        last_known: Option<T>,
    },
    /// One object of a list. Only queues that know the store make these.
    Replaced(T),
    /// One object that is told of again, by a resync. Only queues that know the store make these.
    Sync(T),
    /// A whole list, or the whole of a streamed list: what is not in it is gone (FIFO-14).
    ReplacedAll {
        /// The objects.
        items: Vec<T>,
        /// The list's resourceVersion.
        resource_version: String,
    },
    /// A resync: every cached object is to be told of again.
    SyncAll,
    /// Nothing changed up to this resourceVersion.
    Bookmark {
        /// The resourceVersion.
        resource_version: String,
    },
}

impl<T> Delta<T> {
    /// The object of a delta that is about one, as far as it is known.
    pub fn item(&self) -> Option<&T> {
        match self {
            Self::Added(item)
            | Self::Updated(item)
            | Self::Deleted(item)
            | Self::Replaced(item)
            | Self::Sync(item) => Some(item),
            Self::DeletedFinalStateUnknown { last_known, .. } => last_known.as_ref(),
            Self::ReplacedAll { .. } | Self::SyncAll | Self::Bookmark { .. } => None,
        }
    }

    /// Whether one object is gone by it.
    pub fn is_deletion(&self) -> bool {
        matches!(self, Self::Deleted(_) | Self::DeletedFinalStateUnknown { .. })
    }
}

impl<T: Keyed> Delta<T> {
    /// Which object it is about: a tombstone's own key, or else the object's (FIFO-26); `None` when
    /// it is about all of them or none.
    pub fn key(&self) -> Option<&Key> {
        match self {
            Self::DeletedFinalStateUnknown { key, .. } => Some(key),
            delta => delta.item().map(Keyed::key),
        }
    }
}

#[cfg(test)]
mod suite;
