//! The entries of one node, and what of their keys is kept beside them.
use super::{HasKey, KeyRef};
use std::cmp::Ordering;

/// How many entries a node holds at most: 32, so that the numbers that stand for their keys fill
/// four cache lines.
pub(super) const NODE_MAX: usize = 32;

/// How many entries a node of a tree that is built at once holds: a few fewer, so that the first
/// additions do not split it.
const NODE_FULL: usize = 28;

/// How many places are added to a node that has none free: few, as most memory is in leaves.
const GROWTH: usize = 4;

#[derive(Clone)]
pub(super) struct Slots<T> {
    /// What the keys begin with alike, as bytes of namespace, zero and name.
    common: Box<[u8]>,
    /// For each item what follows in its key.
    heads: Vec<u64>,
    pub(super) items: Vec<T>,
}

/// Cuts a sequence into nodes that are filled alike.
pub(super) fn full<T: HasKey>(
    items: impl IntoIterator<Item = T>,
) -> impl Iterator<Item = Slots<T>> {
    let mut items = items.into_iter().peekable();
    std::iter::from_fn(move || {
        items.peek()?;
        let mut node = Vec::with_capacity(NODE_FULL);
        node.extend(items.by_ref().take(NODE_FULL));
        Some(Slots::of(node))
    })
}

impl<T: HasKey> Slots<T> {
    /// Items in order, at least one.
    pub(super) fn of(items: Vec<T>) -> Self {
        let mut slots = Self { common: Box::default(), heads: Vec::new(), items };
        slots.compare_anew();
        slots
    }

    /// Computes again what is kept of the keys.
    pub(super) fn compare_anew(&mut self) {
        self.items.shrink_to_fit();
        self.common = match &*self.items {
            // They are in order: what first and last have in common all have.
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

    /// Where a key is, or where it would stand. `asks` whether the key shares what the keys have in
    /// common, or takes it for granted.
    pub(super) fn place(&self, key: KeyRef<'_>, asks: bool) -> Result<usize, usize> {
        if asks {
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

    /// Puts an item where it belongs. There is room, and none with its key.
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
            self.compare_anew();
        }
    }

    pub(super) fn remove(&mut self, at: usize) -> T {
        self.heads.remove(at);
        self.items.remove(at)
    }

    /// Cuts the second half off.
    pub(super) fn split(&mut self) -> Self {
        let right = self.items.split_off(self.len() / 2);
        self.compare_anew();
        Self::of(right)
    }

    /// Takes in what comes behind it.
    pub(super) fn append(&mut self, right: Self) {
        self.items.extend(right.items);
        self.compare_anew();
    }
}
