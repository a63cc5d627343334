//! Iterates over a tree in order.
use super::node::{Child, Node};
use super::{HasKey, KeyRef};
use std::slice;

/// Entries in order.
pub(crate) struct Iter<'a, E> {
    /// The remaining children of the branches above the leaf.
    above: Vec<slice::Iter<'a, Child<E>>>,
    leaf: slice::Iter<'a, E>,
    /// An upper bound of the remaining entries.
    len_max: usize,
}

impl<'a, E: HasKey> Iter<'a, E> {
    pub(super) fn all(root: Option<&'a Node<E>>, len: usize) -> Self {
        let mut iter = Self { above: Vec::new(), leaf: [].iter(), len_max: len };
        if let Some(root) = root {
            iter.descend(root);
        }
        iter
    }

    /// From the first entry whose key is not less than `key`.
    pub(super) fn from(root: Option<&'a Node<E>>, key: KeyRef<'_>) -> Self {
        let mut iter = Self { above: Vec::new(), leaf: [].iter(), len_max: usize::MAX };
        let Some(mut node) = root else { return iter };
        loop {
            match node {
                Node::Branch(branch) => {
                    let at = branch.child_of(key, true);
                    iter.above.push(branch.children[at + 1..].iter());
                    node = &branch.children[at].node;
                }
                Node::Leaf(leaf) => {
                    iter.leaf = leaf.items[leaf.lower_bound(key)..].iter();
                    return iter;
                }
            }
        }
    }

    fn descend(&mut self, mut node: &'a Node<E>) {
        loop {
            match node {
                Node::Leaf(leaf) => {
                    self.leaf = leaf.items.iter();
                    return;
                }
                Node::Branch(branch) => {
                    let mut children = branch.children.iter();
                    // A branch has children.
                    let Some(first) = children.next() else { return };
                    self.above.push(children);
                    node = &first.node;
                }
            }
        }
    }
}

impl<'a, E: HasKey> Iterator for Iter<'a, E> {
    type Item = &'a E;

    fn next(&mut self) -> Option<&'a E> {
        loop {
            if let Some(entry) = self.leaf.next() {
                self.len_max = self.len_max.saturating_sub(1);
                return Some(entry);
            }
            match self.above.last_mut()?.next() {
                Some(child) => self.descend(&child.node),
                None => drop(self.above.pop()),
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let max = Some(self.len_max).filter(|max| *max < usize::MAX);
        (self.leaf.len(), max)
    }
}
