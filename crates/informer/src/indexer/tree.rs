//! A persistent ordered map of entries that contain their keys.
//!
//! # Theory
//!
//! A B+ tree whose copies share nodes: a clone increments one reference count, and a write copies
//! the nodes on its path only if a clone still holds them. An entry contains its key ([`HasKey`]).
//!
//! Comparing two keys reads text at two places in memory, and in a large cache each read misses
//! the processor's caches. So a branch stores the common prefix of its keys, and for each key the
//! 32 bytes after the prefix as numbers; a leaf stores a hash of each key, its mark. A search for
//! one key compares these numbers, which lie side by side, and reads a key of a leaf only if its
//! mark is equal. It first assumes that its key has the prefix of each branch. It compares the
//! whole key in the end, so a hit is correct; after a miss it searches again and checks the prefix
//! at each branch. Only a search for a position between two keys, to insert or to iterate,
//! compares the text of keys in a leaf, five of 32. Keys that somebody has chosen to have one mark
//! cost the comparison of a leaf's keys, and no more.
//!
//! The order is that of keys, as the bytes of namespace, slash and name. Lists of servers have it,
//! so a tree can be built from them in one pass.

mod branch;
mod builder;
mod cursor;
mod iter;
mod leaf;
mod node;

pub(crate) use builder::Builder;
pub(crate) use cursor::Cursor;
pub(crate) use iter::Iter;
pub(crate) use node::Teardown;

use crate::key::{self, Key, SEPARATOR};
use branch::Branch;
use leaf::Leaf;
use node::{Added, Child, Node};
use std::cmp::Ordering;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

/// An entry of a tree. Its key never changes.
pub(crate) trait HasKey {
    fn key(&self) -> &Key;
}

/// The 32 bytes of a key after a prefix, zeros if it ends sooner, in the order of the keys.
type Head = [u128; 2];

/// A borrowed key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyRef<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

impl<'a> From<&'a Key> for KeyRef<'a> {
    fn from(key: &'a Key) -> Self {
        Self { namespace: &key.namespace, name: &key.name }
    }
}

impl KeyRef<'_> {
    fn bytes(&self) -> impl Iterator<Item = u8> {
        key::text(self.namespace, self.name)
    }

    /// The order of the tree.
    fn compare(self, other: KeyRef<'_>) -> Ordering {
        key::compare((self.namespace, self.name), (other.namespace, other.name))
    }

    fn equals(self, other: KeyRef<'_>) -> bool {
        self.name == other.name && self.is_beside(other)
    }

    /// Whether the namespaces are the same. Most keys share the text of theirs, which is not read
    /// then.
    fn is_beside(self, other: KeyRef<'_>) -> bool {
        std::ptr::eq(self.namespace, other.namespace) || self.namespace == other.namespace
    }

    /// A hash of the key. The same in every process, since nothing depends on it but the number of
    /// keys that a search reads.
    fn mark(self) -> u32 {
        let mut hasher = foldhash::fast::FixedState::default().build_hasher();
        hasher.write(self.namespace.as_bytes());
        hasher.write(self.name.as_bytes());
        // The lower half, which is as good as the other.
        hasher.finish() as u32
    }

    /// The bytes after the first `skip`, as numbers of the same order.
    fn head(self, skip: usize) -> Head {
        let mut head = [0; 32];
        let (namespace, name) = (self.namespace.as_bytes(), self.name.as_bytes());
        let before = namespace.get(skip..).unwrap_or_default();
        let n = before.len().min(32);
        head[..n].copy_from_slice(&before[..n]);
        let from = if skip <= namespace.len() { n + 1 } else { 0 };
        if let Some(separator) = from.checked_sub(1).and_then(|at| head.get_mut(at)) {
            *separator = SEPARATOR;
        }
        let rest = name.get(skip.saturating_sub(namespace.len() + 1)..).unwrap_or_default();
        if let Some(to) = head.get_mut(from..) {
            let n = rest.len().min(to.len());
            to[..n].copy_from_slice(&rest[..n]);
        }
        let (halves, _) = head.as_chunks::<16>();
        [u128::from_be_bytes(halves[0]), u128::from_be_bytes(halves[1])]
    }

    /// The length of the common prefix of two keys, bytes.
    fn common(self, other: KeyRef<'_>) -> usize {
        self.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count()
    }
}

/// The largest number of entries of a node: 32, so that the marks of their keys fill two cache
/// lines.
const NODE_MAX: usize = 32;

/// Entries of a node of a tree that is built at once: a few fewer, so that the first insertions do
/// not split it.
const NODE_FULL: usize = 28;

/// The largest number of levels of a tree: a split leaves at least sixteen entries in a node.
const DEPTH_MAX: usize = 16;

/// The path to an entry: its position in each node, from the root.
struct Path {
    places: [u8; DEPTH_MAX],
    depth: usize,
}

/// A persistent ordered map. See the module.
pub(crate) struct Tree<E> {
    root: Option<Arc<Node<E>>>,
    len: usize,
}

impl<E> Clone for Tree<E> {
    fn clone(&self) -> Self {
        Self { root: self.root.clone(), len: self.len }
    }
}

impl<E> Default for Tree<E> {
    fn default() -> Self {
        Self { root: None, len: 0 }
    }
}

impl<E: HasKey + Clone> Tree<E> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn get(&self, key: KeyRef<'_>) -> Option<&E> {
        self.root.as_ref()?.find(key)
    }

    /// One entry to change. Its key must stay.
    pub(crate) fn get_mut(&mut self, key: KeyRef<'_>) -> Option<&mut E> {
        let root = self.root.as_mut()?;
        let path = root.path(key)?;
        Some(Node::entry_mut(root, &path.places[..path.depth]))
    }

    /// Inserts an entry and returns the one that it replaces.
    pub(crate) fn insert(&mut self, entry: E) -> Option<E> {
        let key = KeyRef::from(entry.key());
        let Some(root) = &mut self.root else {
            self.root = Some(Arc::new(Node::Leaf(Leaf::of(vec![entry]))));
            self.len = 1;
            return None;
        };
        if let Some(path) = root.path(key) {
            let held = Node::entry_mut(root, &path.places[..path.depth]);
            return Some(std::mem::replace(held, entry));
        }
        self.len += 1;
        if let Added::Split(right) = Node::add(root, entry) {
            let left = Child { low: root.low().clone(), node: root.clone() };
            self.root = Some(Arc::new(Node::Branch(Branch::of(vec![left, right]))));
        }
        None
    }

    pub(crate) fn remove(&mut self, key: KeyRef<'_>) -> Option<E> {
        let root = self.root.as_mut()?;
        let path = root.path(key)?;
        let removed = Node::remove(root, &path.places[..path.depth]);
        self.len -= 1;
        while let Some(only) = self.root.as_ref().and_then(|root| root.only_child()) {
            self.root = Some(only);
        }
        if self.len == 0 {
            self.root = None;
        }
        Some(removed)
    }

    /// All entries in order.
    pub(crate) fn iter(&self) -> Iter<'_, E> {
        Iter::all(self.root.as_deref(), self.len)
    }

    /// The entries whose keys are not less than `key`, in order.
    pub(crate) fn from(&self, key: KeyRef<'_>) -> Iter<'_, E> {
        Iter::from(self.root.as_deref(), key)
    }
}

#[cfg(test)]
mod tests;
