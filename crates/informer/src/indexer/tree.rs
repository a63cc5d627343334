//! A persistent ordered map of things that have a key.
//!
//! # Theory
//!
//! A B+ tree whose nodes are shared between the copies of a tree: a clone is one reference count,
//! and a write copies the nodes on its path only when a clone still holds them. An entry is not
//! stored with its key but has it ([`HasKey`]).
//!
//! A comparison of two keys reads text that lies anywhere in memory, and in a large cache each of
//! them waits for it. So a node knows what the keys of its entries have in common, and keeps for
//! each the eight bytes that follow as a number: a search reads those, which lie side by side, and
//! looks at a key only where two of them are equal. A search first takes for granted that its key
//! shares what a node's keys have in common. What it finds that way is what it looked for, as it
//! compares the key in the end; when it finds nothing it goes down again and asks at each node.
//!
//! Keys are ordered by namespace and name, as `namespace`, a zero byte, and `name` compare byte by
//! byte.

mod iter;
mod node;
mod slots;

pub(crate) use iter::Iter;

use crate::key::Key;
use node::{Added, Child, Node};
use slots::{NODE_MAX, Slots};
use std::cmp::Ordering;
use std::sync::Arc;

/// Something that has a key and keeps it as long as it is in a tree.
pub(crate) trait HasKey {
    fn key(&self) -> &Key;
}

/// A key that is looked for.
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

    /// The order of the tree. Namespaces and names hold no zero bytes in a cluster; those that do
    /// are told apart here.
    fn compare(self, other: KeyRef<'_>) -> Ordering {
        if self.namespace == other.namespace {
            return self.name.cmp(other.name);
        }
        self.bytes().cmp(other.bytes()).then_with(|| self.namespace.cmp(other.namespace))
    }

    /// The eight bytes behind the first `skip`, as a number that compares as they do.
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

    /// How many bytes two keys begin with alike.
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

/// How many levels a tree can have: each but the highest multiplies by sixteen at least when it is
/// split.
const DEPTH_MAX: usize = 16;

/// The way to an entry: the place in each node, from the root on.
struct Path {
    places: [u8; DEPTH_MAX],
    depth: usize,
}

/// See the module.
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

    /// A tree of entries that come in the order of their keys, none twice; its nodes are full.
    pub(crate) fn from_sorted(entries: impl IntoIterator<Item = E>) -> Self {
        let mut len = 0;
        let entries = entries.into_iter().inspect(|_| len += 1);
        let mut level: Vec<Child<E>> =
            slots::full(entries).map(|slots| Child::of(Node::Leaf(slots))).collect();
        while level.len() > 1 {
            level = slots::full(level).map(|slots| Child::of(Node::Branch(slots))).collect();
        }
        Self { root: level.pop().map(|child| child.node), len }
    }

    pub(crate) fn get(&self, key: KeyRef<'_>) -> Option<&E> {
        let root = self.root.as_ref()?;
        root.find(key, false).or_else(|| root.find(key, true))
    }

    /// Puts an entry in, and gives the one that it replaces.
    pub(crate) fn insert(&mut self, entry: E) -> Option<E> {
        let key = KeyRef::from(entry.key());
        let Some(root) = &mut self.root else {
            self.root = Some(Arc::new(Node::Leaf(Slots::of(vec![entry]))));
            self.len = 1;
            return None;
        };
        if let Some(path) = root.path(key) {
            return Some(Node::replace(root, &path.places[..path.depth], entry));
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

    /// Every entry in order.
    pub(crate) fn iter(&self) -> Iter<'_, E> {
        Iter::all(self.root.as_deref(), self.len)
    }

    /// The entries whose keys are not below this one, in order.
    pub(crate) fn from(&self, key: KeyRef<'_>) -> Iter<'_, E> {
        Iter::from(self.root.as_deref(), key)
    }
}

#[cfg(test)]
mod tests;
