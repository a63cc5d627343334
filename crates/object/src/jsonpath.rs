//! The JSONPath dialect of printer columns, with missing keys allowed.
//!
//! | syntax | selects |
//! |---|---|
//! | `.a`, `['a']`, `.a\.b` | a member |
//! | `[0]`, `[-1]`, `[1:3]`, `[::2]` | an element, counted from the end when negative, or a slice |
//! | `[0,2]`, `['a','b']` | several |
//! | `.*`, `[*]` | every member or element |
//! | `..a` | every member of that name on any level |
//! | `[?(@.type=="Ready")]`, `[?(@.a)]` | elements for which the comparison or the path holds |
//!
//! A path may be enclosed in braces and start with `$`. A missing member selects nothing and is not
//! an error.
use serde_json::Value;

mod parse;

/// Maximum length of a path in bytes. Far longer than any column's path; bounds the work of
/// parsing.
pub const PATH_BYTES_MAX: usize = 4096;

/// A parsed path.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}
/// Why a path is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct JsonPathError(pub String);

#[derive(Debug, Clone, PartialEq)]
enum Step {
    /// Members with these names.
    Members(Vec<String>),
    /// Elements with these indexes.
    Elements(Vec<i64>),
    Slice {
        start: Option<i64>,
        end: Option<i64>,
        step: i64,
    },
    Wildcard,
    /// The value itself and all its descendants.
    Descendants,
    Filter(Box<Filter>),
}
#[derive(Debug, Clone, PartialEq)]
struct Filter {
    left: Operand,
    /// `None` tests whether the left side selects anything.
    test: Option<(Comparison, Operand)>,
}
#[derive(Debug, Clone, PartialEq)]
enum Operand {
    /// A path from the element (`@`).
    Path(JsonPath),
    Literal(Value),
}
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl JsonPath {
    /// Parses `.spec.x`, `.a[0]`, `.a[*].b`, `.a[?(@.type=="Ready")].status`, `{.a}`.
    ///
    /// # Errors
    ///
    /// If the text is not a path of this dialect, or is longer than [`PATH_BYTES_MAX`].
    pub fn parse(text: &str) -> Result<Self, JsonPathError> {
        parse::parse(text)
    }
    /// All values that the path selects, in order.
    pub fn find<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        let mut found = vec![value];
        for step in &self.steps {
            let mut next = Vec::new();
            for value in found {
                step.reach(value, &mut next);
            }
            found = next;
        }
        found
    }
}
impl Step {
    fn reach<'a>(&self, value: &'a Value, out: &mut Vec<&'a Value>) {
        match (self, value) {
            (Self::Members(names), Value::Object(map)) => {
                out.extend(names.iter().filter_map(|name| map.get(name)));
            }
            (Self::Elements(indexes), Value::Array(items)) => {
                out.extend(indexes.iter().filter_map(|index| items.get(position(*index, items)?)));
            }
            (Self::Slice { start, end, step }, Value::Array(items)) => {
                let bound = |index: Option<i64>, default| match index {
                    None => default,
                    Some(index) if index < 0 => position(index, items).unwrap_or(0),
                    Some(index) => usize::try_from(index).unwrap_or(usize::MAX).min(items.len()),
                };
                let (start, end) = (bound(*start, 0), bound(*end, items.len()));
                let step = usize::try_from(*step).unwrap_or(1).max(1);
                out.extend(items.get(start..end).unwrap_or_default().iter().step_by(step));
            }
            (Self::Wildcard, Value::Object(map)) => out.extend(map.values()),
            (Self::Wildcard, Value::Array(items)) => out.extend(items),
            (Self::Descendants, value) => descend(value, out),
            (Self::Filter(filter), Value::Array(items)) => {
                out.extend(items.iter().filter(|item| filter.holds(item)));
            }
            _ => {}
        }
    }
}
/// Resolves an index, which counts from the end if it is negative.
fn position(index: i64, items: &[Value]) -> Option<usize> {
    let len = i64::try_from(items.len()).ok()?;
    usize::try_from(if index < 0 { index.checked_add(len)? } else { index }).ok()
}
/// Appends the value and all its descendants. Recurses as deep as the tree, whose depth the parser
/// bounded.
fn descend<'a>(value: &'a Value, out: &mut Vec<&'a Value>) {
    out.push(value);
    match value {
        Value::Object(map) => map.values().for_each(|value| descend(value, out)),
        Value::Array(items) => items.iter().for_each(|value| descend(value, out)),
        _ => {}
    }
}
impl Filter {
    fn holds(&self, item: &Value) -> bool {
        let left = self.left.values(item);
        let Some((comparison, right)) = &self.test else { return !left.is_empty() };
        match (left.as_slice(), right.values(item).as_slice()) {
            ([left], [right]) => comparison.holds(left, right),
            // A comparison with no value or several selects nothing.
            _ => false,
        }
    }
}
impl Operand {
    fn values<'a>(&'a self, item: &'a Value) -> Vec<&'a Value> {
        match self {
            Self::Path(path) => path.find(item),
            Self::Literal(value) => vec![value],
        }
    }
}
impl Comparison {
    fn holds(self, left: &Value, right: &Value) -> bool {
        let order = match (left, right) {
            (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
            (left, right) => match (left.as_f64(), right.as_f64()) {
                (Some(left), Some(right)) => left.partial_cmp(&right),
                _ => None,
            },
        };
        match self {
            Self::Equal => order.map_or(left == right, |order| order.is_eq()),
            Self::NotEqual => order.map_or(left != right, |order| order.is_ne()),
            Self::Less => order.is_some_and(|order| order.is_lt()),
            Self::LessOrEqual => order.is_some_and(|order| order.is_le()),
            Self::Greater => order.is_some_and(|order| order.is_gt()),
            Self::GreaterOrEqual => order.is_some_and(|order| order.is_ge()),
        }
    }
}

#[cfg(test)]
mod tests;
