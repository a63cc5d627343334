//! The keys a queue knows, each in a slot.
//!
//! A table finds a key's slot by its hash; everything else speaks of slots. So `get` and `done` hash nothing, and an add hashes
//! once, before it takes the lock.

use std::{collections::VecDeque, hash::Hash};

use hashbrown::HashTable;

use super::moment::Moment;

/// Where in [`Keys::slots`] a key is.
pub(super) type SlotIdx = u32;

/// The most keys a queue knows at once.
pub(super) const KEYS_MAX: usize = SlotIdx::MAX as usize;

/// After a peak, slots beyond this many are given back when the queue is empty.
const ROOM_MIN: usize = 4096;

/// So many keys that have become absent are still kept, so that keys that come and go find their slots.
const LISTED_MAX: usize = 2048;

/// So many of them are swept at a time: enough to wait for memory once, and the lock is held for some microseconds.
const SWEEP: usize = 64;

/// A key's state, as in the table of the crate page; to have no slot is to be absent too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Absent,
    Waiting,
    Queued,
    InFlight,
    Returning,
    Dirty,
}

/// A key that is not absent, or was not until lately.
pub(super) struct Slot<K> {
    pub(super) key: K,
    /// When it is due, if it waits.
    pub(super) due: Moment,
    hash: u32,
    pub(super) stage: Stage,
    is_listed: bool,
}

pub(super) struct Keys<K> {
    slots: Vec<Option<Slot<K>>>,
    free: Vec<SlotIdx>,
    by_hash: HashTable<SlotIdx>,
    /// Slots to look at in the next sweep: those of absent keys, and of some that have come back.
    listed: VecDeque<SlotIdx>,
    n_absent: usize,
}

impl<K> Default for Keys<K> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            by_hash: HashTable::new(),
            listed: VecDeque::new(),
            n_absent: 0,
        }
    }
}

impl<K> Keys<K> {
    pub(super) fn get(&self, idx: SlotIdx) -> Option<&Slot<K>> {
        self.slots.get(idx as usize)?.as_ref()
    }

    /// Every index a slot may have now.
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

    /// Makes a key absent. Its slot is swept later, together with others: the table's places are far apart in memory, and many
    /// visits at once wait for it no longer than one. A key that is added again before finds its slot, and costs the table nothing.
    #[inline]
    pub(super) fn remove(&mut self, idx: SlotIdx) {
        let slot = self.slot_mut(idx);
        slot.stage = Stage::Absent;
        if !slot.is_listed {
            slot.is_listed = true;
            self.listed.push_back(idx);
        }
        self.n_absent += 1;
        let is_last = self.n_absent == self.by_hash.len() && self.slots.capacity() > ROOM_MIN;
        if is_last {
            self.sweep(usize::MAX);
        } else if self.listed.len() >= LISTED_MAX {
            self.sweep(SWEEP);
        }
    }

    /// Takes absent keys out of the table: of the first `n` listed slots those that have not come back.
    #[inline(never)]
    fn sweep(&mut self, n: usize) {
        for _ in 0..n.min(self.listed.len()) {
            let Some(idx) = self.listed.pop_front() else { break };
            let slot = self.slot_mut(idx);
            slot.is_listed = false;
            if slot.stage != Stage::Absent {
                continue;
            }
            let hash = spread(slot.hash);
            match self.by_hash.find_entry(hash, |&at| at == idx) {
                Ok(entry) => _ = entry.remove(),
                Err(_) => unreachable!("every slot is in the table"),
            }
            self.slots[idx as usize] = None;
            self.free.push(idx);
            self.n_absent -= 1;
        }
        if self.by_hash.is_empty() && self.slots.capacity() > ROOM_MIN {
            self.slots = Vec::new();
            self.free = Vec::new();
            self.by_hash = HashTable::new();
        }
    }

    /// Makes a larger table of all slots. The table could grow by itself, but would visit the slots in the order of its buckets:
    /// a cache miss each.
    #[cold]
    fn grow_table(&mut self) {
        let capacity = (self.by_hash.len() * 2).max(self.slots.len());
        let mut grown = HashTable::with_capacity(capacity);
        for (slot, idx) in self.slots.iter().zip(0..) {
            if let Some(slot) = slot {
                grown.insert_unique(spread(slot.hash), idx, |&at| spread_of(&self.slots, at));
            }
        }
        self.by_hash = grown;
    }
}

impl<K: Eq + Hash> Keys<K> {
    #[inline]
    pub(super) fn find(&self, key: &K, hash: u32) -> Option<SlotIdx> {
        self.by_hash.find(spread(hash), |&idx| self.slot(idx).key == *key).copied()
    }

    #[inline]
    fn insert(&mut self, key: K, hash: u32) -> SlotIdx {
        let stage = Stage::Queued;
        let slot = Some(Slot { key, hash, due: Moment::default(), stage, is_listed: false });
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
        if self.by_hash.len() == self.by_hash.capacity() {
            self.grow_table();
        } else {
            let slots = &self.slots;
            self.by_hash.insert_unique(spread(hash), idx, |&at| spread_of(slots, at));
        }
        idx
    }

    /// The slot of `key`, and the stage it is in: if the key was absent, its slot is to be given another one.
    #[inline]
    pub(super) fn enter(&mut self, key: K, hash: u32) -> (SlotIdx, Stage) {
        let Some(idx) = self.find(&key, hash) else {
            return (self.insert(key, hash), Stage::Absent);
        };
        let stage = self.slot(idx).stage;
        if stage == Stage::Absent {
            self.n_absent -= 1;
        }
        (idx, stage)
    }
}

/// The table's hash of the key in a slot.
fn spread_of<K>(slots: &[Option<Slot<K>>], idx: SlotIdx) -> u64 {
    slots[idx as usize].as_ref().map_or(0, |slot| spread(slot.hash))
}

/// The table's hash of a key: four bytes are kept, which the table needs spread over eight.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}
