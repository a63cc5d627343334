//! FieldsV1: a set of paths as a JSON object.
//!
//! `f:<name>` is a field, `k:{"name":"x"}` a keyed element, `v:<json>` an element of a set, `i:<n>`
//! an index; `{}` is a leaf and `".": {}` says that a node with children is itself a member.

use super::fieldset::{FieldSet, Node};
use super::path::PathElement;
use serde_json::{Map, Value};
use setpoint_object::encode::push_text;
use std::borrow::Cow;
use std::fmt::Write as _;

/// Text that is no FieldsV1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// A set is a JSON object.
    #[error("a field set must be an object")]
    NotAnObject,
    /// A key that does not begin with a letter and a colon, or whose rest cannot be read.
    #[error("malformed path element {0:?}")]
    Element(String),
}

impl<'a> FieldSet<'a> {
    /// Reads FieldsV1. Steps of unknown kinds are skipped.
    ///
    /// # Errors
    /// Something that is no object, or a malformed key.
    pub fn from_wire(fields: &'a Value) -> Result<Self, WireError> {
        let Value::Object(fields) = fields else { return Err(WireError::NotAnObject) };
        let mut nodes = Vec::with_capacity(fields.len());
        for (name, below) in fields.iter().filter(|(name, _)| *name != ".") {
            let below_map = below.as_object().ok_or(WireError::NotAnObject)?;
            if let Some(element) = PathElement::from_wire(name)? {
                let member = below_map.is_empty() || below_map.contains_key(".");
                nodes.push(Node { element, member, children: Self::from_wire(below)? });
            }
        }
        Ok(Self::from_nodes(nodes))
    }

    /// Writes FieldsV1.
    pub fn to_wire(&self) -> Value {
        Value::Object(self.wire_map())
    }

    fn wire_map(&self) -> Map<String, Value> {
        let member = |node: &Node<'_>| {
            let mut below = node.children.wire_map();
            if node.member && !below.is_empty() {
                below.insert(".".to_owned(), Value::Object(Map::new()));
            }
            (text(&node.element), Value::Object(below))
        };
        // Collected, a map sorts its members once instead of searching a place for each.
        self.nodes().iter().map(member).collect()
    }
}

impl<'a> PathElement<'a> {
    /// Reads a key of FieldsV1. `None`: a step of an unknown kind.
    ///
    /// # Errors
    /// A malformed key.
    pub(crate) fn from_wire(text: &'a str) -> Result<Option<Self>, WireError> {
        let malformed = || WireError::Element(text.to_owned());
        let (kind, rest) = text.split_at_checked(2).ok_or_else(malformed)?;
        Ok(Some(match kind {
            "f:" => PathElement::field(rest),
            "k:" => {
                let Ok(Value::Object(key)) = serde_json::from_str(rest) else {
                    return Err(malformed());
                };
                let mut key: Vec<(String, Value)> = key.into_iter().collect();
                key.sort_by(|(a, _), (b, _)| a.cmp(b));
                let owned = |(name, value)| (Cow::Owned(name), Cow::Owned(value));
                PathElement::Key(key.into_iter().map(owned).collect())
            }
            "v:" => {
                PathElement::Value(Cow::Owned(serde_json::from_str(rest).map_err(|_| malformed())?))
            }
            "i:" => PathElement::Index(rest.parse().map_err(|_| malformed())?),
            _ if kind.ends_with(':') => return Ok(None),
            _ => return Err(malformed()),
        }))
    }
}

fn text(element: &PathElement<'_>) -> String {
    match element {
        PathElement::Field(name) => {
            let mut text = String::with_capacity(name.len() + 2);
            text.push_str("f:");
            text.push_str(name);
            text
        }
        PathElement::Key(key) => {
            let mut text = "k:{".to_owned();
            for (at, (name, value)) in key.iter().enumerate() {
                if at > 0 {
                    text.push(',');
                }
                push_string(&mut text, name);
                text.push(':');
                push(&mut text, value);
            }
            text.push('}');
            text
        }
        PathElement::Value(value) => {
            let mut text = "v:".to_owned();
            push(&mut text, value);
            text
        }
        PathElement::Index(at) => format!("i:{at}"),
    }
}

/// Appends JSON.
fn push(out: &mut String, value: &Value) {
    match value {
        Value::String(text) => push_string(out, text),
        // Writing to memory never fails.
        other => _ = write!(out, "{other}"),
    }
}

/// Appends a JSON string, as [`push_text`] does.
fn push_string(out: &mut String, text: &str) {
    let is_special = |byte| byte < 0x20 || matches!(byte, b'"' | b'\\' | b'<' | b'>' | b'&');
    if text.bytes().any(is_special) {
        let mut quoted = Vec::with_capacity(text.len() + 2);
        push_text(&mut quoted, text);
        *out += &String::from_utf8_lossy(&quoted);
        return;
    }
    out.reserve(text.len() + 2);
    out.push('"');
    out.push_str(text);
    out.push('"');
}
