//! The queue between the reflector, which reads the server, and the cache.

mod fifo;

pub use fifo::{BATCH_MAX, DELTAS_MAX, OrderedFifo, QueueClosed};

use crate::record::Record;

/// One step of the cache's history, in the server's order.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Delta {
    /// A watch said `ADDED`.
    Added(Record),
    /// A watch said `MODIFIED`.
    Updated(Record),
    /// A watch said `DELETED`; the object as it was last.
    Deleted(Record),
    /// A whole list, or the whole of a streamed list: what is not in it is gone (FIFO-14).
    ReplacedAll {
        /// The objects.
        records: Vec<Record>,
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

impl Delta {
    /// The object of a delta that is about one.
    pub fn record(&self) -> Option<&Record> {
        match self {
            Self::Added(record) | Self::Updated(record) | Self::Deleted(record) => Some(record),
            _ => None,
        }
    }
}
