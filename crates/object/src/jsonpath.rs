//! The JSONPath dialect of printer columns, with missing keys allowed.
//!
//! | syntax | selects |
//! |---|---|
//! | `.a`, `['a']`, `.a\.b` | a member; dots in quotes separate members, too |
//! | `[0]`, `[-1]`, `[1:3]`, `[::2]` | an element, counted from the end when negative, or a slice |
//! | `[0,2]`, `['a','b']` | several |
//! | `.*`, `[*]` | every member or element |
//! | `..a` | every member of that name on any level |
//! | `[?(@.type=="Ready")]`, `[?(@.a)]` | elements for which the comparison or the path holds |
//!
//! A path may be enclosed in braces and start with `$`. A missing member selects nothing and is not
//! an error. An index beyond the list, an index of something else and a comparison of two types
//! are errors.
use serde_json::Value;

mod parse;

/// Maximum length of a path in bytes. Far longer than any column's path; bounds the work of
/// parsing.
pub const PATH_BYTES_MAX: usize = 4096;

/// Maximum number of values that the steps of one evaluation look at. A path beyond it fails.
/// Unions and descendants multiply: without a bound, few bytes take any time.
pub const VALUES_MAX: usize = 1 << 20;

/// A parsed path.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}
/// Why a path is invalid, or fails on a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct JsonPathError(pub String);

type Found<'a> = Result<Vec<&'a Value>, JsonPathError>;

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Member(String),
    Slice {
        start: Option<i64>,
        end: Option<i64>,
        step: i64,
    },
    Element(i64),
    Wildcard,
    /// The value itself and all its descendants.
    Descendants,
    /// What each of several paths selects.
    Union(Vec<JsonPath>),
    Filter(Box<Filter>),
    /// A number, a text or a truth value. Only alone on a side of a comparison.
    Literal(Value),
    /// A bare word. It is an error when it is evaluated, not when it is parsed.
    Word(String),
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
    /// A sequence of `!`, `<`, `=` and `>` that is no operator. An error when it is evaluated.
    Unknown,
}

/// How many values the steps may still look at.
#[derive(Debug)]
struct Budget {
    left: usize,
}
impl Budget {
    fn spend(&mut self, values: usize) -> Result<(), JsonPathError> {
        let left = self.left.checked_sub(values);
        self.left = left.unwrap_or(0);
        match left {
            Some(_) => Ok(()),
            None => fail("the path selects too many values"),
        }
    }
}

