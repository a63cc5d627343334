//! The entries of one leaf, and the marks by which a search for one key finds it.
use super::{HasKey, KeyRef, NODE_MAX};

/// How many places a full leaf grows by: few, since most memory is in leaves.
const GROWTH: usize = 4;

#[derive(Clone)]
pub(super) struct Leaf<E> {
    /// The mark of the key of each item. In the node, so that a search has one address less to
    /// wait for.
    marks: [u32; NODE_MAX],
    /// In order.
    pub(super) items: Vec<E>,
}

impl<E: HasKey> Leaf<E> {
    /// Items in order, at least one.
    pub(super) fn of(items: Vec<E>) -> Self {
        let mut leaf = Self { marks: [0; NODE_MAX], items };
        leaf.fit();
        leaf
    }

    /// Computes the marks again, and keeps no more memory than the items need.
    fn fit(&mut self) {
        self.items.shrink_to_fit();
        for (mark, item) in self.marks.iter_mut().zip(&self.items) {
            *mark = KeyRef::from(item.key()).mark();
        }
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// The position of a key with this mark. Reads the text of keys with the same mark only.
    pub(super) fn find(&self, key: KeyRef<'_>, mark: u32) -> Option<usize> {
        let marks = self.marks[..self.len()].iter();
        let marked = marks.enumerate().filter(|(_, other)| **other == mark);
        marked.map(|(at, _)| at).find(|at| KeyRef::from(self.items[*at].key()).equals(key))
    }

    /// The position of the first key that is not less.
    pub(super) fn lower_bound(&self, key: KeyRef<'_>) -> usize {
        self.items.partition_point(|item| KeyRef::from(item.key()).compare(key).is_lt())
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() >= NODE_MAX
    }

    /// Inserts an item in order. The leaf is not full and has no item with this key.
    pub(super) fn insert(&mut self, item: E) {
        let key = KeyRef::from(item.key());
        let (at, mark) = (self.lower_bound(key), key.mark());
        if self.items.len() == self.items.capacity() {
            self.items.reserve_exact(GROWTH);
        }
        let len = self.len();
        self.marks.copy_within(at..len, at + 1);
        self.marks[at] = mark;
        self.items.insert(at, item);
    }

    pub(super) fn remove(&mut self, at: usize) -> E {
        let len = self.len();
        self.marks.copy_within(at + 1..len, at);
        self.items.remove(at)
    }

    /// Splits off the second half.
    pub(super) fn split(&mut self) -> Self {
        let right = self.items.split_off(self.len() / 2);
        self.fit();
        Self::of(right)
    }

    /// Appends the items of the next leaf.
    pub(super) fn append(&mut self, right: Self) {
        self.items.extend(right.items);
        self.fit();
    }
}
