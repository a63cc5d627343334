//! The entries of one node, and the parts of their keys that searches compare.
use super::{HasKey, KeyRef};
use std::cmp::Ordering;

/// The largest number of entries of a node: 32, so that the numbers of their keys fill four cache
/// lines.
pub(super) const NODE_MAX: usize = 32;

/// Entries of a node of a tree that is built at once: a few fewer, so that the first insertions do
/// not split it.
pub(super) const NODE_FULL: usize = 28;

/// How many slots a full node grows by: few, since most memory is in leaves.
const GROWTH: usize = 4;

#[derive(Clone)]
pub(super) struct Slots<T> {
    /// The common prefix of the keys, as bytes of namespace, zero and name.
    common: Box<[u8]>,
    /// The bytes after the prefix in the key of each item.
    heads: Vec<u64>,
    pub(super) items: Vec<T>,
}

impl<T: HasKey> Slots<T> {
    /// Items in order, at least one.
    pub(super) fn of(items: Vec<T>) -> Self {
        let mut slots = Self { common: Box::default(), heads: Vec::new(), items };
        slots.recompute();
        slots
    }

    /// Computes the prefix and the numbers again.
    pub(super) fn recompute(&mut self) {
        self.items.shrink_to_fit();
        self.common = match &*self.items {
            // They are sorted, so the prefix of the first and the last is that of all.
            [first, .., last] => {
                let first = KeyRef::from(first.key());
                first.bytes().take(first.common(last.key().into())).collect()
            }
            _ => Box::default(),
        };
        let skip = self.common.len();
        let mut heads = Vec::with_capacity(self.items.capacity());
        heads.extend(self.items.iter().map(|item| KeyRef::from(item.key()).head(skip)));
        self.heads = heads;
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    pub(super) fn low(&self) -> &crate::key::Key {
        self.items[0].key()
    }

    /// The position of a key, or the position at which it would be inserted. `checks_prefix`:
    /// checks that the key has the prefix, instead of assuming it.
    pub(super) fn place(&self, key: KeyRef<'_>, checks_prefix: bool) -> Result<usize, usize> {
        if checks_prefix {
            let shared = key.bytes().take(self.common.len()).cmp(self.common.iter().copied());
            match shared {
                Ordering::Less => return Err(0),
                Ordering::Greater => return Err(self.len()),
                Ordering::Equal => {}
            }
        }
        let head = key.head(self.common.len());
        let mut at = self.heads.iter().filter(|other| **other < head).count();
        while at < self.len() && self.heads[at] == head {
            match KeyRef::from(self.items[at].key()).compare(key) {
                Ordering::Less => at += 1,
                Ordering::Equal => return Ok(at),
                Ordering::Greater => break,
            }
        }
        Err(at)
    }

    /// Inserts an item in order. The node is not full and has no item with this key.
    pub(super) fn insert(&mut self, item: T) {
        let key = KeyRef::from(item.key());
        let at = match self.place(key, true) {
            Ok(at) | Err(at) => at,
        };
        let is_shared = key.bytes().take(self.common.len()).eq(self.common.iter().copied());
        let head = key.head(self.common.len());
        if self.items.len() == self.items.capacity() {
            self.items.reserve_exact(GROWTH);
            self.heads.reserve_exact(GROWTH);
        }
        self.items.insert(at, item);
        if is_shared {
            self.heads.insert(at, head);
        } else {
            self.recompute();
        }
    }

    pub(super) fn remove(&mut self, at: usize) -> T {
        self.heads.remove(at);
        self.items.remove(at)
    }

    /// Splits off the second half.
    pub(super) fn split(&mut self) -> Self {
        let right = self.items.split_off(self.len() / 2);
        self.recompute();
        Self::of(right)
    }

    /// Appends the items of the next node.
    pub(super) fn append(&mut self, right: Self) {
        self.items.extend(right.items);
        self.recompute();
    }
}
