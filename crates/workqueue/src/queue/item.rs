//! A key in a worker's hands.

use std::{fmt, sync::Arc, time::Duration};

use super::{keys::SlotIdx, shared::Shared, state::Handed, tag::Tag};

/// A key handed out to a worker; nobody else gets it until this is dropped.
///
/// Dropping is `done`, so a worker that panics or is cancelled gives its key back as well. A worker
/// that wants to come back calls
/// [`WorkQueue::add_rate_limited`](crate::WorkQueue::add_rate_limited) *before* it drops the item:
/// the key then waits at the worker's side and starts to wait in the queue when done.
#[must_use = "dropping an item at once says that its work is done"]
pub struct Item<'q, K> {
    shared: &'q Arc<Shared<K>>,
    key: K,
    idx: SlotIdx,
    priority: i32,
    n_adds: u16,
}

/// In place of a slot: an [`OwnedItem`] has taken over.
const MOVED: SlotIdx = SlotIdx::MAX;

impl<'q, K> Item<'q, K> {
    #[inline]
    pub(super) fn new(shared: &'q Arc<Shared<K>>, handed: Handed<K>) -> Self {
        // Field by field: copied as a whole, what was just written would be read in wider pieces,
        // which processors wait for.
        let Handed { key, idx, priority, n_adds } = handed;
        Self { shared, key, idx, priority, n_adds }
    }

    /// The key.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// The priority it was handed out with, to be added again with the same; 0 without priorities.
    pub fn priority(&self) -> i32 {
        self.priority
    }

    /// The tag of the add that led to this hand-out; [`Tag::NONE`] if it had none. Locks the queue
    /// for a moment.
    pub fn tag(&self) -> Tag {
        self.shared.step(|state| state.tag(self.idx))
    }

    /// How many adds became this one hand-out, those with a delay included; counted up to
    /// [`ADDS_MAX`](crate::ADDS_MAX).
    pub fn n_adds(&self) -> u32 {
        u32::from(self.n_adds)
    }

    /// How long the key was queued before it was handed out. Locks the queue for a moment. `None`
    /// without ages; see [`Builder::ages`](crate::Builder::ages).
    pub fn waited(&self) -> Option<Duration> {
        self.shared.step(|state| state.waited(self.idx))
    }

    /// [`tag`](Self::tag) and [`waited`](Self::waited) in one look: the queue is locked once.
    pub fn tag_and_waited(&self) -> (Tag, Option<Duration>) {
        self.shared.step(|state| (state.tag(self.idx), state.waited(self.idx)))
    }

    /// The same, to be kept beyond a borrow of the queue: in another task, or in a collection.
    pub fn into_owned(mut self) -> OwnedItem<K>
    where
        K: Clone,
    {
        let idx = std::mem::replace(&mut self.idx, MOVED);
        let (key, priority, n_adds) = (self.key.clone(), self.priority, self.n_adds);
        OwnedItem { shared: self.shared.clone(), handed: Handed { key, idx, priority, n_adds } }
    }

    /// Ends the work, and keeps the key from being handed out until the [`RestingItem`] is dropped.
    ///
    /// The worker and the key's place in its [group](crate::Builder::group_in_flight_max) are free.
    /// The key stays in flight: what is added makes it dirty, and a drain waits for it.
    pub fn rest(mut self) -> RestingItem<K>
    where
        K: Clone,
    {
        let idx = std::mem::replace(&mut self.idx, MOVED);
        self.shared.rest(idx);
        RestingItem { shared: self.shared.clone(), key: self.key.clone(), idx }
    }

    /// Gives the key back, as dropping does: to be written where a reader should see it.
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

/// An [`Item`] that holds on to its queue by itself. Dropping it is `done`.
#[must_use = "dropping an item at once says that its work is done"]
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
    /// for a moment.
    pub fn tag(&self) -> Tag {
        self.shared.step(|state| state.tag(self.handed.idx))
    }

    /// How many adds became this one hand-out, those with a delay included; counted up to
    /// [`ADDS_MAX`](crate::ADDS_MAX).
    pub fn n_adds(&self) -> u32 {
        u32::from(self.handed.n_adds)
    }

    /// How long the key was queued before it was handed out. Locks the queue for a moment. `None`
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

/// A key whose work is done and that is not to be handed out yet: [`Item::rest`]. Dropping it is
/// `done`.
#[must_use = "dropping an item at once says that its key may be handed out"]
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
