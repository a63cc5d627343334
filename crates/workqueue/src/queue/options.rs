//! What may be said about a key when it is added, and about the order in which a queue serves.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    num::NonZeroU32,
    time::Duration,
};

use super::tag::Tag;

/// How a key is added; see [`WorkQueue::add_with`](crate::WorkQueue::add_with). The default is a
/// plain add.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct AddOptions {
    /// Wait this long first; zero is at once.
    pub after: Option<Duration>,
    /// Wait as long as the rate limiter says, which counts an attempt. With `after` too, the
    /// shorter of the two.
    pub rate_limited: bool,
    /// The higher, the sooner; absent is 0. Without effect unless the queue was built with
    /// [`priorities`](crate::Builder::priorities).
    pub priority: Option<i32>,
    /// Goes with the add to its hand-out: [`Item::tag`](crate::Item::tag).
    pub tag: Tag,
}

impl AddOptions {
    /// The same, after `delay`.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        Self { after: Some(delay), ..self }
    }

    /// The same, but when the rate limiter allows.
    #[must_use]
    pub fn rate_limited(self) -> Self {
        Self { rate_limited: true, ..self }
    }

    /// The same, at `priority`.
    #[must_use]
    pub fn priority(self, priority: i32) -> Self {
        Self { priority: Some(priority), ..self }
    }

    /// The same, with `tag`.
    #[must_use]
    pub fn tag(self, tag: Tag) -> Self {
        Self { tag, ..self }
    }
}

/// The priority of what is not urgent: -100, what controller-runtime gives to the initial list and
/// to resyncs.
pub const PRIORITY_LOW: i32 = -100;

/// How priorities decide who is served next. Within one priority it is first ready, first served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Priorities {
    /// The highest first, always: a steady supply at one priority starves all lower ones, as in
    /// controller-runtime.
    Strict,
    /// Waiting counts: a ready key rises by one for each `step` it has been ready. A key a hundred
    /// below is served before fresh ones once it has been ready for a hundred steps longer. The
    /// clock is read at every add. A step of zero is first ready, first served.
    Ageing {
        /// How long a key is ready until it counts as one priority higher.
        step: Duration,
    },
    /// The highest first, but of every `one_in` hand-outs that pass over a key of lower priority
    /// that has been ready for longer, one goes to the key that has been ready for longest. One in
    /// one is first ready, first served.
    Share {
        /// How many hand-outs make a round.
        one_in: NonZeroU32,
    },
}

/// Whose a key is; see [`Builder::groups`](crate::Builder::groups).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    pub(super) id: u64,
    pub(super) weight: u32,
}

impl Group {
    /// The group named `name`: a tenant, a namespace, a shard. Names are told apart by 64 bits of
    /// their hash, which is the same in every run.
    pub fn of(name: &(impl Hash + ?Sized)) -> Self {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        Self { id: hasher.finish(), weight: 1 }
    }

    /// The same, but served `weight` keys a round instead of one.
    #[must_use]
    pub fn weight(self, weight: NonZeroU32) -> Self {
        Self { weight: weight.get(), ..self }
    }
}

/// What becomes of queued keys at a shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AtShutdown {
    /// They are handed out, then every `get` ends: client-go's queue, and the default without
    /// priorities.
    HandOut,
    /// They are dropped, and every `get` ends at once: controller-runtime's priority queue, and the
    /// default with priorities. What reads its work anew at its next start misses nothing.
    Abandon,
}