fn fail<T>(text: impl Into<String>) -> Result<T, JsonPathError> {
    Err(JsonPathError(text.into()))
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
    /// All values that the path selects, in order; none if it fails.
    pub fn find<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        self.select(vec![value], &mut Budget { left: VALUES_MAX }).unwrap_or_default()
    }
    fn select<'a>(&self, input: Vec<&'a Value>, budget: &mut Budget) -> Found<'a> {
        self.steps.iter().try_fold(input, |found, step| step.select(found, budget))
    }
}
impl Step {
    fn select<'a>(&self, input: Vec<&'a Value>, budget: &mut Budget) -> Found<'a> {
        let mut out = Vec::new();
        if let Self::Union(paths) = self {
            for path in paths {
                budget.spend(input.len())?;
                out.extend(path.select(input.clone(), budget)?);
            }
            return Ok(out);
        }
        for value in input {
            let before = out.len();
            if !self.select_from(value, &mut out, budget)? {
                break;
            }
            budget.spend(1 + out.len() - before)?;
        }
        Ok(out)
    }
    /// Appends what the step selects from one value. Returns whether the next values count, too.
    fn select_from<'a>(
        &self,
        value: &'a Value,
        out: &mut Vec<&'a Value>,
        budget: &mut Budget,
    ) -> Result<bool, JsonPathError> {
        match self {
            Self::Member(name) => out.extend(value.get(name.as_str())),
            Self::Element(index) => {
                let Some(items) = list(value)? else { return Ok(true) };
                match position(*index, items.len()).and_then(|at| items.get(at)) {
                    Some(item) => out.push(item),
                    None => return beyond(*index, items),
                }
            }
            Self::Slice { start, end, step } => {
                let Some(items) = list(value)? else { return Ok(true) };
                let len = i64::try_from(items.len()).unwrap_or(i64::MAX);
                let bound = |at: i64| if at < 0 { at.saturating_add(len) } else { at };
                let (start, end) = (bound(start.unwrap_or(0)), bound(end.unwrap_or(len)));
                if start == end {
                    // No elements, neither of this list nor of the next ones.
                    return Ok(false);
                }
                let step = usize::try_from(*step).ok().filter(|step| *step > 0);
                let range = usize::try_from(start).ok().zip(usize::try_from(end).ok());
                let found = range.and_then(|(start, end)| items.get(start..end));
                let (Some(step), Some(found)) = (step, found) else {
                    return fail("a slice is not inside its list");
                };
                out.extend(found.iter().step_by(step));
            }
            Self::Wildcard => match value {
                Value::Object(map) => out.extend(map.values()),
                Value::Array(items) => out.extend(items),
                _ => {}
            },
            Self::Descendants => descend(value, out),
            Self::Filter(filter) => {
                let Value::Array(items) = value else {
                    return fail("a filter of something that is not a list");
                };
                for item in items {
                    if filter.holds(item, budget)? {
                        out.push(item);
                    }
                }
            }
            Self::Literal(value) => return fail(format!("unexpected literal {value}")),
            Self::Word(word) => return fail(format!("unrecognized identifier {word}")),
            // Selects from all values at once.
            Self::Union(_) => {}
        }
        Ok(true)
    }
}
/// The elements of a list; `None` for null.
fn list(value: &Value) -> Result<Option<&[Value]>, JsonPathError> {
    match value {
        Value::Array(items) => Ok(Some(items)),
        Value::Null => Ok(None),
        _ => fail("an index of something that is not a list"),
    }
}
fn beyond<T>(index: i64, items: &[Value]) -> Result<T, JsonPathError> {
    fail(format!("array index out of bounds: index {index}, length {}", items.len()))
}
/// Resolves an index, which counts from the end if it is negative. `None` if it is before the
/// start.
fn position(index: i64, len: usize) -> Option<usize> {
    let len = i64::try_from(len).ok()?;
    usize::try_from(if index < 0 { index.checked_add(len)? } else { index }).ok()
}
/// Appends the value and all its descendants that have members or elements, and texts. Recurses as
/// deep as the tree, whose depth the parser bounded.
fn descend<'a>(value: &'a Value, out: &mut Vec<&'a Value>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            out.push(value);
            map.values().for_each(|value| descend(value, out));
        }
        Value::Array(items) if !items.is_empty() => {
            out.push(value);
            items.iter().for_each(|value| descend(value, out));
        }
        Value::String(text) if !text.is_empty() => out.push(value),
        _ => {}
    }
}
impl Filter {
    fn holds(&self, item: &Value, budget: &mut Budget) -> Result<bool, JsonPathError> {
        budget.spend(1)?;
        let left = self.left.values(item, budget);
        let Some((comparison, right)) = &self.test else {
            // A path that fails counts as one that is there.
            return Ok(left.map_or(true, |found| !found.is_empty()));
        };
        let Some(left) = single(&left?)? else { return Ok(false) };
        let right = right.values(item, budget)?;
        let Some(right) = single(&right)? else { return Ok(false) };
        comparison.holds(left, right)
    }
}
impl Operand {
    fn values<'a>(&'a self, item: &'a Value, budget: &mut Budget) -> Found<'a> {
        match self {
            Self::Path(path) => path.select(vec![item], budget),
            Self::Literal(value) => Ok(vec![value]),
        }
    }
}
/// The value of one side of a comparison, if it has one.
fn single<'a>(found: &[&'a Value]) -> Result<Option<&'a Value>, JsonPathError> {
    match found {
        [] => Ok(None),
        [value] => Ok(Some(value)),
        _ => fail("can only compare one element at a time"),
    }
}
impl Comparison {
    /// # Errors
    ///
    /// If the sides have different types, where a float and an integer are two types, or a type
    /// that has no such comparison.
    fn holds(self, left: &Value, right: &Value) -> Result<bool, JsonPathError> {
        let order = match (left, right) {
            (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
            (Value::Number(left), Value::Number(right)) if left.is_f64() == right.is_f64() => {
                match (left.as_i64(), right.as_i64()) {
                    (Some(left), Some(right)) => Some(left.cmp(&right)),
                    _ => left.as_f64().partial_cmp(&right.as_f64()),
                }
            }
            (Value::Bool(left), Value::Bool(right)) => match self {
                Self::Equal => return Ok(left == right),
                Self::NotEqual => return Ok(left != right),
                _ => None,
            },
            _ => None,
        };
        let Some(order) = order else { return fail("incompatible types for comparison") };
        Ok(match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
            Self::Unknown => return fail("unrecognized filter operator"),
        })
    }
}

#[cfg(test)]
mod tests;
