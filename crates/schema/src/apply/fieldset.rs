//! A set of paths as a trie.
//!
//! One sorted vector per level; what is under a path is one child set. Names and keys borrow from
//! the trees they were read from, so that building a set allocates little more than its vectors. No
//! node is without meaning: each is a member or has children.

use super::path::{Path, PathElement};
use std::cmp::Ordering;
use std::ops::ControlFlow;

/// A set of paths. Members and prefixes differ: `.spec` may be in the set, something below it, or
/// both.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSet<'a> {
    nodes: Vec<Node<'a>>,
}

/// One step in a set: whether the path that ends here is a member, and what lies below.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node<'a> {
    /// The step.
    pub element: PathElement<'a>,
    /// The path that ends here is in the set.
    pub member: bool,
    /// The part of the set below it.
    pub children: FieldSet<'a>,
}

impl<'a> Node<'a> {
    /// A path that ends here, with nothing below.
    pub fn leaf(element: PathElement<'a>) -> Self {
        Self { element, member: true, children: FieldSet::default() }
    }

    fn means_something(&self) -> bool {
        self.member || !self.children.is_empty()
    }
}

impl<'a> FieldSet<'a> {
    /// The empty set.
    pub const fn new() -> Self {
        Self { nodes: Vec::new() }
    }

    /// A set of these nodes, in any order; nodes of one element are united.
    pub fn from_nodes(mut nodes: Vec<Node<'a>>) -> Self {
        nodes.retain(Node::means_something);
        let ordered = nodes.windows(2).all(|pair| pair[0].element < pair[1].element);
        if ordered {
            return Self { nodes };
        }
        nodes.sort_by(|a, b| a.element.cmp(&b.element));
        let mut united = Vec::with_capacity(nodes.len());
        let mut nodes = nodes.into_iter().peekable();
        while let Some(mut node) = nodes.next() {
            // All children at once: uniting them one by one would take the square.
            let mut below = Vec::new();
            while let Some(twin) = nodes.next_if(|next| next.element == node.element) {
                node.member |= twin.member;
                below.extend(twin.children.nodes);
            }
            if !below.is_empty() {
                below.append(&mut node.children.nodes);
                node.children = Self::from_nodes(below);
            }
            united.push(node);
        }
        Self { nodes: united }
    }

    /// A set of these elements of a list, in any order. One that occurs several times is one atomic
    /// value: nothing below it is in the set.
    pub(super) fn from_elements(mut nodes: Vec<Node<'a>>) -> Self {
        let ordered = nodes.windows(2).all(|pair| pair[0].element < pair[1].element);
        if !ordered {
            nodes.sort_by(|a, b| a.element.cmp(&b.element));
            nodes.dedup_by(|later, earlier| {
                let same = later.element == earlier.element;
                if same {
                    earlier.children = Self::new();
                }
                same
            });
        }
        Self::from_nodes(nodes)
    }

    /// The paths of all these sets, in `n log n` of their nodes.
    pub fn union_of(sets: impl IntoIterator<Item = Self>) -> Self {
        Self::from_nodes(sets.into_iter().flat_map(|set| set.nodes).collect())
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// How many paths are in it.
    pub fn len(&self) -> usize {
        self.nodes.iter().map(|node| usize::from(node.member) + node.children.len()).sum()
    }

    /// The nodes of the first level, sorted.
    pub fn nodes(&self) -> &[Node<'a>] {
        &self.nodes
    }

    /// The node of an element.
    pub fn get(&self, element: &PathElement<'_>) -> Option<&Node<'a>> {
        let at = self.nodes.binary_search_by(|node| node.element.cmp(element)).ok()?;
        self.nodes.get(at)
    }

    /// The node of a field.
    pub fn field(&self, name: &str) -> Option<&Node<'a>> {
        self.get(&PathElement::field(name))
    }

    /// Whether a path is a member.
    pub fn has(&self, path: &[PathElement<'_>]) -> bool {
        match path {
            [] => false,
            [last] => self.get(last).is_some_and(|node| node.member),
            [first, rest @ ..] => self.get(first).is_some_and(|node| node.children.has(rest)),
        }
    }

    /// Adds a path.
    pub fn insert(&mut self, path: &[PathElement<'a>]) {
        let [first, rest @ ..] = path else { return };
        let at = match self.nodes.binary_search_by(|node| node.element.cmp(first)) {
            Ok(at) => at,
            Err(at) => {
                let children = Self::new();
                self.nodes.insert(at, Node { element: first.clone(), member: false, children });
                at
            }
        };
        let node = &mut self.nodes[at];
        if rest.is_empty() {
            node.member = true;
        } else {
            node.children.insert(rest);
        }
    }

    /// Both sets' paths.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        if self.is_empty() {
            return other;
        }
        if other.is_empty() {
            return self;
        }
        let mut nodes = Vec::with_capacity(self.nodes.len().max(other.nodes.len()));
        let (mut mine, mut theirs) =
            (self.nodes.into_iter().peekable(), other.nodes.into_iter().peekable());
        loop {
            let order = match (mine.peek(), theirs.peek()) {
                (Some(a), Some(b)) => a.element.cmp(&b.element),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return Self { nodes },
            };
            match order {
                Ordering::Less => nodes.extend(mine.next()),
                Ordering::Greater => nodes.extend(theirs.next()),
                Ordering::Equal => {
                    nodes.extend(mine.next().zip(theirs.next()).map(|(a, b)| Node {
                        element: a.element,
                        member: a.member || b.member,
                        children: a.children.union(b.children),
                    }))
                }
            }
        }
    }

    /// Keeps the elements that `keep` selects; `other` is the node of the same element in another
    /// set.
    fn filter_by<'b>(
        &mut self,
        other: &FieldSet<'b>,
        keep: impl Fn(&mut Node<'a>, &Node<'b>) + Copy,
    ) {
        if other.is_empty() {
            return;
        }
        let mut theirs = Cursor(&other.nodes);
        self.nodes.retain_mut(|node| {
            if let Some(their) = theirs.find(&node.element) {
                keep(node, their);
            }
            node.means_something()
        });
    }

