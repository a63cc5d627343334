//! The keys a queue knows, each in a slot.
//!
//! A table finds a key's slot by its hash; everything else speaks of slots. So `get` and `done`
//! hash nothing, and an add hashes once, before it takes the lock.

use std::{collections::VecDeque, hash::Hash, hint::black_box};

use super::{
    moment::Moment,
    table::{LEN_MAX, Table, Vacancy},
};

/// Where in [`Keys::slots`] a key is.
pub(super) type SlotIdx = u32;

/// The most keys a queue knows at once.
pub(super) const KEYS_MAX: usize = LEN_MAX;

/// After a peak, slots beyond this many are given back when the queue is empty.
const ROOM_MIN: usize = 4096;

/// So many keys that have become absent are still kept, so that keys that come and go find their
/// slots.
const LISTED_MAX: usize = 2048;

/// So many slots are within reach of the processor's caches.
/// None in this crate's own tests, so that they see what is done about those that are not.
const NEAR_MAX: usize = if cfg!(test) { 0 } else { 16 * 1024 };

/// So many of them are swept at a time: enough to wait for memory once, and the lock is held for
/// some microseconds.
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
    /// Adds since the last hand-out, up to [`ADDS_MAX`](crate::ADDS_MAX).
    pub(super) n_adds: u16,
    pub(super) stage: Stage,
    is_listed: bool,
}

pub(super) struct Keys<K> {
    slots: Vec<Option<Slot<K>>>,
    free: Vec<SlotIdx>,
    by_hash: Table,
    /// Slots to look at in the next sweep: those of absent keys, and of some that have come back.
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

    /// Looks at slots that are read soon after, one by one: so they are waited for together.
    #[inline]
    pub(super) fn touch(&self, idxs: impl Iterator<Item = SlotIdx>) {
        let seen =
            idxs.fold(0, |seen, idx| seen ^ self.get(idx).map_or(0, |slot| slot.stage as u32));
        black_box(seen);
    }

    /// Looks at the table's words that are read soon after.
    pub(super) fn touch_words(&self, hashes: impl Iterator<Item = u32>) {
        black_box(hashes.fold(0, |seen, hash| seen ^ self.by_hash.touch(hash)));
    }

    /// The same with the slots that these words name, if there are such.
    pub(super) fn touch_named(&self, hashes: impl Iterator<Item = u32>) {
        self.touch(hashes.filter_map(|hash| self.by_hash.first(hash)));
    }

    /// Whether there are so many slots that those of keys long not seen are far away in memory.
    #[inline]
    pub(super) fn are_far(&self) -> bool {
        self.slots.len() > NEAR_MAX
    }

    /// Makes a key absent; says whether all keys are now, and their room was given back. The slot
    /// is swept later, together with others: the table's places are far apart in memory, and many
    /// visits at once wait for it no longer than one. A key that is added again before finds its
    /// slot, and costs the table nothing.
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

    /// Takes absent keys out of the table: of the first listed slots those that have not come back.
    #[inline(never)]
    fn sweep(&mut self) {
        let hashes = self.listed.iter().take(SWEEP).map(|idx| self.slot(*idx).hash);
        self.touch_words(hashes);
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
    fn rebuild_table(&mut self) {
        let slots = self.slots.iter().zip(0..);
        let slots = slots.filter_map(|(slot, idx)| Some((slot.as_ref()?.hash, idx)));
        self.by_hash.rebuild(self.slots.len(), slots);
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
            self.rebuild_table();
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
            None => unreachable!("a table that was built anew has room"),
        }
        idx
    }

    /// The slot of `key`, and the stage it is in: if the key was absent, its slot is to be given
    /// another one.
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
