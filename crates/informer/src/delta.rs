//! The queue between the reflector, which reads the server, and whoever holds the objects.
//!
//! # Theory
//!
//! A writer pushes [`Delta`]s as a server tells them; a reader takes them out in batches. What a queue may do in between is order
//! and translate, per its kind; both kinds stand behind [`DeltaQueue`], so that a reflector fills either. What is in a delta is
//! the queue's user's choice: anything that has a key ([`Keyed`]).

mod fifo;

pub use fifo::{BATCH_MAX, DELTAS_MAX, OrderedFifo};

use crate::key::Key;
use futures::future::BoxFuture;

/// What a queue can carry: a version of an object with its name.
pub trait Keyed: Send + Sync + 'static {
    /// Namespace and name.
    fn key(&self) -> &Key;
    /// `metadata.resourceVersion`; empty when the server sent none.
    fn resource_version(&self) -> &str;
}

/// One step of the cache's history, in the server's order.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Delta<T> {
    /// A watch said `ADDED`.
    Added(T),
    /// A watch said `MODIFIED`.
    Updated(T),
    /// A watch said `DELETED`; the object as it was last.
    Deleted(T),
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
    /// The object of a delta that is about one.
    pub fn item(&self) -> Option<&T> {
        match self {
            Self::Added(item) | Self::Updated(item) | Self::Deleted(item) => Some(item),
            _ => None,
        }
    }
}

/// The queue was closed: nothing is taken in any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the delta queue is closed")]
pub struct QueueClosed;

/// A queue of deltas with one writer and one reader.
///
/// A delta leaves before it is processed and is never put back (FIFO-20). The writer waits while the queue is full; the reader
/// waits while it is empty. Closing wakes both: the writer is refused, and the reader is given what is left, then `None`.
pub trait DeltaQueue<T: Keyed>: Send + Sync + 'static {
    /// Takes a delta in, or gives it back when the queue is full.
    ///
    /// # Errors
    /// When the queue is closed.
    fn offer(&self, delta: Delta<T>) -> Result<Option<Delta<T>>, QueueClosed>;

    /// Waits until there may be room, or the queue is closed.
    fn freed(&self) -> BoxFuture<'_, ()>;

    /// Takes out the next deltas; waits while there are none, and gives `None` once the queue is closed and empty.
    fn pop_batch(&self) -> BoxFuture<'_, Option<Vec<Delta<T>>>>;

    /// Refuses further deltas.
    fn close(&self);

    /// How many deltas wait.
    fn len(&self) -> usize;

    /// Whether none waits.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Puts a delta into a queue; waits while it is full.
///
/// # Errors
/// When the queue is closed.
pub async fn push<T: Keyed>(
    queue: &dyn DeltaQueue<T>,
    mut delta: Delta<T>,
) -> Result<(), QueueClosed> {
    loop {
        match queue.offer(delta)? {
            None => return Ok(()),
            Some(refused) => delta = refused,
        }
        queue.freed().await;
    }
}
