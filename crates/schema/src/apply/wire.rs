//! FieldsV1: a set of paths as a JSON object.
//!
//! `f:<name>` is a field, `k:{"name":"x"}` a keyed element, `v:<json>` an element of a set, `i:<n>`
//! an index; `{}` is a leaf and `".": {}` says that a node with children is itself a member.

use super::fieldset::{FieldSet, Node};
use super::path::PathElement;
use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};
use setpoint_object::encode::{self, push_text};
use setpoint_object::members;
use std::borrow::Cow;
use std::fmt::{self, Write as _};

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
    /// Text that is not read as either.
    #[error("{0}")]
    Text(String),
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

    /// Reads FieldsV1 from its text, as [`FieldSet::from_wire`] does.
    ///
    /// # Errors
    /// [`WireError::Text`].
    pub(super) fn from_wire_text(fields: &'a str) -> Result<Self, WireError> {
        let read = serde_json::from_str(fields).map_err(|error| WireError::Text(error.to_string()));
        let Text { set, .. } = read?;
        Ok(set)
    }

    /// Writes the text of FieldsV1. `is_sorted`: with its members sorted as texts, as in custom
    /// objects; otherwise they are in the order of the set.
    pub(super) fn push_wire(&self, out: &mut Vec<u8>, is_sorted: bool) {
        self.push_node(out, false, is_sorted);
    }

    /// `is_member`: the path to here is one of the set, too.
    fn push_node(&self, out: &mut Vec<u8>, is_member: bool, is_sorted: bool) {
        out.push(b'{');
        let mut is_first = true;
        if is_member && !self.is_empty() {
            out.extend_from_slice(b"\".\":{}");
            is_first = false;
        }
        let mut push = |out: &mut Vec<u8>, node: &Node<'_>, write: &dyn Fn(&mut Vec<u8>)| {
            if !std::mem::take(&mut is_first) {
                out.push(b',');
            }
            write(out);
            out.push(b':');
            node.children.push_node(out, node.member, is_sorted);
        };
        let is_field = |node: &Node<'_>| matches!(node.element, PathElement::Field(_));
        // Fields have the same order either way.
        if is_sorted && !self.nodes().iter().all(is_field) {
            let mut nodes: Vec<_> =
                self.nodes().iter().map(|node| (text(&node.element), node)).collect();
            nodes.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
            for (step, node) in nodes {
                push(out, node, &|out| push_text(out, &step));
            }
        } else {
            for node in self.nodes() {
                push(out, node, &|out| push_step(out, &node.element));
            }
        }
        out.push(b'}');
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

/// Whether the text of a set has all paths of another. Steps are compared as the server writes
/// them: one that is written in another way is not found. Each level of what is wanted reads the
/// text below it again.
pub(super) fn has_all(fields: &str, wanted: &FieldSet<'_>) -> bool {
    let mut missing: Vec<(String, &Node<'_>)> = Vec::with_capacity(wanted.nodes().len());
    for node in wanted.nodes() {
        let mut step = Vec::new();
        push_step(&mut step, &node.element);
        missing.push((String::from_utf8_lossy(&step).into_owned(), node));
    }
    missing.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    let mut is_found = vec![false; missing.len()];
    for member in members::of(fields.as_bytes()) {
        // With its quotes.
        let step = &fields[member.name.start - 1..member.name.end + 1];
        let Ok(place) = missing.binary_search_by(|(wanted, _)| wanted.as_str().cmp(step)) else {
            continue;
        };
        let (_, node) = missing[place];
        let below = &fields[member.value];
        if node.member && !is_member(below) || !has_all(below, &node.children) {
            return false;
        }
        is_found[place] = true;
    }
    is_found.iter().all(|is_found| *is_found)
}

/// Whether a path with this below it is in the set itself.
fn is_member(below: &str) -> bool {
    let mut steps = members::of(below.as_bytes()).map(|member| &below[member.name]).peekable();
    steps.peek().is_none() || steps.any(|step| step == ".")
}

/// The value of a JSON text, borrowed if it has no escapes.
pub(super) fn text_of(json: &str) -> serde_json::Result<Cow<'_, str>> {
    serde_json::from_str(json).map(|Step(text)| text)
}

