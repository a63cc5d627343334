//! A position in a tree that keeps the tree alive.
use super::node::Node;
use super::{HasKey, KeyRef, Tree};
use std::sync::Arc;

/// Iterates over a tree in key order without borrowing it: for iterations that pause.
pub(crate) struct Cursor<E> {
    /// The nodes from the root to a leaf, each with the position of the next item. Empty at the
    /// end; otherwise the leaf has an item at its position.
    path: Vec<(Arc<Node<E>>, usize)>,
}

impl<E: HasKey> Cursor<E> {
    /// At the first entry.
    pub(crate) fn first(tree: &Tree<E>) -> Self {
        let mut cursor = Self { path: Vec::new() };
        cursor.path.extend(tree.root.clone().map(|root| (root, 0)));
        cursor.settle();
        cursor
    }

    /// At the first entry whose key is not less than `key`.
    pub(crate) fn from(tree: &Tree<E>, key: KeyRef<'_>) -> Self {
        let mut path = Vec::new();
        let mut next = tree.root.clone();
        while let Some(node) = next {
            let (at, child) = match &*node {
                Node::Branch(branch) => {
                    let at = branch.child_of(key, true);
                    (at + 1, Some(branch.children[at].node.clone()))
                }
                Node::Leaf(leaf) => (leaf.lower_bound(key), None),
            };
            path.push((node, at));
            next = child;
        }
        let mut cursor = Self { path };
        cursor.settle();
        cursor
    }

    /// The entry at the cursor; `None` at the end.
    pub(crate) fn peek(&self) -> Option<&E> {
        let (node, at) = self.path.last()?;
        match &**node {
            Node::Leaf(leaf) => leaf.items.get(*at),
            Node::Branch(_) => None,
        }
    }

    /// Moves to the next entry.
    pub(crate) fn advance(&mut self) {
        if let Some((_, at)) = self.path.last_mut() {
            *at += 1;
            self.settle();
        }
    }

    fn settle(&mut self) {
        while let Some((node, at)) = self.path.last_mut() {
            match &**node {
                Node::Leaf(leaf) if *at < leaf.len() => return,
                Node::Branch(branch) if *at < branch.len() => {
                    let child = branch.children[*at].node.clone();
                    *at += 1;
                    self.path.push((child, 0));
                }
                _ => drop(self.path.pop()),
            }
        }
    }
}