    /// Takes away exactly the paths of `other`; what lies below them stays.
    pub fn subtract(&mut self, other: &FieldSet<'_>) {
        self.filter_by(other, |node, other| {
            node.member &= !other.member;
            node.children.subtract(&other.children);
        });
    }

    /// Takes away the paths of `other` and everything below them.
    pub fn subtract_trees(&mut self, other: &FieldSet<'_>) {
        self.filter_by(other, |node, other| {
            if other.member {
                node.member = false;
                node.children = FieldSet::new();
            } else {
                node.children.subtract_trees(&other.children);
            }
        });
    }

    /// The paths in both sets.
    #[must_use]
    pub fn intersection(&self, other: &FieldSet<'_>) -> Self {
        let mut nodes = Vec::new();
        if other.is_empty() {
            return Self { nodes };
        }
        let mut theirs = Cursor(&other.nodes);
        for node in &self.nodes {
            let Some(their) = theirs.find(&node.element) else { continue };
            let children = node.children.intersection(&their.children);
            let member = node.member && their.member;
            if member || !children.is_empty() {
                nodes.push(Node { element: node.element.clone(), member, children });
            }
        }
        Self { nodes }
    }

    /// Whether some path is in both sets.
    pub fn meets(&self, other: &FieldSet<'_>) -> bool {
        let mut theirs = Cursor(&other.nodes);
        self.nodes.iter().any(|node| {
            theirs.find(&node.element).is_some_and(|their| {
                (node.member && their.member) || node.children.meets(&their.children)
            })
        })
    }

    /// Whether every path of this set is in the other.
    pub fn is_within(&self, other: &FieldSet<'_>) -> bool {
        let mut theirs = Cursor(&other.nodes);
        self.nodes.iter().all(|node| {
            theirs.find(&node.element).is_some_and(|their| {
                (their.member || !node.member) && node.children.is_within(&their.children)
            })
        })
    }

    /// Changes or drops nodes of the first level.
    pub fn retain(&mut self, mut change: impl FnMut(&mut Node<'a>)) {
        self.nodes.retain_mut(|node| {
            change(node);
            node.means_something()
        });
    }

    /// Every path: at each level the members, then what lies below them.
    pub fn paths(&self) -> Vec<Path<'a>> {
        let mut paths = Vec::with_capacity(self.len());
        let _ = self.visit(&mut Vec::new(), &mut |path| {
            paths.push(Path(path.iter().map(|element| (*element).clone()).collect()));
            ControlFlow::Continue(())
        });
        paths
    }

    /// Visits every path in the order of [`Self::paths`], until `visit` breaks.
    pub(super) fn visit<'s>(
        &'s self,
        prefix: &mut Vec<&'s PathElement<'a>>,
        visit: &mut impl FnMut(&[&'s PathElement<'a>]) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        for node in self.nodes.iter().filter(|node| node.member) {
            prefix.push(&node.element);
            visit(prefix)?;
            prefix.pop();
        }
        for node in &self.nodes {
            prefix.push(&node.element);
            node.children.visit(prefix, visit)?;
            prefix.pop();
        }
        ControlFlow::Continue(())
    }

    /// The same set, borrowing nothing.
    pub fn into_owned(self) -> FieldSet<'static> {
        let nodes = self.nodes.into_iter().map(|node| Node {
            element: node.element.into_owned(),
            member: node.member,
            children: node.children.into_owned(),
        });
        FieldSet { nodes: nodes.collect() }
    }
}

impl<'a> FromIterator<Path<'a>> for FieldSet<'a> {
    fn from_iter<I: IntoIterator<Item = Path<'a>>>(paths: I) -> Self {
        Self::union_of(paths.into_iter().map(|path| {
            let mut set = Self::new();
            set.insert(&path.0);
            set
        }))
    }
}

/// Walks through sorted nodes in steps that double, so that a small set is compared with a large
/// one in the logarithm of the latter.
struct Cursor<'n, 'a>(&'n [Node<'a>]);

impl<'n, 'a> Cursor<'n, 'a> {
    /// The node of an element. Elements are asked for in ascending order.
    fn find(&mut self, element: &PathElement<'_>) -> Option<&'n Node<'a>> {
        let nodes = self.0;
        let mut step = 1;
        while nodes.get(step).is_some_and(|node| node.element < *element) {
            step *= 2;
        }
        let (low, high) = (step / 2, step.min(nodes.len()));
        let before = nodes.get(low..high).unwrap_or_default();
        let at = low + before.partition_point(|node| node.element < *element);
        self.0 = nodes.get(at..).unwrap_or_default();
        self.0.first().filter(|node| node.element == *element)
    }
}
