//! A node of a tree, and how trees are freed node by node.
use super::{Branch, DEPTH_MAX, HasKey, KeyRef, Leaf, NODE_MAX, Path, Tree};
use crate::key::Key;
use std::sync::Arc;

/// A node with fewer entries is merged with a neighbor, if both fit into one.
const NODE_MIN: usize = NODE_MAX / 4;

pub(super) enum Node<E> {
    Leaf(Leaf<E>),
    Branch(Branch<E>),
}

impl<E: Clone> Clone for Node<E> {
    fn clone(&self) -> Self {
        match self {
            Self::Leaf(leaf) => Self::Leaf(leaf.clone()),
            Self::Branch(branch) => Self::Branch(branch.clone()),
        }
    }
}

/// A child of a branch.
pub(super) struct Child<E> {
    /// Not greater than any key in the node.
    pub(super) low: Key,
    pub(super) node: Arc<Node<E>>,
}

impl<E> Clone for Child<E> {
    fn clone(&self) -> Self {
        Self { low: self.low.clone(), node: self.node.clone() }
    }
}

impl<E: HasKey> Child<E> {
    pub(super) fn of(node: Node<E>) -> Self {
        Self { low: node.low().clone(), node: Arc::new(node) }
    }
}

/// The outcome of an insertion.
pub(super) enum Added<E> {
    Here,
    /// The node was full and has been split: its second half.
    Split(Child<E>),
}

impl<E: HasKey> Node<E> {
    pub(super) fn low(&self) -> &Key {
        match self {
            Self::Leaf(leaf) => leaf.items[0].key(),
            Self::Branch(branch) => branch.low(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Leaf(leaf) => leaf.len(),
            Self::Branch(branch) => branch.len(),
        }
    }

    pub(super) fn only_child(&self) -> Option<Arc<Self>> {
        match self {
            Self::Branch(branch) if branch.len() == 1 => Some(branch.children[0].node.clone()),
            _ => None,
        }
    }

    /// An existing entry.
    pub(super) fn find(&self, key: KeyRef<'_>) -> Option<&E> {
        let mark = key.mark();
        self.find_by(key, mark, false).or_else(|| self.find_by(key, mark, true))
    }

    fn find_by(&self, key: KeyRef<'_>, mark: u32, checks_prefix: bool) -> Option<&E> {
        let mut node = self;
        loop {
            match node {
                Self::Branch(branch) => {
                    node = &branch.children[branch.child_of(key, checks_prefix)].node
                }
                Self::Leaf(leaf) => return leaf.find(key, mark).map(|at| &leaf.items[at]),
            }
        }
    }

    /// The path to an existing entry.
    pub(super) fn path(&self, key: KeyRef<'_>) -> Option<Path> {
        let mark = key.mark();
        self.path_by(key, mark, false).or_else(|| self.path_by(key, mark, true))
    }

    fn path_by(&self, key: KeyRef<'_>, mark: u32, checks_prefix: bool) -> Option<Path> {
        let mut path = Path { places: [0; DEPTH_MAX], depth: 0 };
        let mut node = self;
        loop {
            let (at, next) = match node {
                Self::Branch(branch) => {
                    let at = branch.child_of(key, checks_prefix);
                    (at, Some(&branch.children[at].node))
                }
                Self::Leaf(leaf) => (leaf.find(key, mark)?, None),
            };
            // A node has fewer than 256 places.
            path.places[path.depth] = at as u8;
            path.depth += 1;
            match next {
                Some(next) => node = next,
                None => return Some(path),
            }
        }
    }
}

impl<E: HasKey + Clone> Node<E> {
    /// The entry at a path.
    pub(super) fn entry_mut<'a>(self: &'a mut Arc<Self>, path: &[u8]) -> &'a mut E {
        let mut node = self;
        let mut path = path.iter().map(|at| usize::from(*at));
        loop {
            let at = path.next().unwrap_or_default();
            match Arc::make_mut(node) {
                Self::Branch(branch) => node = &mut branch.children[at].node,
                Self::Leaf(leaf) => return &mut leaf.items[at],
            }
        }
    }

    /// Adds an entry with a new key.
    pub(super) fn add(self: &mut Arc<Self>, entry: E) -> Added<E> {
        match Arc::make_mut(self) {
            Self::Leaf(leaf) => {
                if !leaf.is_full() {
                    leaf.insert(entry);
                    return Added::Here;
                }
                let mut right = leaf.split();
                let is_right =
                    KeyRef::from(right.items[0].key()).compare(entry.key().into()).is_lt();
                if is_right {
                    right.insert(entry)
                } else {
                    leaf.insert(entry)
                }
                Added::Split(Child::of(Self::Leaf(right)))
            }
            Self::Branch(branch) => {
                let key = KeyRef::from(entry.key());
                if KeyRef::from(branch.low()).compare(key).is_gt() {
                    branch.lower(entry.key());
                }
                let at = branch.child_of(key, true);
                let Added::Split(child) = Self::add(&mut branch.children[at].node, entry) else {
                    return Added::Here;
                };
                if !branch.is_full() {
                    branch.insert(child);
                    return Added::Here;
                }
                let mut right = branch.split();
                let is_right = KeyRef::from(right.low()).compare((&child.low).into()).is_lt();
                if is_right {
                    right.insert(child)
                } else {
                    branch.insert(child)
                }
                Added::Split(Child::of(Self::Branch(right)))
            }
        }
    }

    pub(super) fn remove(self: &mut Arc<Self>, path: &[u8]) -> E {
        let (at, rest) = match path.split_first() {
            Some((at, rest)) => (usize::from(*at), rest),
            None => (0, path),
        };
        match Arc::make_mut(self) {
            Self::Leaf(leaf) => leaf.remove(at),
            Self::Branch(branch) => {
                let removed = Self::remove(&mut branch.children[at].node, rest);
                match branch.children[at].node.len() {
                    0 => drop(branch.remove(at)),
                    1..NODE_MIN => join(branch, at),
                    _ => {}
                }
                removed
            }
        }
    }
}

/// Merges a small child with a neighbor, if both fit into one node.
fn join<E: HasKey + Clone>(branch: &mut Branch<E>, at: usize) {
    let at = if at + 1 < branch.len() { at } else { at.saturating_sub(1) };
    if at + 1 >= branch.len()
        || branch.children[at].node.len() + branch.children[at + 1].node.len() > NODE_MAX
    {
        return;
    }
    let right = branch.remove(at + 1).node;
    match (Arc::make_mut(&mut branch.children[at].node), Arc::unwrap_or_clone(right)) {
        (Node::Leaf(left), Node::Leaf(right)) => left.append(right),
        (Node::Branch(left), Node::Branch(right)) => left.append(right),
        // All leaves are on one level.
        _ => debug_assert!(false, "neighbors of different kinds"),
    }
}

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
