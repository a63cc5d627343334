//! Keys that workers hold.

use std::{fmt, sync::Arc, time::Duration};

use super::{keys::SlotIdx, shared::Shared, state::Handed, tag::Tag};

/// A key that was handed out to a worker. No other worker gets it until this is dropped.
///
/// Dropping it is `done`, so a worker that panics or is cancelled gives its key back too. A worker
/// that wants to retry calls [`WorkQueue::add_rate_limited`](crate::WorkQueue::add_rate_limited)
/// *before* it drops the item. The delay starts at once, and the key waits in the queue after it is
/// done.
#[must_use = "dropping an item at once marks its work as done"]
pub struct Item<'q, K> {
    shared: &'q Arc<Shared<K>>,
    key: K,
    idx: SlotIdx,
    priority: i32,
    n_adds: u16,
}

/// Stands for no slot, after the item became an [`OwnedItem`].
const MOVED: SlotIdx = SlotIdx::MAX;

impl<'q, K> Item<'q, K> {
    #[inline]
    pub(super) fn new(shared: &'q Arc<Shared<K>>, handed: Handed<K>) -> Self {
        // Field by field: a copy of the whole struct reads what was just written in wider pieces,
        // which stalls the processor.
        let Handed { key, idx, priority, n_adds } = handed;
        Self { shared, key, idx, priority, n_adds }
    }

    /// The key.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// The priority it was handed out with, to add it again with the same one; 0 without
    /// priorities.
    pub fn priority(&self) -> i32 {
        self.priority
    }

    /// The tag of the add that led to this hand-out; [`Tag::NONE`] if it had none. Locks the queue
    /// briefly.
    pub fn tag(&self) -> Tag {
        self.shared.step(|state| state.tag(self.idx))
    }

    /// Number of adds that led to this hand-out, including those with a delay, up to
    /// [`ADDS_MAX`](crate::ADDS_MAX).
    pub fn n_adds(&self) -> u32 {
        u32::from(self.n_adds)
    }

    /// How long the key was queued before it was handed out. Locks the queue briefly. `None`
    /// without ages; see [`Builder::ages`](crate::Builder::ages).
    pub fn waited(&self) -> Option<Duration> {
        self.shared.step(|state| state.waited(self.idx))
    }

    /// [`tag`](Self::tag) and [`waited`](Self::waited) with one lock of the queue.
    pub fn tag_and_waited(&self) -> (Tag, Option<Duration>) {
        self.shared.step(|state| (state.tag(self.idx), state.waited(self.idx)))
    }

    /// Converts it into an item that does not borrow the queue, for another task or a collection.
    pub fn into_owned(mut self) -> OwnedItem<K>
    where
        K: Clone,
    {
        // First, because it may panic: then the item is dropped as it is.
        let key = self.key.clone();
        let idx = std::mem::replace(&mut self.idx, MOVED);
        let (priority, n_adds) = (self.priority, self.n_adds);
        OwnedItem { shared: self.shared.clone(), handed: Handed { key, idx, priority, n_adds } }
    }

    /// Ends the work, but keeps the key from being handed out until the [`RestingItem`] is dropped.
    ///
    /// Frees the worker and the key's place in its [group](crate::Builder::group_in_flight_max).
    /// The key stays in flight: an add makes it dirty, and a drain waits for it.
    pub fn rest(mut self) -> RestingItem<K>
    where
        K: Clone,
    {
        let key = self.key.clone();
        let idx = std::mem::replace(&mut self.idx, MOVED);
        self.shared.rest(idx);
        RestingItem { shared: self.shared.clone(), key, idx }
    }

    /// Gives the key back, like dropping the item, but visible in the code.
    pub fn done(self) {}
}

impl<K> Drop for Item<'_, K> {
    #[inline]
    fn drop(&mut self) {
        if self.idx != MOVED {
            self.shared.done(self.idx);
        }
    }
}

impl<K: fmt::Debug> fmt::Debug for Item<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Item").field(&self.key).finish()
    }
}

/// An [`Item`] that owns a handle of its queue. Dropping it is `done`.
#[must_use = "dropping an item at once marks its work as done"]
pub struct OwnedItem<K> {
    shared: Arc<Shared<K>>,
    handed: Handed<K>,
}

impl<K> OwnedItem<K> {
    /// The key.
    pub fn key(&self) -> &K {
        &self.handed.key
    }

    /// The priority it was handed out with.
    pub fn priority(&self) -> i32 {
        self.handed.priority
    }

    /// The tag of the add that led to this hand-out; [`Tag::NONE`] if it had none. Locks the queue
    /// briefly.
    pub fn tag(&self) -> Tag {
        self.shared.step(|state| state.tag(self.handed.idx))
    }

    /// Number of adds that led to this hand-out, including those with a delay, up to
    /// [`ADDS_MAX`](crate::ADDS_MAX).
    pub fn n_adds(&self) -> u32 {
        u32::from(self.handed.n_adds)
    }

    /// How long the key was queued before it was handed out. Locks the queue briefly. `None`
    /// without ages; see [`Builder::ages`](crate::Builder::ages).
    pub fn waited(&self) -> Option<Duration> {
        self.shared.step(|state| state.waited(self.handed.idx))
    }

    /// Gives the key back, as dropping does.
    pub fn done(self) {}
}

impl<K> Drop for OwnedItem<K> {
    fn drop(&mut self) {
        self.shared.done(self.handed.idx);
    }
}

impl<K: fmt::Debug> fmt::Debug for OwnedItem<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnedItem").field(&self.handed.key).finish()
    }
}

/// A key whose work is done but that must not be handed out yet: [`Item::rest`]. Dropping it is
/// `done`.
#[must_use = "dropping an item at once lets its key be handed out"]
pub struct RestingItem<K> {
    shared: Arc<Shared<K>>,
    key: K,
    idx: SlotIdx,
}

impl<K> RestingItem<K> {
    /// The key.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// Gives the key back, as dropping does.
    pub fn done(self) {}
}

impl<K> Drop for RestingItem<K> {
    fn drop(&mut self) {
        self.shared.step(|state| state.end_rest(self.idx));
    }
}

impl<K: fmt::Debug> fmt::Debug for RestingItem<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RestingItem").field(&self.key).finish()
    }
}
