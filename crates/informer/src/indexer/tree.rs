//! A persistent ordered map of entries that contain their keys.
//!
//! # Theory
//!
//! A B+ tree whose copies share nodes: a clone increments one reference count, and a write copies
//! the nodes on its path only if a clone still holds them. An entry contains its key ([`HasKey`]).
//!
//! Comparing two keys reads text at two places in memory, and in a large cache each read misses the
//! processor's caches. So a node stores the common prefix of its keys, and for each key the eight
//! bytes after the prefix as a number. A search compares these numbers, which lie side by side, and
//! reads a key only if its number is equal. A search first assumes that its key has the prefix of
//! each node. It compares the whole key in the end, so a hit is correct; after a miss it searches
//! again and checks the prefix at each node.
//!
//! Keys are ordered by namespace and name, as the bytes of `namespace`, a zero byte and `name`.

mod builder;
mod cursor;
mod iter;
mod node;
mod slots;
mod teardown;

pub(crate) use builder::Builder;
pub(crate) use cursor::Cursor;
pub(crate) use iter::Iter;
pub(crate) use teardown::Teardown;

use crate::key::Key;
use node::{Added, Child, Node};
use slots::{NODE_MAX, Slots};
use std::cmp::Ordering;
use std::sync::Arc;

/// An entry of a tree. Its key never changes.
pub(crate) trait HasKey {
    fn key(&self) -> &Key;
}

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
        self.namespace.bytes().chain([0]).chain(self.name.bytes())
    }

    /// The order of the tree. Namespaces and names of a cluster contain no zero bytes; the last
    /// comparison distinguishes keys that do.
    fn compare(self, other: KeyRef<'_>) -> Ordering {
        if self.namespace == other.namespace {
            return self.name.cmp(other.name);
        }
        self.bytes().cmp(other.bytes()).then_with(|| self.namespace.cmp(other.namespace))
    }

    /// The eight bytes after the first `skip`, as a number of the same order.
    fn head(self, skip: usize) -> u64 {
        let mut head = [0; 8];
        let namespace = self.namespace.as_bytes();
        match skip.checked_sub(namespace.len() + 1) {
            Some(skip) => {
                let rest = self.name.as_bytes().get(skip..).unwrap_or_default();
                let n = rest.len().min(8);
                head[..n].copy_from_slice(&rest[..n]);
            }
            None => head.iter_mut().zip(self.bytes().skip(skip)).for_each(|(to, from)| *to = from),
        }
        u64::from_be_bytes(head)
    }

    /// The length of the common prefix of two keys, bytes.
    fn common(self, other: KeyRef<'_>) -> usize {
        self.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count()
    }
}

/// The order of the tree.
pub(crate) fn compare(a: &Key, b: &Key) -> Ordering {
    if Arc::ptr_eq(&a.namespace, &b.namespace) {
        return a.name.cmp(&b.name);
    }
    KeyRef::from(a).compare(b.into())
}

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
        let root = self.root.as_ref()?;
        root.find(key, false).or_else(|| root.find(key, true))
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
            self.root = Some(Arc::new(Node::Leaf(Slots::of(vec![entry]))));
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
            self.root = Some(Arc::new(Node::Branch(Slots::of(vec![left, right]))));
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
