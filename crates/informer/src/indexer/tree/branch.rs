//! The children of one branch, and the parts of their keys that searches compare.
use super::node::Child;
use super::{Head, KeyRef, NODE_MAX};
use crate::key::Key;
use std::cmp::Ordering;

pub(super) struct Branch<E> {
    /// The common prefix of the keys, as bytes of namespace, slash and name.
    common: Box<[u8]>,
    /// The bytes after the prefix in the key of each child.
    heads: Vec<Head>,
    pub(super) children: Vec<Child<E>>,
}

impl<E> Clone for Branch<E> {
    fn clone(&self) -> Self {
        let Self { common, heads, children } = self;
        Self { common: common.clone(), heads: heads.clone(), children: children.clone() }
    }
}

impl<E> Branch<E> {
    /// Children in order, at least one.
    pub(super) fn of(children: Vec<Child<E>>) -> Self {
        let mut branch = Self { common: Box::default(), heads: Vec::new(), children };
        branch.recompute();
        branch
    }

    /// Computes the prefix and the numbers again.
    fn recompute(&mut self) {
        self.common = match &*self.children {
            // They are sorted, so the prefix of the first and the last is that of all.
            [first, .., last] => {
                let first = KeyRef::from(&first.low);
                first.bytes().take(first.common((&last.low).into())).collect()
            }
            _ => Box::default(),
        };
        let skip = self.common.len();
        self.heads =
            self.children.iter().map(|child| KeyRef::from(&child.low).head(skip)).collect();
    }

    pub(super) fn len(&self) -> usize {
        self.children.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() >= NODE_MAX
    }

    pub(super) fn low(&self) -> &Key {
        &self.children[0].low
    }

    /// The position of the child that contains a key, or would contain it. `checks_prefix`: checks
    /// that the key has the prefix, instead of assuming it.
    pub(super) fn child_of(&self, key: KeyRef<'_>, checks_prefix: bool) -> usize {
        self.not_less(key, checks_prefix).saturating_sub(1)
    }

    /// How many children have a bound that is not greater than a key.
    fn not_less(&self, key: KeyRef<'_>, checks_prefix: bool) -> usize {
        if checks_prefix {
            let shared = key.bytes().take(self.common.len()).cmp(self.common.iter().copied());
            match shared {
                Ordering::Less => return 0,
                Ordering::Greater => return self.len(),
                Ordering::Equal => {}
            }
        }
        let head = key.head(self.common.len());
        let from = self.heads.partition_point(|other| *other < head);
        let n_equal = self.heads[from..].partition_point(|other| *other == head);
        let equal = &self.children[from..from + n_equal];
        from + equal.partition_point(|child| KeyRef::from(&child.low).compare(key).is_le())
    }

    /// Inserts a child in order. The branch is not full.
    pub(super) fn insert(&mut self, child: Child<E>) {
        let at = self.not_less((&child.low).into(), true);
        self.children.insert(at, child);
        self.recompute();
    }

    pub(super) fn remove(&mut self, at: usize) -> Child<E> {
        self.heads.remove(at);
        self.children.remove(at)
    }

    /// Lowers the bound of the first child to a key that is less than all others.
    pub(super) fn lower(&mut self, low: &Key) {
        self.children[0].low = low.clone();
        self.recompute();
    }

    /// Splits off the second half.
    pub(super) fn split(&mut self) -> Self {
        let right = self.children.split_off(self.len() / 2);
        self.recompute();
        Self::of(right)
    }

    /// Appends the children of the next branch.
    pub(super) fn append(&mut self, right: Self) {
        self.children.extend(right.children);
        self.recompute();
    }
}
