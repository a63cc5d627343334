//! One step of a path to a field.

use super::value::{compare, equal};
use crate::patch::notation::go_number;
use serde_json::Value;
use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

/// One step of a path: which member or element. Ordered as FieldsV1 sorts them: fields, keys,
/// values, indices.
#[derive(Debug, Clone)]
pub enum PathElement<'a> {
    /// A struct field or map key.
    Field(Cow<'a, str>),
    /// An element of a keyed list, by its key members in name order.
    Key(Vec<(Cow<'a, str>, Cow<'a, Value>)>),
    /// An element of a set, by value.
    Value(Cow<'a, Value>),
    /// An element of a list by position.
    Index(i64),
}

impl<'a> PathElement<'a> {
    /// A field of this name.
    pub fn field(name: impl Into<Cow<'a, str>>) -> Self {
        Self::Field(name.into())
    }

    /// The same element, borrowing nothing.
    pub fn into_owned(self) -> PathElement<'static> {
        match self {
            Self::Field(name) => PathElement::Field(Cow::Owned(name.into_owned())),
            Self::Key(key) => PathElement::Key(
                key.into_iter()
                    .map(|(name, value)| {
                        (Cow::Owned(name.into_owned()), Cow::Owned(value.into_owned()))
                    })
                    .collect(),
            ),
            Self::Value(value) => PathElement::Value(Cow::Owned(value.into_owned())),
            Self::Index(at) => PathElement::Index(at),
        }
    }
}

impl PartialEq for PathElement<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Field(a), Self::Field(b)) => a == b,
            (Self::Value(a), Self::Value(b)) => equal(a, b),
            _ => self.cmp(other).is_eq(),
        }
    }
}
impl Eq for PathElement<'_> {}
impl PartialOrd for PathElement<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for PathElement<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let rank = |element: &Self| match element {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        };
        match (self, other) {
            (Self::Field(a), Self::Field(b)) => a.cmp(b),
            (Self::Key(a), Self::Key(b)) => {
                let unequal = a
                    .iter()
                    .zip(b)
                    .map(|((an, av), (bn, bv))| an.cmp(bn).then_with(|| compare(av, bv)))
                    .find(|o| o.is_ne());
                unequal.unwrap_or(a.len().cmp(&b.len()))
            }
            (Self::Value(a), Self::Value(b)) => compare(a, b),
            (Self::Index(a), Self::Index(b)) => a.cmp(b),
            _ => rank(self).cmp(&rank(other)),
        }
    }
}

/// As messages show it: `.name`, `[name="x",protocol="TCP"]`, `[="value"]`, `[3]`.
impl fmt::Display for PathElement<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(key) => {
                f.write_str("[")?;
                for (at, (name, value)) in key.iter().enumerate() {
                    let comma = if at > 0 { "," } else { "" };
                    write!(f, "{comma}{name}={}", show(value))?;
                }
                f.write_str("]")
            }
            Self::Value(value) => write!(f, "[={}]", show(value)),
            Self::Index(at) => write!(f, "[{at}]"),
        }
    }
}

fn show(value: &Value) -> String {
    match value {
        Value::Number(n) => go_number(n),
        Value::String(text) => setpoint_object::field::quote(text),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(","))
        }
        Value::Object(members) => {
            members.iter().map(|(name, value)| format!("{name}={}", show(value))).collect()
        }
        other => other.to_string(),
    }
}

/// A path to a field, as messages show it: `.spec.containers[name="a"].image`.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path<'a>(pub Vec<PathElement<'a>>);

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|element| element.fmt(f))
    }
}
