//! The queue with one slot per key.
use super::queue::{BATCH_MAX, DeltaQueue, Ends, Line, Popped, QueueClosed};
use super::{Batch, Delta, Keyed, KnownObjects, Synced};
use crate::key::Key;
use futures::FutureExt;
use futures::future::BoxFuture;
use hashbrown::{HashMap, HashSet};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// client-go's `DeltaFIFO`, which most articles describe and informers used before 1.36.
///
/// # Theory
///
/// Each key has at most one slot with its queued deltas, oldest first. Slots are popped whole, in
/// the order in which they were made, so two keys may be reordered against the server (FIFO-1).
/// Only two consecutive deletions are merged (FIFO-2). A slot is made with a delta in it and popped
/// from the front only, so there are no empty slots (FIFO-6).
///
/// | pushed        | queued as                                                                                              |
/// |---------------|--------------------------------------------------------------------------------------------------------|
/// | `Deleted`     | itself; dropped when neither the queue nor the store knows the key (FIFO-3)                            |
/// | `ReplacedAll` | a `Replaced` per item, then a tombstone for each queued or stored key that is not listed (FIFO-4)      |
/// | `SyncAll`     | a `Sync` for each stored object without queued deltas (FIFO-5)                                         |
/// | `Bookmark`    | nothing                                                                                                |
///
/// A batch is several slots of one delta each, or one slot of several deltas. The first list counts
/// in slots.
pub struct DeltaFifo<T>(Ends<Slots<T>>);

impl<T> fmt::Debug for DeltaFifo<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeltaFifo").finish_non_exhaustive()
    }
}

impl<T> DeltaFifo<T> {
    /// An empty queue before a store.
    pub fn new(known: Arc<dyn KnownObjects<T>>) -> Self {
        let line = Slots {
            known,
            slots: VecDeque::new(),
            numbers: HashMap::new(),
            first: 0,
            n_deltas: 0,
            is_populated: false,
            n_initial: 0,
        };
        Self(Ends::new(line, true))
    }
}

impl<T: Keyed + Clone> DeltaQueue<T> for DeltaFifo<T> {
    fn offer(&self, delta: Delta<T>) -> Result<Option<Delta<T>>, QueueClosed> {
        self.0.offer(delta, None)
    }

    fn freed(&self) -> BoxFuture<'_, ()> {
        self.0.freed().boxed()
    }

    fn pop_batch(&self) -> BoxFuture<'_, Option<Batch<T>>> {
        self.0.pop_batch().boxed()
    }

    fn close(&self) {
        self.0.close();
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn synced(&self) -> Synced {
        self.0.synced()
    }
}

/// The content behind the lock.
struct Slots<T> {
    known: Arc<dyn KnownObjects<T>>,
    slots: VecDeque<Slot<T>>,
    /// The number of each key's slot. Slots are numbered as they are made; the front has `first`.
    numbers: HashMap<Key, u64>,
    first: u64,
    n_deltas: usize,
    is_populated: bool,
    /// How many slots of the initial population are queued; they are at the front.
    n_initial: usize,
}

/// The queued deltas of one key: one at least, oldest first.
struct Slot<T> {
    key: Key,
    deltas: Vec<Delta<T>>,
}

impl<T: Keyed + Clone> Line<T> for Slots<T> {
    fn needs_store(&self, delta: &Delta<T>) -> bool {
        match delta {
            Delta::ReplacedAll { .. } | Delta::SyncAll => true,
            delta if delta.is_deletion() => {
                delta.key().is_some_and(|key| !self.numbers.contains_key(key))
            }
            _ => false,
        }
    }

    fn take(&mut self, delta: Delta<T>, _hash: Option<u64>) -> Option<usize> {
        let was_populated = self.is_populated;
        match delta {
            Delta::Bookmark { .. } => return None,
            Delta::SyncAll => {
                self.resync();
                return None;
            }
            Delta::ReplacedAll { items, .. } => {
                self.replace(items);
                if !was_populated {
                    self.n_initial = self.slots.len();
                }
            }
            delta => {
                let is_sync = matches!(delta, Delta::Sync(_));
                if let Some(key) = delta.key().cloned()
                    && !(delta.is_deletion() && self.is_unknown(&key))
                {
                    self.push(key, delta);
                }
                if is_sync {
                    return None;
                }
            }
        }
        self.is_populated = true;
        (!was_populated).then_some(self.n_initial)
    }

