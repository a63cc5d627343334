//! A hash table from keys to slots.
//!
//! # Theory
//!
//! An array of words of four bytes with open addressing. The search for a key starts at the word
//! that the upper bits of its hash select, and ends at the first empty word. A word holds the index
//! of a slot and, in the remaining bits, the lower bits of the hash. So slots of other keys are
//! rarely read, and a search waits for memory once. A table with separate control bytes and entries
//! waits twice, while the lock is held. With hashbrown's table instead, and without the prefetching
//! that it does not allow, 1M distinct keys take 228 ns each instead of 152, and 1M timers 378 ns
//! instead of 238 to add and 59 bytes instead of 48. With a short queue there is no difference. The
//! figures are in `benches/RESULTS.md`.
//!
//! At most five of eight words are in use. A removed word becomes empty if the next word is empty,
//! and a tombstone otherwise. Tombstones count as used until the table is rebuilt.

#[cfg(test)]
mod tests;

use super::keys::SlotIdx;

/// Never used.
const EMPTY: u32 = 0;
/// A tombstone: a search continues.
const TOMBSTONE: u32 = 1;
/// The first value of a word with a slot.
const FIRST: u32 = 2;

/// The smallest table: 64 words.
const BITS_MIN: u32 = 6;
/// The largest table, so that an index leaves a bit for the hash.
const BITS_MAX: u32 = 31;

/// Maximum number of keys in a table: a billion.
pub(super) const LEN_MAX: usize = 1 << 30;

/// A place for a new word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Vacancy(usize);

#[derive(Debug, Default)]
pub(super) struct Table {
    words: Vec<u32>,
    bits: u32,
    /// Words that are not empty.
    n_used: usize,
    len: usize,
}

impl Table {
    /// Number of slots in the table.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn home(&self, hash: u32) -> usize {
        (hash >> (32 - self.bits)) as usize
    }

    #[inline]
    fn word(&self, hash: u32, idx: SlotIdx) -> u32 {
        ((hash << self.bits) | idx) + FIRST
    }

    /// The slot with this hash for which `is_it` holds, or else a place for it. No place if the
    /// table is full.
    #[inline]
    pub(super) fn find(
        &self,
        hash: u32,
        is_it: impl Fn(SlotIdx) -> bool,
    ) -> Result<SlotIdx, Option<Vacancy>> {
        if self.words.is_empty() {
            return Err(None);
        }
        let mask = self.words.len() - 1;
        let hash_bits = hash << self.bits;
        let mut at = self.home(hash);
        let mut tombstone = None;
        loop {
            let word = self.words[at & mask];
            if word == EMPTY {
                break;
            }
            let idx = word.wrapping_sub(FIRST) ^ hash_bits;
            if word == TOMBSTONE {
                tombstone = tombstone.or(Some(Vacancy(at & mask)));
            } else if idx >> self.bits == 0 && is_it(idx) {
                return Ok(idx);
            }
            at += 1;
        }
        // Reusing a tombstone needs no room. An empty word must leave three of eight empty.
        let has_room = (self.n_used + 1) * 8 <= self.words.len() * 5;
        Err(tombstone.or(has_room.then_some(Vacancy(at & mask))))
    }

    /// Inserts a slot at a place that [`find`](Self::find) returned.
    #[inline]
    pub(super) fn insert(&mut self, Vacancy(at): Vacancy, hash: u32, idx: SlotIdx) {
        if self.words[at] == EMPTY {
            self.n_used += 1;
        }
        self.words[at] = self.word(hash, idx);
        self.len += 1;
    }

    /// Prefetches the first word of a search. The value does not matter: many prefetches wait for
    /// memory together, while searches wait one after the other.
    #[inline]
    pub(super) fn prefetch(&self, hash: u32) -> u32 {
        if self.words.is_empty() { EMPTY } else { self.words[self.home(hash)] }
    }

    /// The slot that the first word of a search points to, if it has this hash.
    #[inline]
    pub(super) fn first(&self, hash: u32) -> Option<SlotIdx> {
        let idx = self.prefetch(hash).wrapping_sub(FIRST) ^ (hash << self.bits);
        (idx >> self.bits == 0).then_some(idx)
    }

    pub(super) fn remove(&mut self, hash: u32, idx: SlotIdx) {
        let mask = self.words.len() - 1;
        let word = self.word(hash, idx);
        let mut at = self.home(hash);
        while self.words[at & mask] != word {
            assert_ne!(self.words[at & mask], EMPTY, "every slot is in the table");
            at += 1;
        }
        self.len -= 1;
        if self.words[(at + 1) & mask] != EMPTY {
            self.words[at & mask] = TOMBSTONE;
            return;
        }
        self.words[at & mask] = EMPTY;
        self.n_used -= 1;
        // Ends, because at least one word is empty.
        at = at.wrapping_sub(1);
        while self.words[at & mask] == TOMBSTONE {
            self.words[at & mask] = EMPTY;
            self.n_used -= 1;
            at = at.wrapping_sub(1);
        }
    }

    /// Rebuilds the table, with room for one more, from the hashes and indices of all slots in it.
    /// Indices are below `end`. Slots are in order, so that they are read sequentially.
    #[cold]
    pub(super) fn rebuild(&mut self, end: usize, slots: impl Iterator<Item = (u32, SlotIdx)>) {
        let wanted = ((self.len + 1) * 2).max(end + FIRST as usize + 1);
        self.bits = wanted.next_power_of_two().trailing_zeros().clamp(BITS_MIN, BITS_MAX);
        // Frees the old table first.
        self.words = Vec::new();
        self.words = vec![EMPTY; 1 << self.bits];
        let mask = self.words.len() - 1;
        self.n_used = 0;
        for (hash, idx) in slots {
            let mut at = self.home(hash);
            while self.words[at & mask] != EMPTY {
                at += 1;
            }
            self.words[at & mask] = self.word(hash, idx);
            self.n_used += 1;
        }
        assert_eq!(self.n_used, self.len, "every slot is in the table once");
    }
}
