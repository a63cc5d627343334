//! The keys of a queue, each in a slot.
//!
//! A hash table maps a key to its slot; everything else uses slot indices. So `get` and `done` do
//! not hash, and an add hashes once, before it takes the lock.

use std::{collections::VecDeque, hash::Hash, hint::black_box};

use super::{
    moment::Moment,
    table::{LEN_MAX, Table, Vacancy},
};

/// Index of a key in [`Keys::slots`].
pub(super) type SlotIdx = u32;

/// Maximum number of keys in a queue.
pub(super) const KEYS_MAX: usize = LEN_MAX;

/// After a peak, an empty queue with more slots than this frees its memory.
const ROOM_MIN: usize = 4096;

/// Number of absent keys that stay in their slots, so that keys that come back are found.
const LISTED_MAX: usize = 2048;

/// Number of slots that fit in the processor's caches. 0 in this crate's own tests, so that they
/// cover larger queues.
const CACHED_SLOTS_MAX: usize = if cfg!(test) { 0 } else { 16 * 1024 };

/// Number of slots swept at a time: enough to wait for memory once, and the lock is held for some
/// microseconds.
const SWEEP: usize = 64;

/// A key's state, as in the table of the crate page. A key without a slot is absent too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Absent,
    Waiting,
    Queued,
    InFlight,
    Returning,
    Dirty,
}

/// A key that is not absent, or has recently become so.
pub(super) struct Slot<K> {
    pub(super) key: K,
    /// Its due time, if it waits.
    pub(super) due: Moment,
    hash: u32,
    /// Adds since the last hand-out, up to [`ADDS_MAX`](crate::ADDS_MAX).
    pub(super) n_adds: u16,
    pub(super) stage: Stage,
    is_listed: bool,
}

pub(super) struct Keys<K> {
    slots: Vec<Option<Slot<K>>>,
    free: Vec<SlotIdx>,
    by_hash: Table,
    /// Slots to check in the next sweep: those of absent keys, and of some that have come back.
    listed: VecDeque<SlotIdx>,
    n_absent: usize,
}

impl<K> Default for Keys<K> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            by_hash: Table::default(),
            listed: VecDeque::new(),
            n_absent: 0,
        }
    }
}

impl<K> Keys<K> {
    pub(super) fn get(&self, idx: SlotIdx) -> Option<&Slot<K>> {
        self.slots.get(idx as usize)?.as_ref()
    }

    /// The range of all slot indices.
    pub(super) fn indices(&self) -> std::ops::Range<SlotIdx> {
        0..self.slots.len() as SlotIdx
    }

    #[inline]
    pub(super) fn slot(&self, idx: SlotIdx) -> &Slot<K> {
        match &self.slots[idx as usize] {
            Some(slot) => slot,
            None => unreachable!("a slot is referred to only while its key is not absent"),
        }
    }

    #[inline]
    pub(super) fn slot_mut(&mut self, idx: SlotIdx) -> &mut Slot<K> {
        match &mut self.slots[idx as usize] {
            Some(slot) => slot,
            None => unreachable!("a slot is referred to only while its key is not absent"),
        }
    }

    /// Prefetches slots that are read next, so that they are loaded from memory together.
    #[inline]
    pub(super) fn prefetch(&self, idxs: impl Iterator<Item = SlotIdx>) {
        let seen =
            idxs.fold(0, |seen, idx| seen ^ self.get(idx).map_or(0, |slot| slot.stage as u32));
        black_box(seen);
    }

    /// Prefetches the table's words for keys that are looked up next.
    pub(super) fn prefetch_words(&self, hashes: impl Iterator<Item = u32>) {
        black_box(hashes.fold(0, |seen, hash| seen ^ self.by_hash.prefetch(hash)));
    }

    /// Prefetches the slots that these words point to.
    pub(super) fn prefetch_slots(&self, hashes: impl Iterator<Item = u32>) {
        self.prefetch(hashes.filter_map(|hash| self.by_hash.first(hash)));
    }

    /// Whether there are too many slots for the processor's caches.
    #[inline]
    pub(super) fn exceed_caches(&self) -> bool {
        self.slots.len() > CACHED_SLOTS_MAX
    }

