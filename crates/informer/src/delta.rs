//! The queue between the reflector and the store.
//!
//! # Theory
//!
//! A writer pushes [`Delta`]s in the server's order; a reader pops them in batches. The writer uses
//! the same deltas for every queue: `Added`, `Updated`, `Deleted`, `ReplacedAll`, `SyncAll`,
//! `Bookmark`. A queue orders and translates them. All kinds implement [`DeltaQueue`], so a
//! reflector can feed any of them. A delta carries any type that has a key ([`Keyed`]).
//!
//! | queue                                  | order                | a relist comes out as                 | a resync as        | knows the store |
//! |----------------------------------------|----------------------|---------------------------------------|--------------------|-----------------|
//! | [`OrderedFifo::new`], *atomic*         | the server's         | one `ReplacedAll`                     | one `SyncAll`      | no              |
//! | [`OrderedFifo::with_known_objects`]    | the server's         | tombstones, then a `Replaced` an item | a `Sync` an object | yes             |
//! | [`DeltaFifo`]                          | of each key's first  | a `Replaced` an item, then tombstones | a `Sync` an object | yes             |
//!
//! Informers use the first. The others are for hand-wired controllers that handle single objects
//! only: they split a relist in one call, under their lock, in a time that grows with its size.
//!
//! # Waiting
//!
//! No queue runs its reader's code, and no lock is held while a batch is processed (FIFO-16). A
//! [`Batch`] is in process while it exists; dropping it marks it as processed, also after a panic.
//! A delta leaves the queue before it is processed and is never put back (FIFO-20).
//!
//! - A writer waits while [`DELTAS_MAX`] deltas are queued: a slow reader slows down the reading
//!   of the watch instead of using memory.
//! - A queue that knows the store reads its keys. While a batch is in process, the store does not
//!   show its effects yet, so a deletion could get lost. So a writer waits with relists and
//!   resyncs until the batch is processed. client-go holds the queue's lock for every write instead
//!   (FIFO-21); an atomic queue never waits for this.
//! - There is one reader. Writers, of changes and of resyncs, are on one task, and all are woken
//!   when there may be room. All consume their task's budget, so the work of one poll is bounded.

mod batch;
mod fifo;
mod keyed;
mod queue;

pub use batch::{Batch, IntoIter};
pub use fifo::OrderedFifo;
pub use keyed::DeltaFifo;
pub use queue::{BATCH_MAX, DELTAS_MAX, DeltaQueue, KnownObjects, QueueClosed, Synced, push};

pub use crate::key::Keyed;

use crate::key::Key;

/// One step in the history of the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Delta<T> {
    /// `ADDED` by a watch.
    Added(T),
    /// `MODIFIED` by a watch.
    Updated(T),
    /// `DELETED` by a watch; the last state of the object.
    Deleted(T),
    /// A tombstone: a list lacks the object, so its deletion was missed (FIFO-4, FIFO-12). The last
    /// known state may be stale. Only queues that know the store make tombstones.
    DeletedFinalStateUnknown {
        /// The object's key.
        key: Key,
        /// The last state in the queue or the store, if any.
        last_known: Option<T>,
    },
    /// One object of a list. Only queues that know the store make these.
    Replaced(T),
    /// One object of a resync. Only queues that know the store make these.
    Sync(T),
    /// A complete list. Objects that are not in it are deleted (FIFO-14).
    ReplacedAll {
        /// The objects.
        items: Vec<T>,
        /// The list's resourceVersion.
        resource_version: String,
    },
    /// A resync: notify handlers of every cached object.
    SyncAll,
    /// All changes up to this resourceVersion have been seen.
    Bookmark {
        /// The resourceVersion.
        resource_version: String,
    },
}

impl<T> Delta<T> {
    /// The object of a delta about a single object, if it is known.
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

    /// Whether it is the deletion of an object.
    pub fn is_deletion(&self) -> bool {
        matches!(self, Self::Deleted(_) | Self::DeletedFinalStateUnknown { .. })
    }
}

impl<T: Keyed> Delta<T> {
    /// The key of a tombstone or of the object (FIFO-26); `None` for a delta that is not about a
    /// single object.
    pub fn key(&self) -> Option<&Key> {
        match self {
            Self::DeletedFinalStateUnknown { key, .. } => Some(key),
            delta => delta.item().map(Keyed::key),
        }
    }
}

#[cfg(test)]
mod tests;
