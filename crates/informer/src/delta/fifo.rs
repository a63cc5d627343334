//! The ordered queue of deltas.
use super::queue::{BATCH_MAX, DeltaQueue, Ends, Line, Popped, QueueClosed};
use super::{Batch, Delta, Keyed, KnownObjects, Synced};
use crate::key::Key;
use futures::FutureExt;
use futures::future::BoxFuture;
use hashbrown::{DefaultHashBuilder, HashMap, HashSet, HashTable};
use std::collections::VecDeque;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;

/// The capacity that an empty queue keeps, batches (FIFO-17).
const IDLE_CAPACITY_MAX: usize = 64;

/// A plain sequence of deltas (FIFO-10) without grouping by key or merging: the reader sees every
/// event in the server's order. client-go's `RealFIFO`.
///
/// # Theory
///
/// Batches are formed when deltas are pushed: the queue is a sequence of batches, and the last one
/// grows until a delta does not fit. A batch has deltas about single objects with distinct keys, at
/// most [`BATCH_MAX`], so its effect on a store does not depend on how batches are cut. Any other
/// delta is a batch of its own, and the end of the initial list ends a batch (FIFO-15). Popping a
/// batch moves a pointer.
///
/// The queue compares hashes to find out whether a key is in the last batch, and computes them
/// outside the lock. Two keys with one hash only end a batch early.
///
/// # Modes
///
/// [`new`](Self::new) makes an atomic queue: a list, a resync and a bookmark are one delta each,
/// and the queue does not know the store (FIFO-14).
/// [`with_known_objects`](Self::with_known_objects) makes a queue that takes lists and resyncs
/// apart, which requires the store (FIFO-12, FIFO-13), and drops bookmarks, which have no meaning
/// when a list is not one delta. client-go checks these combinations when a queue is made; here
/// others cannot be expressed. List items become `Replaced`; client-go's older mode, `Sync`, is not
/// offered.
pub struct OrderedFifo<T> {
    hasher: DefaultHashBuilder,
    ends: Ends<Batches<T>>,
}

impl<T> fmt::Debug for OrderedFifo<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OrderedFifo").finish_non_exhaustive()
    }
}

impl<T> Default for OrderedFifo<T> {
    fn default() -> Self {
        Self::of(None)
    }
}

impl<T> OrderedFifo<T> {
    /// An empty queue, atomic.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty queue of deltas about single objects only.
    pub fn with_known_objects(known: Arc<dyn KnownObjects<T>>) -> Self {
        Self::of(Some(known))
    }

    fn of(known: Option<Arc<dyn KnownObjects<T>>>) -> Self {
        let hasher = DefaultHashBuilder::default();
        let needs_store = known.is_some();
        let line = Batches {
            hasher: hasher.clone(),
            known,
            batches: VecDeque::new(),
            hashes: HashTable::new(),
            is_open: false,
            n_deltas: 0,
            is_populated: false,
        };
        Self { hasher, ends: Ends::new(line, needs_store) }
    }
}

impl<T: Keyed + Clone> OrderedFifo<T> {
    /// [`pop_batch`](DeltaQueue::pop_batch), without a box for each call.
    pub(crate) async fn next_batch(&self) -> Option<Batch<T>> {
        self.ends.pop_batch().await
    }
}

impl<T: Keyed + Clone> DeltaQueue<T> for OrderedFifo<T> {
    fn offer(&self, delta: Delta<T>) -> Result<Option<Delta<T>>, QueueClosed> {
        let hash = delta.key().map(|key| self.hasher.hash_one(key));
        self.ends.offer(delta, hash)
    }

    fn freed(&self) -> BoxFuture<'_, ()> {
        self.ends.freed().boxed()
    }

    fn pop_batch(&self) -> BoxFuture<'_, Option<Batch<T>>> {
        self.next_batch().boxed()
    }

    fn close(&self) {
        self.ends.close();
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    fn synced(&self) -> Synced {
        self.ends.synced()
    }
}

/// The content behind the lock.
struct Batches<T> {
    hasher: DefaultHashBuilder,
    known: Option<Arc<dyn KnownObjects<T>>>,
    batches: VecDeque<Popped<T>>,
    /// The hashes of the keys of the last batch.
    hashes: HashTable<u64>,
    /// Whether the last batch may grow.
    is_open: bool,
    n_deltas: usize,
    is_populated: bool,
}

impl<T: Keyed + Clone> Line<T> for Batches<T> {
    fn needs_store(&self, delta: &Delta<T>) -> bool {
        self.known.is_some() && matches!(delta, Delta::ReplacedAll { .. } | Delta::SyncAll)
    }

