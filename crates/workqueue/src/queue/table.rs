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
//! and a tombstone otherwise. Tombstones count as used until there is another table.
//!
//! The lock must be held for a short time however many slots there are. So the words of a full
//! table stay where they are, as *former* words, and each insertion into the new ones *moves*
//! [`MOVES`] slots. Until all have moved, what the new words do not have is searched in the former
//! ones. These never change: a slot that was removed or reused no longer has the key that is
//! searched for.

#[cfg(test)]
mod tests;

use std::{mem, ops::Range};

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

/// Number of slots that an insertion moves. Small in this crate's own tests, so that their small
/// tables move slowly. All have moved before the new words are full: these are at least twice the
/// number of slots in the table, so that they have room for an eighth of their number besides.
const MOVES: usize = if cfg!(test) { 8 } else { 32 };

/// Maximum number of keys in a table: a billion.
pub(super) const LEN_MAX: usize = 1 << 30;

/// A place for a new word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Vacancy(usize);

#[derive(Debug, Default)]
pub(super) struct Table {
    words: Words,
    former: Option<Box<Former>>,
    /// Words that are not empty; not the former ones.
    n_used: usize,
    len: usize,
}

#[derive(Debug, Default)]
struct Words {
    words: Vec<u32>,
    bits: u32,
}

/// The words that a table had, and those of the slots in them that have not moved.
#[derive(Debug)]
struct Former {
    words: Words,
    slots: Range<usize>,
}

impl Words {
    #[inline]
    fn home(&self, hash: u32) -> usize {
        (hash >> (32 - self.bits)) as usize
    }

    #[inline]
    fn word(&self, hash: u32, idx: SlotIdx) -> u32 {
        ((hash << self.bits) | idx) + FIRST
    }

    /// The slot with this hash for which `is_it` holds, or else the place of the first tombstone
    /// and of the empty word that end the search. There must be words.
    #[inline]
    fn find(
        &self,
        hash: u32,
        is_it: impl Fn(SlotIdx) -> bool,
    ) -> Result<SlotIdx, (Option<Vacancy>, Vacancy)> {
        let mask = self.words.len() - 1;
        let hash_bits = hash << self.bits;
        let mut at = self.home(hash);
        let mut tombstone = None;
        loop {
            let word = self.words[at & mask];
            if word == EMPTY {
                return Err((tombstone, Vacancy(at & mask)));
            }
            let idx = word.wrapping_sub(FIRST) ^ hash_bits;
            if word == TOMBSTONE {
                tombstone = tombstone.or(Some(Vacancy(at & mask)));
            } else if idx >> self.bits == 0 && is_it(idx) {
                return Ok(idx);
            }
            at += 1;
        }
    }
}

impl Table {
    /// Number of slots in the table.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The slot with this hash for which `is_it` holds, or else a place for it. No place if the
    /// table is full.
    #[inline]
    pub(super) fn find(
        &self,
        hash: u32,
        is_it: impl Fn(SlotIdx) -> bool,
    ) -> Result<SlotIdx, Option<Vacancy>> {
        let words = &self.words.words;
        if words.is_empty() {
            return Err(None);
        }
        let (tombstone, empty) = match self.words.find(hash, &is_it) {
            Ok(idx) => return Ok(idx),
            Err(places) => places,
        };
        if let Some(former) = &self.former
            && let Ok(idx) = former.words.find(hash, is_it)
        {
            return Ok(idx);
        }
        // Reusing a tombstone needs no room. An empty word must leave three of eight empty.
        let has_room = (self.n_used + 1) * 8 <= words.len() * 5;
        Err(tombstone.or(has_room.then_some(empty)))
    }

    /// Inserts a slot at a place that [`find`](Self::find) returned.
    #[inline]
    pub(super) fn insert(&mut self, Vacancy(at): Vacancy, hash: u32, idx: SlotIdx) {
        if self.words.words[at] == EMPTY {
            self.n_used += 1;
        }
        self.words.words[at] = self.words.word(hash, idx);
        self.len += 1;
    }

    /// Prefetches the first word of a search. The value does not matter: many prefetches wait for
    /// memory together, while searches wait one after the other.
    #[inline]
    pub(super) fn prefetch(&self, hash: u32) -> u32 {
        let Words { words, .. } = &self.words;
        if words.is_empty() { EMPTY } else { words[self.words.home(hash)] }
    }

    /// The slot that the first word of a search points to, if it has this hash.
    #[inline]
    pub(super) fn first(&self, hash: u32) -> Option<SlotIdx> {
        let bits = self.words.bits;
        let idx = self.prefetch(hash).wrapping_sub(FIRST) ^ (hash << bits);
        (idx >> bits == 0).then_some(idx)
    }

    pub(super) fn remove(&mut self, hash: u32, idx: SlotIdx) {
        let word = self.words.word(hash, idx);
        let mut at = self.words.home(hash);
        let words = &mut self.words.words;
        let mask = words.len() - 1;
        self.len -= 1;
        while words[at & mask] != word {
            if words[at & mask] == EMPTY {
                assert!(self.former.is_some(), "every slot is in the table");
                return;
            }
            at += 1;
        }
        if words[(at + 1) & mask] != EMPTY {
            words[at & mask] = TOMBSTONE;
            return;
        }
        words[at & mask] = EMPTY;
        self.n_used -= 1;
        // Ends, because at least one word is empty.
        at = at.wrapping_sub(1);
        while words[at & mask] == TOMBSTONE {
            words[at & mask] = EMPTY;
            self.n_used -= 1;
            at = at.wrapping_sub(1);
        }
    }

    /// Makes room for one more slot if the table is full. Indices of slots are below `end`.
    /// `hash_of` returns the hash of a slot that is in the table.
    #[cold]
    pub(super) fn make_room(&mut self, end: usize, hash_of: impl Fn(SlotIdx) -> Option<u32>) {
        while self.is_moving() {
            self.move_some(&hash_of);
        }
        let wanted = ((self.len + 1) * 2).max(end + FIRST as usize + 1);
        let bits = wanted.next_power_of_two().trailing_zeros().clamp(BITS_MIN, BITS_MAX);
        let words = Words { words: vec![EMPTY; 1 << bits], bits };
        let words = mem::replace(&mut self.words, words);
        self.former = (end > 0).then(|| Box::new(Former { words, slots: 0..end }));
        self.n_used = 0;
    }

    /// Whether some slots have not moved.
    #[inline]
    pub(super) fn is_moving(&self) -> bool {
        self.former.is_some()
    }

    /// Moves some slots. They are in order, so that they are read sequentially.
    #[cold]
    pub(super) fn move_some(&mut self, hash_of: impl Fn(SlotIdx) -> Option<u32>) {
        let Some(former) = &mut self.former else { return };
        let slots = former.slots.by_ref().take(MOVES);
        let slots = slots.filter_map(|idx| Some((hash_of(idx as SlotIdx)?, idx as SlotIdx)));
        for (hash, idx) in slots {
            let word = self.words.word(hash, idx);
            let mut at = self.words.home(hash);
            let words = &mut self.words.words;
            let mask = words.len() - 1;
            // A slot that was reused is there already.
            while words[at & mask] != EMPTY && words[at & mask] != word {
                at += 1;
            }
            self.n_used += usize::from(words[at & mask] == EMPTY);
            words[at & mask] = word;
        }
        if former.slots.is_empty() {
            self.former = None;
        }
    }
}
