//! Removes fields from encoded objects.
//!
//! Much of an object is useless to most caches: `metadata.managedFields` is often a third of it,
//! and an annotation of `kubectl apply` may contain the object once more. A [`Prune`] is a compiled
//! set of paths. It removes these fields by copying the text around them, without building a tree.
mod path;

pub use path::PruneError;

use crate::head::{Head, Span};
use crate::scan::{Cursor, RawStr};
use crate::skim::SkimError;
use path::Step;
use std::ops::Range;

/// Fields to remove from encoded objects.
///
/// A path is member names separated by dots: `spec.template.spec`. A name with characters other
/// than letters, digits, `_`, `-` and `/` is written in brackets as a JSON string:
/// `metadata.annotations["example.com/x"]`. `[*]` selects all elements of an array:
/// `spec.containers[*].env`. A path that an object does not have removes nothing.
///
/// # Invariants
///
/// - The remaining text is an encoding of the tree without these members. If a member is repeated,
///   all occurrences are removed.
/// - Pruning twice gives the same text as pruning once.
/// - An object's identity remains: paths to it are refused.
///
/// ```
/// use setpoint_object::{Head, Prune};
///
/// let prune = Prune::parse(["metadata.managedFields", "status", "spec.containers[*].env"])?;
/// let text = br#"{"metadata":{"name":"a","managedFields":[]},"spec":{"containers":[{"env":[],"name":"c"}]},"status":{}}"#;
/// let mut out = Vec::new();
/// let head = prune.cut(text, &Head::of(text)?, &mut out)?;
/// assert_eq!(out, br#"{"metadata":{"name":"a"},"spec":{"containers":[{"name":"c"}]}}"#);
/// assert_eq!(head, Head::of(&out)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prune(Fields);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Fields {
    /// Only `metadata.managedFields`, whose position the head has.
    Managed,
    Any(Node),
}

/// What to do with a value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Node {
    is_cut: bool,
    /// The nodes of its members, if it is an object.
    members: Vec<(String, Node)>,
    /// The node of its elements, if it is an array.
    each: Option<Box<Node>>,
}

impl Prune {
    /// Removes only `metadata.managedFields`, at the cost of two copies.
    pub fn managed_fields() -> Self {
        Self(Fields::Managed)
    }

    /// Also removes `metadata.managedFields`.
    pub fn and_managed_fields(self) -> Self {
        let Fields::Any(mut root) = self.0 else { return self };
        root.add_managed_fields();
        if root == Node::managed_fields() {
            Self::managed_fields()
        } else {
            Self(Fields::Any(root))
        }
    }

    /// Compiles paths.
    ///
    /// # Errors
    /// If a path is malformed, or names a part of an object's identity: `apiVersion`, `kind`,
    /// `metadata`, and its members `name`, `namespace`, `uid` and `resourceVersion`.
    pub fn parse<'a>(paths: impl IntoIterator<Item = &'a str>) -> Result<Self, PruneError> {
        let mut root = Node::default();
        for text in paths {
            root.add(&path::parse(text)?);
        }
        if root == Node::managed_fields() {
            return Ok(Self::managed_fields());
        }
        Ok(Self(Fields::Any(root)))
    }

    /// Replaces the content of `out` with the pruned object, and returns its head. If `out` had no
    /// capacity, it gets no more than needed. `head` must be the object's. Bytes after the object
    /// are not copied.
    ///
    /// # Errors
    /// If the text is malformed at a position that the head did not check. The content of `out` is
    /// then invalid.
    pub fn cut(&self, object: &[u8], head: &Head, out: &mut Vec<u8>) -> Result<Head, SkimError> {
        let Some(object) = object.get(..head.end()) else {
            return Err(SkimError { at: object.len(), what: "an object without an end" });
        };
        match &self.0 {
            Fields::Managed if !head.has_repeated_managed_fields() => {
                let cuts = head.managed_fields();
                let cuts = cuts.as_slice();
                copy(object, cuts, out);
                Ok(head.without(cuts))
            }
            Fields::Managed => Node::managed_fields().cut(object, head, out),
            Fields::Any(root) => root.cut(object, head, out),
        }
    }
}

