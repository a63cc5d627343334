//! A set of paths as a trie.
//!
//! One sorted vector per level; what is under a path is one child set. Names and keys borrow from the trees they were read from, so
//! that building a set allocates little more than its vectors. No node is without meaning: each is a member or has children.

use super::path::{Path, PathElement};
use std::cmp::Ordering;

/// A set of paths. Members and prefixes differ: `.spec` may be in the set, something below it, or both.
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
    /// What is in the set below.
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
        if !ordered {
            nodes.sort_by(|a, b| a.element.cmp(&b.element));
            nodes.dedup_by(|later, earlier| {
                let same = later.element == earlier.element;
                if same {
                    earlier.member |= later.member;
                    let children = std::mem::take(&mut earlier.children);
                    earlier.children = children.union(std::mem::take(&mut later.children));
                }
                same
            });
        }
        Self { nodes }
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

    /// Keeps what `keep` says; `other` is the node of the same element in another set.
    fn filter_by<'b>(
        &mut self,
        other: &FieldSet<'b>,
        keep: impl Fn(&mut Node<'a>, &Node<'b>) + Copy,
    ) {
        if other.is_empty() {
            return;
        }
        let mut theirs = other.nodes.iter().peekable();
        self.nodes.retain_mut(|node| {
            while theirs.next_if(|their| their.element < node.element).is_some() {}
            if let Some(their) = theirs.peek().filter(|their| their.element == node.element) {
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
        let mut theirs = other.nodes.iter().peekable();
        for node in &self.nodes {
            while theirs.next_if(|their| their.element < node.element).is_some() {}
            let Some(their) = theirs.peek().filter(|their| their.element == node.element) else {
                continue;
            };
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
        let mut theirs = other.nodes.iter().peekable();
        self.nodes.iter().any(|node| {
            while theirs.next_if(|their| their.element < node.element).is_some() {}
            theirs.peek().filter(|their| their.element == node.element).is_some_and(|their| {
                (node.member && their.member) || node.children.meets(&their.children)
            })
        })
    }

    /// Whether every path of this set is in the other.
    pub fn is_within(&self, other: &FieldSet<'_>) -> bool {
        let mut theirs = other.nodes.iter().peekable();
        self.nodes.iter().all(|node| {
            while theirs.next_if(|their| their.element < node.element).is_some() {}
            theirs.peek().filter(|their| their.element == node.element).is_some_and(|their| {
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
        self.collect_paths(&mut Vec::new(), &mut paths);
        paths
    }

    fn collect_paths(&self, prefix: &mut Vec<PathElement<'a>>, paths: &mut Vec<Path<'a>>) {
        for node in self.nodes.iter().filter(|node| node.member) {
            let mut path = prefix.clone();
            path.push(node.element.clone());
            paths.push(Path(path));
        }
        for node in &self.nodes {
            prefix.push(node.element.clone());
            node.children.collect_paths(prefix, paths);
            prefix.pop();
        }
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
        let mut set = Self::new();
        for path in paths {
            set.insert(&path.0);
        }
        set
    }
}
