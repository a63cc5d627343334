//! Frees trees in steps.
use super::Tree;
use super::node::Node;
use std::sync::Arc;

/// Trees that are no longer needed. Dropping a large tree frees all its entries at once; this frees
/// one node at a time. Nodes that other copies of the tree share stay.
pub(crate) struct Teardown<E>(Vec<Arc<Node<E>>>);

impl<E> Default for Teardown<E> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<E> Teardown<E> {
    /// Adds a tree.
    pub(crate) fn add(&mut self, tree: Tree<E>) {
        self.0.extend(tree.root);
    }

    /// Frees one node and returns its entries, at most as many as a node holds. `None` when nothing
    /// is left.
    pub(crate) fn step(&mut self) -> Option<Vec<E>> {
        match Arc::into_inner(self.0.pop()?) {
            Some(Node::Leaf(leaf)) => Some(leaf.items),
            Some(Node::Branch(branch)) => {
                self.0.extend(branch.children.into_iter().map(|child| child.node));
                Some(Vec::new())
            }
            None => Some(Vec::new()),
        }
    }
}