impl Node {
    fn managed_fields() -> Self {
        let mut root = Self::default();
        root.add_managed_fields();
        root
    }
    fn add_managed_fields(&mut self) {
        self.add(&["metadata", "managedFields"].map(|name| Step::Member(name.to_owned())));
    }
    fn add(&mut self, path: &[Step]) {
        let mut node = self;
        for step in path {
            node = match step {
                Step::Each => node.each.get_or_insert_default(),
                Step::Member(name) => {
                    let found = node.members.iter().position(|(member, _)| member == name);
                    let idx = found.unwrap_or_else(|| {
                        node.members.push((name.clone(), Self::default()));
                        node.members.len() - 1
                    });
                    &mut node.members[idx].1
                }
            };
        }
        node.is_cut = true;
    }
    fn member(&self, key: &RawStr<'_>) -> Option<&Self> {
        self.members.iter().find(|(name, _)| key.is(name)).map(|(_, node)| node)
    }

    fn cut(&self, object: &[u8], head: &Head, out: &mut Vec<u8>) -> Result<Head, SkimError> {
        let mut cuts = Vec::new();
        self.find(&mut Cursor::new(object), &mut cuts)?;
        copy(object, &cuts, out);
        let left = head.without(&cuts);
        if left.managed_fields().is_none() {
            return Ok(left);
        }
        // The comma that belongs to it may have changed.
        Head::of(out)
    }
    /// Finds the ranges to remove, in order, and moves after the value.
    fn find(&self, cursor: &mut Cursor<'_>, cuts: &mut Vec<Range<usize>>) -> Result<(), SkimError> {
        match (cursor.peek(), &self.each) {
            (Some(b'{'), _) if !self.members.is_empty() => self.find_in_object(cursor, cuts),
            (Some(b'['), Some(each)) => {
                cursor.array()?;
                let mut first = true;
                while cursor.element(&mut first)? {
                    each.find(cursor, cuts)?;
                }
                Ok(())
            }
            _ => cursor.skip().map(drop),
        }
    }
    fn find_in_object(
        &self,
        cursor: &mut Cursor<'_>,
        cuts: &mut Vec<Range<usize>>,
    ) -> Result<(), SkimError> {
        cursor.object()?;
        let (mut first, mut is_any_kept) = (true, false);
        // After the bracket, and later after the last removed member.
        let mut front = cursor.position();
        loop {
            cursor.peek();
            let comma = cursor.position();
            let Some(key) = cursor.key(&mut first)? else { return Ok(()) };
            match self.member(&key) {
                Some(member) if member.is_cut => {
                    cursor.skip()?;
                    // One comma is removed with a member: the one before it, or the one after it if
                    // it is the first.
                    let is_followed = cursor.peek() == Some(b',');
                    let at = cursor.position();
                    if is_any_kept {
                        cuts.push(comma..at);
                    } else {
                        let to = at + usize::from(is_followed);
                        cuts.push(front..to);
                        front = to;
                    }
                    continue;
                }
                Some(member) => member.find(cursor, cuts)?,
                None => _ = cursor.skip()?,
            }
            is_any_kept = true;
        }
    }
}

/// Copies a text without some ranges.
fn copy(text: &[u8], cuts: &[Range<usize>], out: &mut Vec<u8>) {
    out.clear();
    out.reserve_exact(text.len() - cuts.iter().map(Range::len).sum::<usize>());
    let mut from = 0;
    for cut in cuts {
        out.extend_from_slice(&text[from..cut.start]);
        from = cut.end;
    }
    out.extend_from_slice(&text[from..]);
}

impl Head {
    /// The head of the text without these ranges, each of which contains all managed fields or
    /// none.
    fn without(&self, cuts: &[Range<usize>]) -> Self {
        let mut head = *self;
        let managed_fields = self.managed_fields().unwrap_or_default();
        // Neither end of the range: a comma there may have been removed with the neighboring
        // member.
        if cuts.iter().any(|cut| cut.contains(&(managed_fields.start + 1))) {
            head.managed_fields = Span::default();
            head.is_repeated = false;
        }
        let moved = |at: u32| {
            let before = cuts.iter().take_while(|cut| cut.end <= at as usize);
            at - before.map(|cut| cut.len() as u32).sum::<u32>()
        };
        for span in head.spans() {
            *span = Span { from: moved(span.from), to: moved(span.to) };
        }
        head.end = moved(head.end);
        head
    }
}

#[cfg(test)]
mod tests;
