//! A node of a tree.
use super::{DEPTH_MAX, HasKey, KeyRef, NODE_MAX, Path, Slots};
use crate::key::Key;
use std::sync::Arc;

/// A node with fewer entries is merged with a neighbor, if both fit into one.
const NODE_MIN: usize = NODE_MAX / 4;

pub(super) enum Node<E> {
    Leaf(Slots<E>),
    Branch(Slots<Child<E>>),
}

impl<E: Clone> Clone for Node<E> {
    fn clone(&self) -> Self {
        match self {
            Self::Leaf(slots) => Self::Leaf(slots.clone()),
            Self::Branch(slots) => Self::Branch(slots.clone()),
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

impl<E> HasKey for Child<E> {
    fn key(&self) -> &Key {
        &self.low
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

/// The position of the child that contains a key, or would contain it.
pub(super) fn child_of<E>(branch: &Slots<Child<E>>, key: KeyRef<'_>, checks_prefix: bool) -> usize {
    match branch.place(key, checks_prefix) {
        Ok(at) => at,
        Err(at) => at.saturating_sub(1),
    }
}

impl<E: HasKey> Node<E> {
    pub(super) fn low(&self) -> &Key {
        match self {
            Self::Leaf(slots) => slots.low(),
            Self::Branch(slots) => slots.low(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Leaf(slots) => slots.len(),
            Self::Branch(slots) => slots.len(),
        }
    }

    pub(super) fn only_child(&self) -> Option<Arc<Self>> {
        match self {
            Self::Branch(slots) if slots.len() == 1 => Some(slots.items[0].node.clone()),
            _ => None,
        }
    }

    pub(super) fn find(&self, key: KeyRef<'_>, checks_prefix: bool) -> Option<&E> {
        let mut node = self;
        loop {
            match node {
                Self::Branch(branch) => {
                    node = &branch.items[child_of(branch, key, checks_prefix)].node
                }
                Self::Leaf(leaf) => {
                    return leaf.place(key, checks_prefix).ok().map(|at| &leaf.items[at]);
                }
            }
        }
    }

    /// The path to an existing entry.
    pub(super) fn path(&self, key: KeyRef<'_>) -> Option<Path> {
        self.path_by(key, false).or_else(|| self.path_by(key, true))
    }

    fn path_by(&self, key: KeyRef<'_>, checks_prefix: bool) -> Option<Path> {
        let mut path = Path { places: [0; DEPTH_MAX], depth: 0 };
        let mut node = self;
        loop {
            let (at, next) = match node {
                Self::Branch(branch) => {
                    let at = child_of(branch, key, checks_prefix);
                    (at, Some(&branch.items[at].node))
                }
                Self::Leaf(leaf) => (leaf.place(key, checks_prefix).ok()?, None),
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
                Self::Branch(branch) => node = &mut branch.items[at].node,
                Self::Leaf(leaf) => return &mut leaf.items[at],
            }
        }
    }

    /// Adds an entry with a new key.
    pub(super) fn add(self: &mut Arc<Self>, entry: E) -> Added<E> {
        match Arc::make_mut(self) {
            Self::Leaf(leaf) => {
                if leaf.len() < NODE_MAX {
                    leaf.insert(entry);
                    return Added::Here;
                }
                let mut right = leaf.split();
                let is_right = KeyRef::from(right.low()).compare(entry.key().into()).is_lt();
                if is_right {
                    right.insert(entry)
                } else {
                    leaf.insert(entry)
                }
                Added::Split(Child::of(Self::Leaf(right)))
            }
            Self::Branch(branch) => {
                let at = match branch.place(entry.key().into(), true) {
                    Ok(at) => at,
                    Err(0) => {
                        branch.lower(entry.key());
                        0
                    }
                    Err(at) => at - 1,
                };
                let Added::Split(child) = Self::add(&mut branch.items[at].node, entry) else {
                    return Added::Here;
                };
                if branch.len() < NODE_MAX {
                    branch.insert(child);
                    return Added::Here;
                }
                let mut right = branch.split();
                let is_right = KeyRef::from(right.low()).compare(child.key().into()).is_lt();
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
                let removed = Self::remove(&mut branch.items[at].node, rest);
                match branch.items[at].node.len() {
                    0 => drop(branch.remove(at)),
                    1..NODE_MIN => join(branch, at),
                    _ => {}
                }
                removed
            }
        }
    }
}

impl<E> Slots<Child<E>> {
    /// Lowers the bound of the first child, for a key less than all others.
    fn lower(&mut self, low: &Key) {
        self.items[0].low = low.clone();
        self.recompute();
    }
}

/// Merges a small child with a neighbor, if both fit into one node.
fn join<E: HasKey + Clone>(branch: &mut Slots<Child<E>>, at: usize) {
    let at = if at + 1 < branch.len() { at } else { at.saturating_sub(1) };
    if at + 1 >= branch.len()
        || branch.items[at].node.len() + branch.items[at + 1].node.len() > NODE_MAX
    {
        return;
    }
    let right = branch.remove(at + 1).node;
    match (Arc::make_mut(&mut branch.items[at].node), Arc::unwrap_or_clone(right)) {
        (Node::Leaf(left), Node::Leaf(right)) => left.append(right),
        (Node::Branch(left), Node::Branch(right)) => left.append(right),
        // All leaves are on one level.
        _ => debug_assert!(false, "neighbors of different kinds"),
    }
}
