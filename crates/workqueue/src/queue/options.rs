//! Options of an add, and of the order of service.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    num::NonZeroU32,
    time::Duration,
};

use super::tag::Tag;

/// Options of an add; see [`WorkQueue::add_with`](crate::WorkQueue::add_with). The default is a
/// plain add.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct AddOptions {
    /// Delay; zero means at once.
    pub after: Option<Duration>,
    /// Uses the rate limiter's delay, which counts an attempt. With `after` too, the shorter of the
    /// two.
    pub rate_limited: bool,
    /// Priority: higher ones are served first. 0 if absent. No effect unless the queue was built
    /// with [`priorities`](crate::Builder::priorities).
    pub priority: Option<i32>,
    /// The hand-out returns it: [`Item::tag`](crate::Item::tag).
    pub tag: Tag,
}

impl AddOptions {
    /// Sets the delay.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        Self { after: Some(delay), ..self }
    }

    /// Uses the rate limiter's delay.
    #[must_use]
    pub fn rate_limited(self) -> Self {
        Self { rate_limited: true, ..self }
    }

    /// Sets the priority.
    #[must_use]
    pub fn priority(self, priority: i32) -> Self {
        Self { priority: Some(priority), ..self }
    }

    /// Sets the tag.
    #[must_use]
    pub fn tag(self, tag: Tag) -> Self {
        Self { tag, ..self }
    }
}

/// Priority for work that is not urgent: -100, which controller-runtime gives to the initial list
/// and to resyncs.
pub const PRIORITY_LOW: i32 = -100;

/// The order of service between priorities. Within one priority it is first ready, first served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Priorities {
    /// The highest first, always. A steady supply at one priority starves all lower ones, as in
    /// controller-runtime.
    Strict,
    /// A ready key rises by one priority for each `step` it has been ready. So a key with a
    /// priority lower by 100 is served before new ones once it has been ready for a hundred steps
    /// longer. Reads the clock at every add. A step of zero is first ready, first served.
    Ageing {
        /// Time a key must be ready to rise by one priority.
        step: Duration,
    },
    /// The highest first, with a share for the oldest: of every `one_in` hand-outs that pass over
    /// an older key of lower priority, one goes to the key that has been ready for longest. One in
    /// one is first ready, first served.
    Share {
        /// Number of hand-outs in a round.
        one_in: NonZeroU32,
    },
}

/// The group of a key; see [`Builder::groups`](crate::Builder::groups).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    pub(super) id: u64,
    pub(super) weight: u32,
}

impl Group {
    /// The group named `name`: a tenant, a namespace, a shard. Groups are identified by a 64-bit
    /// hash of the name, which is the same in every run.
    pub fn of(name: &(impl Hash + ?Sized)) -> Self {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        Self { id: hasher.finish(), weight: 1 }
    }

    /// Sets the number of keys served per round, instead of one.
    #[must_use]
    pub fn weight(self, weight: NonZeroU32) -> Self {
        Self { weight: weight.get(), ..self }
    }
}

/// What happens to queued keys at a shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AtShutdown {
    /// They are handed out, then every `get` returns `None`: client-go's queue, and the default
    /// without priorities.
    HandOut,
    /// They are dropped, and every `get` returns `None` at once: controller-runtime's priority
    /// queue, and the default with priorities. Safe if the next start lists all work again.
    Abandon,
}
