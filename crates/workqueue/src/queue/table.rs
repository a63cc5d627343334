//! Which slot a key is in.
//!
//! # Theory
//!
//! An array of words of four bytes. A key is looked for from the place that the upper bits of its
//! hash name up to the first empty word. A word is the index of a slot and, in the bits that this
//! leaves free, the lower bits of the hash: so slots of other keys are hardly ever looked at, and a
//! search waits for memory once. (A table that keeps its marks apart from its entries waits twice,
//! and behind a lock nothing else goes on meanwhile.)
//!
//! At most five of eight words are in use. A removed word that has an empty neighbor becomes empty,
//! another one is marked; marks count as used until the table is built anew.

#[cfg(test)]
mod tests;

use super::keys::SlotIdx;

/// Nothing was ever here.
const EMPTY: u32 = 0;
/// Something was removed here: a search goes on.
const GONE: u32 = 1;
/// Words of slots begin here.
const FIRST: u32 = 2;

/// The shortest table: 64 words.
const BITS_MIN: u32 = 6;
/// The longest: so that an index leaves a bit of the hash.
const BITS_MAX: u32 = 31;

/// The most keys a table has room for: a billion.
pub(super) const LEN_MAX: usize = 1 << 30;

/// Where a word may be put.
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
    /// How many slots are in it.
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

    /// The slot with this hash that `is_it`, or where it could be put. With no room left there is
    /// no such place.
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
        let mark = hash << self.bits;
        let mut at = self.home(hash);
        let mut gone = None;
        loop {
            let word = self.words[at & mask];
            if word == EMPTY {
                break;
            }
            let idx = word.wrapping_sub(FIRST) ^ mark;
            if word == GONE {
                gone = gone.or(Some(Vacancy(at & mask)));
            } else if idx >> self.bits == 0 && is_it(idx) {
                return Ok(idx);
            }
            at += 1;
        }
        // A mark is used again for nothing; an empty word must leave three of eight.
        let has_room = (self.n_used + 1) * 8 <= self.words.len() * 5;
        Err(gone.or(has_room.then_some(Vacancy(at & mask))))
    }

    /// Puts a slot where [`find`](Self::find) said.
    #[inline]
    pub(super) fn insert(&mut self, Vacancy(at): Vacancy, hash: u32, idx: SlotIdx) {
        if self.words[at] == EMPTY {
            self.n_used += 1;
        }
        self.words[at] = self.word(hash, idx);
        self.len += 1;
    }

    /// Reads the first word of a search. What is read is of no use, but it is near when the search
    /// comes: many of these wait for memory together, searches wait one after the other.
    #[inline]
    pub(super) fn touch(&self, hash: u32) -> u32 {
        if self.words.is_empty() { EMPTY } else { self.words[self.home(hash)] }
    }

    /// The slot that the first word of a search names, if it has this hash.
    #[inline]
    pub(super) fn first(&self, hash: u32) -> Option<SlotIdx> {
        let idx = self.touch(hash).wrapping_sub(FIRST) ^ (hash << self.bits);
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
            self.words[at & mask] = GONE;
            return;
        }
        self.words[at & mask] = EMPTY;
        self.n_used -= 1;
        // Never all the way round: at least one word is empty, and it was not marked.
        at = at.wrapping_sub(1);
        while self.words[at & mask] == GONE {
            self.words[at & mask] = EMPTY;
            self.n_used -= 1;
            at = at.wrapping_sub(1);
        }
    }

    /// Builds the table anew, with room for one more, from the hashes of all slots that are in it
    /// and their indices, which are below `end`. In the order of the slots, so that they are read
    /// in a row.
    #[cold]
    pub(super) fn rebuild(&mut self, end: usize, slots: impl Iterator<Item = (u32, SlotIdx)>) {
        let wanted = ((self.len + 1) * 2).max(end + FIRST as usize + 1);
        self.bits = wanted.next_power_of_two().trailing_zeros().clamp(BITS_MIN, BITS_MAX);
        // The old one is freed first.
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
