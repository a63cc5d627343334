//! What a queue knows about one key.

use std::time::Duration;

use super::tag::Tag;

/// A key that a queue knows, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry<K> {
    /// The key.
    pub key: K,
    /// Where it is.
    pub phase: Phase,
    /// How long it has been queued or waiting, or how long a worker has held it. `None` without
    /// ages; see [`Builder::ages`](crate::Builder::ages).
    pub age: Option<Duration>,
    /// In what time it falls due, if it waits.
    pub due_in: Option<Duration>,
    /// The priority it has, or was handed out with; 0 without priorities.
    pub priority: i32,
    /// The tag of what it is wanted for, or was handed out with.
    pub tag: Tag,
    /// How many attempts the rate limiter has counted since it was last forgotten.
    pub requeues: u32,
}

/// Where a key is; the states of the crate page's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// It waits for its due time.
    Waiting,
    /// It is ready to be handed out.
    Queued,
    /// A worker holds it.
    InFlight,
    /// A worker holds it, and it waits for a due time too.
    Returning,
    /// A worker holds it, and it is wanted again.
    Dirty,
}