    fn pop(&mut self) -> Option<Popped<T>> {
        let in_initial_list = !self.is_populated || self.n_initial > 0;
        let n_slots_max =
            if self.n_initial > 0 { self.n_initial.min(BATCH_MAX) } else { BATCH_MAX };
        let singles = self.slots.iter().take_while(|slot| slot.deltas.len() == 1);
        let n_slots = match singles.take(n_slots_max).count() {
            0 => self.slots.len().min(1),
            n_singles => n_singles,
        };
        let mut deltas = Vec::with_capacity(n_slots);
        for slot in self.slots.drain(..n_slots) {
            self.first += 1;
            self.numbers.remove(&slot.key);
            self.n_deltas -= slot.deltas.len();
            deltas.extend(slot.deltas);
        }
        if deltas.is_empty() {
            return None;
        }
        if self.slots.is_empty() && self.slots.capacity() > BATCH_MAX {
            // FIFO-17: free the memory after a burst.
            self.slots = VecDeque::new();
            self.numbers = HashMap::new();
        }
        let n_initial = n_slots.min(self.n_initial);
        self.n_initial -= n_initial;
        Some(Popped { deltas, in_initial_list, n_initial })
    }

    fn len(&self) -> usize {
        self.n_deltas
    }
}

impl<T: Keyed + Clone> Slots<T> {
    fn is_unknown(&self, key: &Key) -> bool {
        !self.numbers.contains_key(key) && self.known.get(key).is_none()
    }

    /// Adds a delta to its key's slot, or to a new one.
    fn push(&mut self, key: Key, delta: Delta<T>) {
        let number = self.numbers.get(&key).and_then(|n| usize::try_from(n - self.first).ok());
        match number.and_then(|n| self.slots.get_mut(n)) {
            Some(slot) => {
                let n_before = slot.deltas.len();
                slot.push(delta);
                self.n_deltas += slot.deltas.len() - n_before;
            }
            None => {
                self.numbers.insert(key.clone(), self.first + self.slots.len() as u64);
                self.slots.push_back(Slot { key, deltas: vec![delta] });
                self.n_deltas += 1;
            }
        }
    }

    /// FIFO-4: the items, then tombstones of queued keys, then tombstones of stored keys.
    fn replace(&mut self, items: Vec<T>) {
        let listed: HashSet<Key> = items.iter().map(|item| item.key().clone()).collect();
        for item in items {
            self.push(item.key().clone(), Delta::Replaced(item));
        }
        for slot in self.slots.iter_mut().filter(|slot| !listed.contains(&slot.key)) {
            let n_before = slot.deltas.len();
            let last_known = slot.deltas.last().and_then(Delta::item).cloned();
            slot.push(Delta::DeletedFinalStateUnknown { key: slot.key.clone(), last_known });
            self.n_deltas += slot.deltas.len() - n_before;
        }
        for key in self.known.keys() {
            if !self.numbers.contains_key(&key) {
                let last_known = self.known.get(&key);
                let tombstone = Delta::DeletedFinalStateUnknown { key: key.clone(), last_known };
                self.push(key, tombstone);
            }
        }
    }

    /// FIFO-5: skips keys with queued deltas, so that a resync cannot overtake a newer change.
    fn resync(&mut self) {
        for key in self.known.keys() {
            if !self.numbers.contains_key(&key)
                && let Some(object) = self.known.get(&key)
            {
                self.push(key, Delta::Sync(object));
            }
        }
    }
}

impl<T> Slot<T> {
    /// FIFO-2: of two consecutive deletions the earlier stays, unless it is a tombstone, which may
    /// be stale.
    fn push(&mut self, delta: Delta<T>) {
        match self.deltas.last_mut() {
            Some(last) if last.is_deletion() && delta.is_deletion() => {
                if matches!(last, Delta::DeletedFinalStateUnknown { .. }) {
                    *last = delta;
                }
            }
            _ => self.deltas.push(delta),
        }
    }
}

#[cfg(test)]
mod tests;