    fn take(&mut self, delta: Delta<T>, hash: Option<u64>) -> Option<usize> {
        match (delta, &self.known) {
            (Delta::ReplacedAll { items, .. }, Some(known)) => {
                let known = known.clone();
                self.replace(items, &*known)
            }
            (Delta::SyncAll, Some(known)) => {
                let known = known.clone();
                self.resync(&*known);
                None
            }
            (Delta::Bookmark { .. }, Some(_)) => None,
            (delta @ Delta::ReplacedAll { .. }, None) => {
                let is_first = !std::mem::replace(&mut self.is_populated, true);
                self.push(delta, None, is_first, usize::from(is_first));
                is_first.then_some(1)
            }
            (delta @ (Delta::SyncAll | Delta::Bookmark { .. } | Delta::Sync(_)), _) => {
                self.push(delta, hash, !self.is_populated, 0);
                None
            }
            (delta, _) => {
                let is_first = !std::mem::replace(&mut self.is_populated, true);
                self.push(delta, hash, false, 0);
                is_first.then_some(0)
            }
        }
    }

    fn pop(&mut self) -> Option<Popped<T>> {
        let popped = self.batches.pop_front()?;
        self.n_deltas -= popped.deltas.len();
        if self.batches.is_empty() {
            self.is_open = false;
            self.hashes.clear();
            // FIFO-17: free the memory after a burst.
            if self.batches.capacity() > IDLE_CAPACITY_MAX {
                self.batches = VecDeque::new();
            }
        }
        Some(popped)
    }

    fn len(&self) -> usize {
        self.n_deltas
    }
}

impl<T: Keyed + Clone> Batches<T> {
    /// Appends a delta: to the last batch if it fits, else to a new one.
    fn push(
        &mut self,
        delta: Delta<T>,
        hash: Option<u64>,
        in_initial_list: bool,
        n_initial: usize,
    ) {
        self.n_deltas += 1;
        if self.is_open
            && let Some(hash) = hash
            && let Some(last) = self.batches.back_mut()
            && last.deltas.len() < BATCH_MAX
            // No batch crosses the end of the initial list (FIFO-15).
            && last.in_initial_list == in_initial_list
            && is_new(&mut self.hashes, hash)
        {
            last.deltas.push(delta);
            last.n_initial += n_initial;
            return;
        }
        self.hashes.clear();
        self.is_open = hash.is_some_and(|hash| is_new(&mut self.hashes, hash));
        self.batches.push_back(Popped { deltas: vec![delta], in_initial_list, n_initial });
    }

    /// FIFO-12: first tombstones, of queued keys before stored ones, and then the items.
    fn replace(&mut self, items: Vec<T>, known: &dyn KnownObjects<T>) -> Option<usize> {
        let is_first = !std::mem::replace(&mut self.is_populated, true);
        let tombstones = self.tombstones(&items, known);
        let n_deltas = tombstones.len() + items.len();
        for delta in tombstones.into_iter().chain(items.into_iter().map(Delta::Replaced)) {
            let hash = delta.key().map(|key| self.hasher.hash_one(key));
            self.push(delta, hash, is_first, usize::from(is_first));
        }
        is_first.then_some(n_deltas)
    }

    /// The tombstones of keys that a list lacks.
    fn tombstones(&self, items: &[T], known: &dyn KnownObjects<T>) -> Vec<Delta<T>> {
        let listed: HashSet<&Key> = items.iter().map(Keyed::key).collect();
        let mut tombstones = Vec::new();
        let (keys, last) = self.queued();
        for key in &keys {
            if let Some(delta) = last.get(key)
                && !delta.is_deletion()
                && !listed.contains(key)
            {
                let (key, last_known) = ((*key).clone(), delta.item().cloned());
                tombstones.push(Delta::DeletedFinalStateUnknown { key, last_known });
            }
        }
        for key in known.keys() {
            if !listed.contains(&key) && !last.contains_key(&key) {
                let last_known = known.get(&key);
                tombstones.push(Delta::DeletedFinalStateUnknown { key, last_known });
            }
        }
        tombstones
    }

    /// FIFO-13: skips keys with queued deltas, so that a resync cannot overtake a newer change.
    fn resync(&mut self, known: &dyn KnownObjects<T>) {
        let mut keys = known.keys();
        {
            let (_, queued) = self.queued();
            keys.retain(|key| !queued.contains_key(key));
        }
        let objects: Vec<T> = keys.iter().filter_map(|key| known.get(key)).collect();
        for object in objects {
            let hash = self.hasher.hash_one(object.key());
            self.push(Delta::Sync(object), Some(hash), !self.is_populated, 0);
        }
    }

    /// The keys with queued deltas, in the order of their first delta, and the last delta of each.
    fn queued(&self) -> (Vec<&Key>, HashMap<&Key, &Delta<T>>) {
        let mut keys = Vec::new();
        let mut last = HashMap::new();
        for delta in self.batches.iter().flat_map(|batch| &batch.deltas) {
            if let Some(key) = delta.key()
                && last.insert(key, delta).is_none()
            {
                keys.push(key);
            }
        }
        (keys, last)
    }
}

/// Adds a hash. Returns whether it is new.
fn is_new(hashes: &mut HashTable<u64>, hash: u64) -> bool {
    use hashbrown::hash_table::Entry;
    match hashes.entry(hash, |held| *held == hash, |held| *held) {
        Entry::Occupied(_) => false,
        Entry::Vacant(place) => {
            place.insert(hash);
            true
        }
    }
}

#[cfg(test)]
mod tests;
