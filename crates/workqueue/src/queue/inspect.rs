//! The state of single keys, for inspection.

use std::time::Duration;

use super::tag::Tag;

/// The state of a key at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry<K> {
    /// The key.
    pub key: K,
    /// Its state.
    pub phase: Phase,
    /// How long it has been queued or waiting, or held by a worker. `None` without ages; see
    /// [`Builder::ages`](crate::Builder::ages).
    pub age: Option<Duration>,
    /// Time until it falls due, if it waits.
    pub due_in: Option<Duration>,
    /// Its priority, now or at its hand-out; 0 without priorities.
    pub priority: i32,
    /// Its tag, for the next hand-out or of the last one.
    pub tag: Tag,
    /// Number of attempts that the rate limiter has counted since it was last forgotten.
    pub requeues: u32,
}

/// The state of a key, as in the crate page's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// It waits for its due time.
    Waiting,
    /// It is ready to be handed out.
    Queued,
    /// A worker holds it.
    InFlight,
    /// A worker holds it, and it also waits for a due time.
    Returning,
    /// A worker holds it, and it was added again.
    Dirty,
}