    /// Makes a key absent. Returns whether all keys are absent now and their memory was freed.
    ///
    /// The slot is swept later, together with others: the table's words are far apart in memory,
    /// and prefetching many at once waits as long as loading one. A key that is added again before
    /// the sweep finds its slot, at no cost to the table.
    #[inline]
    pub(super) fn remove(&mut self, idx: SlotIdx) -> bool {
        let slot = self.slot_mut(idx);
        slot.stage = Stage::Absent;
        if !slot.is_listed {
            slot.is_listed = true;
            self.listed.push_back(idx);
        }
        self.n_absent += 1;
        if self.n_absent == self.by_hash.len() && self.slots.capacity() > ROOM_MIN {
            *self = Self::default();
            return true;
        }
        if self.listed.len() >= LISTED_MAX {
            self.sweep();
        }
        false
    }

    /// Removes absent keys from the table: of the first listed slots those that have not come back.
    #[inline(never)]
    fn sweep(&mut self) {
        let hashes = self.listed.iter().take(SWEEP).map(|idx| self.slot(*idx).hash);
        self.prefetch_words(hashes);
        for _ in 0..SWEEP {
            let Some(idx) = self.listed.pop_front() else { break };
            let slot = self.slot_mut(idx);
            slot.is_listed = false;
            if slot.stage != Stage::Absent {
                continue;
            }
            let hash = slot.hash;
            self.by_hash.remove(hash, idx);
            self.slots[idx as usize] = None;
            self.free.push(idx);
            self.n_absent -= 1;
        }
    }

    #[cold]
    fn make_room(&mut self) {
        let slots = &self.slots;
        let hash_of = |idx: SlotIdx| Some(slots[idx as usize].as_ref()?.hash);
        self.by_hash.make_room(slots.len(), hash_of);
    }

    #[cold]
    fn move_some(&mut self) {
        let slots = &self.slots;
        self.by_hash.move_some(|idx| Some(slots[idx as usize].as_ref()?.hash));
    }
}

impl<K: Eq + Hash> Keys<K> {
    #[inline]
    fn look(&self, key: &K, hash: u32) -> Result<SlotIdx, Option<Vacancy>> {
        let is_it = |idx: SlotIdx| matches!(self.slots.get(idx as usize), Some(Some(slot)) if slot.key == *key);
        self.by_hash.find(hash, is_it)
    }

    #[inline]
    pub(super) fn find(&self, key: &K, hash: u32) -> Option<SlotIdx> {
        self.look(key, hash).ok()
    }

    #[inline]
    fn insert(&mut self, key: K, hash: u32, vacancy: Option<Vacancy>) -> SlotIdx {
        let vacancy = vacancy.or_else(|| {
            self.make_room();
            self.look(&key, hash).err().flatten()
        });
        let stage = Stage::Queued;
        let due = Moment::default();
        let slot = Some(Slot { key, hash, due, n_adds: 0, stage, is_listed: false });
        let idx = match self.free.pop() {
            Some(idx) => {
                self.slots[idx as usize] = slot;
                idx
            }
            None => {
                assert!(self.slots.len() < KEYS_MAX, "a queue knows at most {KEYS_MAX} keys");
                self.slots.push(slot);
                (self.slots.len() - 1) as SlotIdx
            }
        };
        match vacancy {
            Some(vacancy) => self.by_hash.insert(vacancy, hash, idx),
            None => unreachable!("a new table has room"),
        }
        if self.by_hash.is_moving() {
            self.move_some();
        }
        idx
    }

    /// The slot of `key`, and its stage before. The caller sets a new stage if it was absent.
    #[inline]
    pub(super) fn enter(&mut self, key: K, hash: u32) -> (SlotIdx, Stage) {
        let idx = match self.look(&key, hash) {
            Ok(idx) => idx,
            Err(vacancy) => return (self.insert(key, hash, vacancy), Stage::Absent),
        };
        let stage = self.slot(idx).stage;
        if stage == Stage::Absent {
            self.n_absent -= 1;
        }
        (idx, stage)
    }
}
