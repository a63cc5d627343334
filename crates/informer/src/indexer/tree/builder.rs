//! Builds a tree from entries in order.
use super::node::{Child, Node};
use super::{Branch, HasKey, Leaf, NODE_FULL, Tree};
use crate::key::Key;

/// A tree under construction. Every call takes the same time, however large the tree is, so that a
/// large tree can be built in slices.
pub(crate) struct Builder<E> {
    /// Never empty after the first entry: a full leaf is closed by the entry after it.
    leaf: Vec<E>,
    /// The open branch of each level above the leaves.
    branches: Vec<Vec<Child<E>>>,
    len: usize,
}

impl<E> Default for Builder<E> {
    fn default() -> Self {
        Self { leaf: Vec::new(), branches: Vec::new(), len: 0 }
    }
}

impl<E: HasKey + Clone> Builder<E> {
    /// Whether a key is greater than that of the last entry, so that it can be appended.
    pub(crate) fn follows(&self, key: &Key) -> bool {
        self.leaf.last().is_none_or(|last| last.key() < key)
    }

    /// Appends an entry.
    ///
    /// # Errors
    /// If its key is not greater than the last one; returns the entry.
    pub(crate) fn push(&mut self, entry: E) -> Result<(), E> {
        if !self.follows(entry.key()) {
            return Err(entry);
        }
        if self.leaf.len() == NODE_FULL {
            let leaf = std::mem::replace(&mut self.leaf, Vec::with_capacity(NODE_FULL));
            self.add(0, Child::of(Node::Leaf(Leaf::of(leaf))));
        }
        self.leaf.push(entry);
        self.len += 1;
        Ok(())
    }

    /// The tree. Its nodes are full, except the last of each level.
    pub(crate) fn finish(mut self) -> Tree<E> {
        if !self.leaf.is_empty() {
            let leaf = std::mem::take(&mut self.leaf);
            self.add(0, Child::of(Node::Leaf(Leaf::of(leaf))));
        }
        let mut level = 0;
        while level < self.branches.len() {
            let mut children = std::mem::take(&mut self.branches[level]);
            if level + 1 == self.branches.len() && children.len() == 1 {
                return Tree { root: children.pop().map(|child| child.node), len: self.len };
            }
            self.add(level + 1, Child::of(Node::Branch(Branch::of(children))));
            level += 1;
        }
        Tree::default()
    }

    fn add(&mut self, level: usize, child: Child<E>) {
        if self.branches.len() == level {
            self.branches.push(Vec::with_capacity(NODE_FULL));
        }
        if self.branches[level].len() == NODE_FULL {
            let full = std::mem::replace(&mut self.branches[level], Vec::with_capacity(NODE_FULL));
            self.add(level + 1, Child::of(Node::Branch(Branch::of(full))));
        }
        self.branches[level].push(child);
    }
}
