//! Field paths that are formatted only when they are read.
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A path to a field: `spec.containers[0].name`, `data[key]`; the root displays as `<nil>`.
///
/// A validation creates a path for every node and shows few of them, and a name may be as long as
/// the body. So a path is its last step and a shared reference to the path before. Extending or
/// cloning a path copies nothing. Paths compare like their texts.
#[derive(Clone, Default)]
pub struct Path(Option<Arc<Segment>>);

struct Segment {
    before: Path,
    step: Step,
    /// Length of the text up to here.
    n_bytes: usize,
}
/// Drops a path of any length without recursion.
impl Drop for Segment {
    fn drop(&mut self) {
        let mut next = self.before.0.take();
        while let Some(mut segment) = next.and_then(Arc::into_inner) {
            next = segment.before.0.take();
        }
    }
}
enum Step {
    Name(Box<str>),
    Index(usize),
    Key(Box<str>),
}
impl Step {
    fn n_bytes(&self, is_first: bool) -> usize {
        match self {
            Self::Name(name) => name.len() + usize::from(!is_first),
            Self::Index(index) => index.checked_ilog10().unwrap_or(0) as usize + 3,
            Self::Key(key) => key.len() + 2,
        }
    }
}

impl Path {
    /// The root.
    pub fn root() -> Self {
        Self::default()
    }
    /// A path of one name, which may contain dots.
    pub fn new(name: impl Into<String>) -> Self {
        match name.into() {
            name if name.is_empty() => Self::root(),
            name => Self::root().step(Step::Name(name.into())),
        }
    }
    /// `self.name`.
    pub fn child(&self, name: &str) -> Self {
        self.step(Step::Name(name.into()))
    }
    /// `self[index]`.
    pub fn index(&self, index: usize) -> Self {
        self.step(Step::Index(index))
    }
    /// `self[key]`.
    pub fn key(&self, key: &str) -> Self {
        self.step(Step::Key(key.into()))
    }
    fn step(&self, step: Step) -> Self {
        let before = self.n_bytes();
        let n_bytes = before + step.n_bytes(before == 0);
        Self(Some(Arc::new(Segment { before: self.clone(), step, n_bytes })))
    }
    /// Length of the text in bytes.
    pub fn n_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |segment| segment.n_bytes)
    }
    /// The text; empty for the root.
    pub fn text(&self) -> String {
        let mut text = String::with_capacity(self.n_bytes());
        // Writing to a String cannot fail.
        _ = self.write(&mut text);
        text
    }
    fn write(&self, out: &mut impl fmt::Write) -> fmt::Result {
        let next = |path: &Self| path.0.clone();
        let mut segments: Vec<_> =
            std::iter::successors(next(self), |segment| next(&segment.before)).collect();
        segments.reverse();
        for segment in segments {
            match &segment.step {
                Step::Name(name) if segment.before.n_bytes() == 0 => out.write_str(name)?,
                Step::Name(name) => write!(out, ".{name}")?,
                Step::Index(index) => write!(out, "[{index}]")?,
                Step::Key(key) => write!(out, "[{key}]")?,
            }
        }
        Ok(())
    }
}
impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.n_bytes() == 0 { f.write_str("<nil>") } else { self.write(f) }
    }
}
impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Path").field(&self.text()).finish()
    }
}
impl PartialEq for Path {
    fn eq(&self, other: &Self) -> bool {
        self.n_bytes() == other.n_bytes() && self.text() == other.text()
    }
}
impl Eq for Path {}
impl PartialOrd for Path {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Path {
    fn cmp(&self, other: &Self) -> Ordering {
        self.text().cmp(&other.text())
    }
}
impl Hash for Path {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text().hash(state);
    }
}