/// A set that is read from text.
struct Text<'a> {
    set: FieldSet<'a>,
    /// The path to it is a member of the set around it.
    is_member: bool,
}

/// A name that is borrowed if it has no escapes.
#[derive(serde::Deserialize)]
struct Step<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Text<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a field set")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Text<'de>, A::Error> {
                let mut nodes = Vec::new();
                let (mut is_empty, mut has_dot) = (true, false);
                while let Some(Step(step)) = members.next_key()? {
                    is_empty = false;
                    if step == "." {
                        has_dot = true;
                        members.next_value::<IgnoredAny>()?;
                        continue;
                    }
                    let Text { set, is_member } = members.next_value()?;
                    let element = match step {
                        Cow::Borrowed(step) => PathElement::from_wire(step),
                        Cow::Owned(step) => PathElement::from_wire(&step)
                            .map(|element| element.map(PathElement::into_owned)),
                    };
                    if let Some(element) = element.map_err(A::Error::custom)? {
                        nodes.push(Node { element, member: is_member, children: set });
                    }
                }
                let set = FieldSet::from_nodes(nodes);
                Ok(Text { set, is_member: is_empty || has_dot })
            }
        }
        deserializer.deserialize_map(Members)
    }
}

/// Writes a step as a JSON text.
pub(super) fn push_step(out: &mut Vec<u8>, element: &PathElement<'_>) {
    match element {
        PathElement::Field(name) => push_field(out, name),
        PathElement::Key(key) => {
            push_key(out, key.iter().map(|(name, value)| (&**name, &**value)));
        }
        other => push_text(out, &text(other)),
    }
}

/// [`push_step`] of a field.
pub(super) fn push_field(out: &mut Vec<u8>, name: &str) {
    if !encode::is_verbatim(name) {
        return push_text(out, &field_text(name));
    }
    out.extend_from_slice(b"\"f:");
    out.extend_from_slice(name.as_bytes());
    out.push(b'"');
}

/// [`push_step`] of an element with these members of its key, in their order.
pub(super) fn push_key<'k>(
    out: &mut Vec<u8>,
    key: impl Iterator<Item = (&'k str, &'k Value)> + Clone,
) {
    if !key.clone().all(|(name, value)| is_simple(name, value)) {
        return push_text(out, &key_text(key));
    }
    // JSON within JSON.
    out.extend_from_slice(b"\"k:{");
    for (at, (name, value)) in key.enumerate() {
        let comma: &[u8] = if at > 0 { b",\\\"" } else { b"\\\"" };
        out.extend_from_slice(comma);
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\\\":");
        match value {
            Value::String(text) => {
                out.extend_from_slice(b"\\\"");
                out.extend_from_slice(text.as_bytes());
                out.extend_from_slice(b"\\\"");
            }
            other => encode::push(out, other),
        }
    }
    out.extend_from_slice(b"}\"");
}

/// Whether a key's member needs no escapes but those of its quotes.
fn is_simple(name: &str, value: &Value) -> bool {
    let is_plain = |text: &str| encode::is_verbatim(text) && text.is_ascii();
    is_plain(name)
        && match value {
            Value::String(text) => is_plain(text),
            Value::Number(number) => number.is_i64(),
            Value::Bool(_) => true,
            _ => false,
        }
}

pub(super) fn text(element: &PathElement<'_>) -> String {
    match element {
        PathElement::Field(name) => field_text(name),
        PathElement::Key(key) => key_text(key.iter().map(|(name, value)| (&**name, &**value))),
        PathElement::Value(value) => {
            let mut text = "v:".to_owned();
            push(&mut text, value);
            text
        }
        PathElement::Index(at) => format!("i:{at}"),
    }
}

fn field_text(name: &str) -> String {
    ["f:", name].concat()
}

fn key_text<'k>(key: impl Iterator<Item = (&'k str, &'k Value)>) -> String {
    let mut text = "k:{".to_owned();
    for (at, (name, value)) in key.enumerate() {
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
