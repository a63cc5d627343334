//! YAML with JSON's data model: string keys, aliases and merge keys expanded within limits.
//!
//! Plain scalars have the types that Go's decoder gives them, which are those of YAML 1.1: `yes`
//! and `on` are booleans, `0644` and `0o644` are octal, `1_000` is a number. Timestamps are
//! strings.

mod fault;

use super::budget::Budget;
use super::syntax::has_lone_surrogates;
use super::{
    DecodeError, Decoded, YAML_ALIAS_BYTES_MAX, YAML_ALIAS_NODES_MAX, YAML_DEPTH_MAX, json, number,
};
use crate::patch::notation::go_syntax;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use granit_parser::{Event, Options, Parser, ScalarStyle, Tag};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::HashMap;

pub(super) fn parse(body: &[u8]) -> Result<Decoded, DecodeError> {
    // Most bodies sent as YAML are JSON (kubectl's server-side apply): a JSON parser is faster and
    // exact. A text that it refuses may still be YAML.
    let text = text(body)?;
    if text.trim_start_matches([' ', '\n', '\r']).starts_with('{')
        && let Ok(decoded) = json::parse(body)
        && decoded.problems.is_empty()
        && !(text.contains("\\u") && has_lone_surrogates(text))
    {
        return Ok(decoded);
    }
    if !text.chars().all(is_allowed) {
        return Err(DecodeError("yaml: control characters are not allowed".to_owned()));
    }
    if let Some(fault) = fault::leading_tab(text) {
        return Err(DecodeError(format!("yaml: {fault}")));
    }
    let mut options = Options::default();
    options.set_emit_comments(false);
    options.flow_nesting_limit = YAML_DEPTH_MAX;
    options.block_nesting_limit = YAML_DEPTH_MAX;
    let mut builder = Builder::default();
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = match event {
            Ok(event) => event,
            Err(error) => {
                // Go does not look at a bracket that follows a document.
                if let Some(document) = fault::flow_before(text, &error) {
                    return parse(document.as_bytes());
                }
                return Err(DecodeError(format!("yaml: {}", fault::message(text, &error))));
            }
        };
        if builder.take(event, span.start.line())? {
            break;
        }
    }
    match builder.late {
        Some(fault) => Err(DecodeError(fault)),
        None => {
            Ok(Decoded { value: builder.root.unwrap_or(Value::Null), problems: builder.problems })
        }
    }
}

/// The text of a body. What is no UTF-8 is refused in the words of Go's reader, not replaced as in
/// JSON.
fn text(body: &[u8]) -> Result<&str, DecodeError> {
    std::str::from_utf8(body).map_err(|error| {
        let why = match body.get(error.valid_up_to()..).unwrap_or_default() {
            rest @ [0xc0..=0xdf, ..] => octets(rest, 2),
            rest @ [0xe0..=0xef, ..] => octets(rest, 3),
            rest @ [0xf0..=0xf7, ..] => octets(rest, 4),
            _ => "invalid leading UTF-8 octet",
        };
        DecodeError(format!("yaml: {why}"))
    })
}

/// What is wrong with the octets of a character.
fn octets(rest: &[u8], width: usize) -> &'static str {
    match rest.get(..width) {
        None => "incomplete UTF-8 octet sequence",
        Some([_, others @ ..]) if others.iter().any(|octet| octet & 0xc0 != 0x80) => {
            "invalid trailing UTF-8 octet"
        }
        Some([0xc0 | 0xc1, ..] | [0xe0, ..0xa0, ..] | [0xf0, ..0x90, ..]) => {
            "invalid length of a UTF-8 sequence"
        }
        Some(_) => "invalid Unicode character",
    }
}

/// The characters of YAML 1.1 (production 1).
fn is_allowed(character: char) -> bool {
    matches!(
        character,
        '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{fffd}' | '\u{10000}'..
    )
}

fn fault(line: usize, what: impl std::fmt::Display) -> DecodeError {
    DecodeError(format!("yaml: line {line}: {what}"))
}

/// Builds a tree from events with an explicit stack, so that depth is heap and bounded.
#[derive(Default)]
struct Builder {
    stack: Vec<Frame>,
    anchors: HashMap<usize, (Value, Size)>,
    expanded: Size,
    budget: Budget,
    root: Option<Value>,
    problems: Vec<String>,
    /// What cannot be said in JSON, which Go finds once all of the text is read.
    late: Option<String>,
}
/// How much an alias expands to.
#[derive(Debug, Clone, Copy, Default)]
struct Size {
    nodes: usize,
    /// Bytes of text: keys and scalars.
    bytes: usize,
}
struct Frame {
    anchor: usize,
    node: Open,
}
enum Open {
    Seq(Vec<Value>),
    Map {
        members: Map<String, Value>,
        /** The key whose value comes next. */
        key: Option<Key>,
        merges: Vec<Value>,
    },
}

enum Key {
    Name(String),
    /** A plain `<<`. */
    Merge,
    /** None that JSON can have. */
    Null,
}

impl Builder {
    /// Takes one event; `true` when the first document is complete.
    fn take(&mut self, event: Event<'_>, line: usize) -> Result<bool, DecodeError> {
        match event {
            Event::DocumentEnd => return Ok(true),
            Event::Scalar(text, style, anchor, tag) => {
                let is_merge = style == ScalarStyle::Plain && text == "<<";
                if let Some(Frame { node: Open::Map { key: key @ None, members, .. }, .. }) =
                    self.stack.last_mut()
                {
                    let text = match is_merge {
                        true => Some(text),
                        false => key_text(text, style, tag.as_deref())
                            .map_err(|error| fault(line, error))?,
                    };
                    let Some(text) = text else {
                        *key = Some(Key::Null);
                        return Ok(false);
                    };
                    if !is_merge && members.contains_key(&*text) {
                        super::note(&mut self.problems, || {
                            format!("line {line}: key {text:?} already set in map")
                        });
                    }
                    if anchor != 0 {
                        let key = Value::String(text.clone().into_owned());
                        let size = size(&key);
                        self.anchors.insert(anchor, (key, size));
                    }
                    *key = Some(if is_merge { Key::Merge } else { Key::Name(text.into_owned()) });
                    return Ok(false);
                }
                if style == ScalarStyle::Plain
                    && tag.is_none()
                    && let Some(number) = unwritable(&text)
                {
                    self.late.get_or_insert_with(|| format!("json: unsupported value: {number}"));
                }
                let value = scalar(text, style, tag.as_deref()).map_err(|e| fault(line, e))?;
                if anchor != 0 {
                    self.anchors.insert(anchor, (value.clone(), size(&value)));
                }
                self.add(value, line)?;
            }
            Event::SequenceStart(_, anchor, _) => {
                self.open(anchor, Open::Seq(Vec::new()), line)?;
            }
            Event::MappingStart(_, anchor, _) => {
                let node = Open::Map { members: Map::new(), key: None, merges: Vec::new() };
                self.open(anchor, node, line)?;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(frame) = self.stack.pop() else { return Ok(false) };
                let value = match frame.node {
                    Open::Seq(items) => Value::Array(items),
                    Open::Map { mut members, merges, .. } => {
                        merge(&mut members, merges).map_err(|e| fault(line, e))?;
                        Value::Object(members)
                    }
                };
                if frame.anchor != 0 {
                    let size = size(&value);
                    self.expand(size, line)?;
                    self.anchors.insert(frame.anchor, (value.clone(), size));
                }
                self.add(value, line)?;
            }
            Event::Alias(id) => {
                let Some(&(_, size)) = self.anchors.get(&id) else {
                    return Err(fault(line, "unknown anchor referenced"));
                };
                self.expand(size, line)?;
                let Some((value, _)) = self.anchors.get(&id) else { return Ok(false) };
                if self.stack.len() + depth(value) > YAML_DEPTH_MAX {
                    return Err(fault(line, "exceeded max depth"));
                }
                let value = value.clone();
                if let (
                    Some(Frame { node: Open::Map { key: key @ None, members, .. }, .. }),
                    Value::String(text),
                ) = (self.stack.last_mut(), &value)
                {
                    if members.contains_key(text) {
                        super::note(&mut self.problems, || {
                            format!("line {line}: key {text:?} already set in map")
                        });
                    }
                    *key = Some(Key::Name(text.clone()));
                    return Ok(false);
                }
                self.add(value, line)?;
            }
            _ => {}
        }
        Ok(false)
    }
    /// Counts what is about to be cloned.
    fn expand(&mut self, size: Size, line: usize) -> Result<(), DecodeError> {
        let Size { nodes, bytes } = &mut self.expanded;
        *nodes = nodes.saturating_add(size.nodes);
        *bytes = bytes.saturating_add(size.bytes);
        if *nodes > YAML_ALIAS_NODES_MAX || *bytes > YAML_ALIAS_BYTES_MAX {
            return Err(fault(line, "document contains excessive aliasing"));
        }
        Ok(())
    }
    fn open(&mut self, anchor: usize, node: Open, line: usize) -> Result<(), DecodeError> {
        if self.stack.len() >= YAML_DEPTH_MAX {
            return Err(fault(line, "exceeded max depth"));
        }
        if let Some(Frame { node: Open::Map { key: None, .. }, .. }) = self.stack.last() {
            return Err(fault(line, "a map key must be a scalar"));
        }
        self.stack.push(Frame { anchor, node });
        Ok(())
    }
    fn add(&mut self, value: Value, line: usize) -> Result<(), DecodeError> {
        self.budget.value(value.as_str().map_or(0, str::len))?;
        match self.stack.last_mut().map(|frame| &mut frame.node) {
            None => self.root = Some(value),
            Some(Open::Seq(items)) => items.push(value),
            Some(Open::Map { members, key, merges }) => match key.take() {
                Some(Key::Merge) => merges.push(value),
                Some(Key::Name(key)) => {
                    self.budget.member(members.len(), key.len())?;
                    members.insert(key, value);
                }
                Some(Key::Null) => {
                    let value = match value {
                        Value::Null => "<nil>".to_owned(),
                        value => go_syntax(&value, "interface {}"),
                    };
                    self.late = Some(format!(
                        "unsupported map key of type: %!s(<nil>), key: <nil>, value: {value}"
                    ));
                }
                None => return Err(fault(line, "a map key must be a scalar")),
            },
        }
        Ok(())
    }
}

/// `<<`: members of the maps it names that the map itself lacks; the first map that has one wins.
fn merge(members: &mut Map<String, Value>, merges: Vec<Value>) -> Result<(), &'static str> {
    for value in merges {
        let maps = match value {
            Value::Array(maps) => maps,
            map => vec![map],
        };
        for map in maps {
            let Value::Object(map) = map else {
                return Err("map merge requires map or sequence of maps as the value");
            };
            for (key, value) in map {
                members.entry(key).or_insert(value);
            }
        }
    }
    Ok(())
}

fn size(value: &Value) -> Size {
    let sum = |a: Size, b: Size| Size { nodes: a.nodes + b.nodes, bytes: a.bytes + b.bytes };
    let own = |bytes| Size { nodes: 1, bytes };
    match value {
        Value::String(text) => own(text.len()),
        Value::Array(items) => items.iter().map(size).fold(own(0), sum),
        Value::Object(members) => members.iter().fold(own(0), |a, (key, value)| {
            sum(sum(a, Size { nodes: 0, bytes: key.len() }), size(value))
        }),
        _ => own(0),
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// The namespace of YAML's own tags.
const TAGS: &str = "tag:yaml.org,2002:";

/// The value of a scalar.
fn scalar(text: Cow<'_, str>, style: ScalarStyle, tag: Option<&Tag>) -> Result<Value, String> {
    let Some(tag) = tag else {
        let value = if style == ScalarStyle::Plain { plain(&text)? } else { None };
        return Ok(value.unwrap_or_else(|| Value::String(text.into_owned())));
    };
    let wanted = tag.suffix_in_namespace(TAGS);
    let wanted = wanted.as_deref().unwrap_or_default();
    let value = match wanted {
        "bool" | "int" | "float" | "null" => plain(&text)?,
        "binary" => {
            let packed: String = text.split(['\r', '\n']).collect();
            let bytes =
                BASE64.decode(packed).map_err(|_| "!!binary value contains invalid base64 data")?;
            return Ok(Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        }
        // Strings, timestamps, and scalars of tags that mean nothing here.
        _ => return Ok(Value::String(text.into_owned())),
    };
    match (wanted, &value) {
        ("bool", Some(Value::Bool(_)))
        | ("int" | "float", Some(Value::Number(_)))
        | ("null", Some(Value::Null)) => Ok(value.unwrap_or_default()),
        _ => {
            let found = match value {
                None => "str",
                Some(Value::Null) => "null",
                Some(Value::Bool(_)) => "bool",
                Some(_) => "int",
            };
            Err(format!("cannot decode !!{found} `{text}` as a !!{wanted}"))
        }
    }
}

/// The text of a map's key: a key is a scalar like any other. `None`: it is null.
fn key_text<'a>(
    text: Cow<'a, str>,
    style: ScalarStyle,
    tag: Option<&Tag>,
) -> Result<Option<Cow<'a, str>>, String> {
    if tag.is_none() && style != ScalarStyle::Plain {
        return Ok(Some(text));
    }
    if tag.is_none() && unwritable(&text).is_some() {
        let name = text.trim_start_matches('+').to_ascii_lowercase();
        return Ok(Some(name.into()));
    }
    Ok(match scalar(text, style, tag)? {
        Value::String(text) => Some(text.into()),
        Value::Null => None,
        value => Some(value.to_string().into()),
    })
}

/// A plain scalar that is a number which JSON cannot write, as Go shows it.
fn unwritable(text: &str) -> Option<&'static str> {
    match text {
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Some("+Inf"),
        "-.inf" | "-.Inf" | "-.INF" => Some("-Inf"),
        ".nan" | ".NaN" | ".NAN" => Some("NaN"),
        _ => None,
    }
}

/// The value of a plain scalar that is not a string.
fn plain(text: &str) -> Result<Option<Value>, String> {
    Ok(match text {
        "" | "~" | "null" | "Null" | "NULL" => Some(Value::Null),
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Some(Value::Bool(true))
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Some(Value::Bool(false))
        }
        // The builder refuses it.
        _ if unwritable(text).is_some() => Some(Value::from(0)),
        _ => numeric(text),
    })
}

/// The value of a number: an integer in any of Go's bases, or a decimal float.
fn numeric(text: &str) -> Option<Value> {
    // Underscores separate digits, but not those of a float without an integer part.
    let packed: Cow<'_, str> = match text.bytes().next()? {
        b'0'..=b'9' | b'+' | b'-' if text.contains('_') => text.replace('_', "").into(),
        b'0'..=b'9' | b'+' | b'-' | b'.' => text.into(),
        _ => return None,
    };
    if let Some(value) = integer(&packed) {
        return Some(value);
    }
    if is_float(&packed) { packed.parse::<f64>().ok().and_then(number::float) } else { None }
}

/// An integer: `0x`, `0o`, `0b` and a leading zero give the base.
fn integer(text: &str) -> Option<Value> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (radix, digits) = match unsigned.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &unsigned[2..]),
        [b'0', b'o' | b'O', ..] => (8, &unsigned[2..]),
        [b'0', b'b' | b'B', ..] => (2, &unsigned[2..]),
        [b'0', _, ..] => (8, &unsigned[1..]),
        _ => (10, unsigned),
    };
    if !digits.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return None;
    }
    let size = u64::from_str_radix(digits, radix).ok()?;
    if text.starts_with('-') {
        return 0i64.checked_sub_unsigned(size).map(Value::from);
    }
    match i64::try_from(size) {
        Ok(number) => Some(number.into()),
        // Only what has no sign is unsigned.
        Err(_) if unsigned.len() == text.len() => number::float(size as f64),
        Err(_) => None,
    }
}

/// Whether a text is `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`.
fn is_float(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (number, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((number, exponent)) => (number, Some(exponent)),
        None => (unsigned, None),
    };
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let is_number = match number.split_once('.') {
        None => is_digits(number),
        Some(("", part)) => is_digits(part),
        Some((whole, part)) => is_digits(whole) && (part.is_empty() || is_digits(part)),
    };
    let is_exponent = |text: &str| is_digits(text.strip_prefix(['-', '+']).unwrap_or(text));
    is_number && exponent.is_none_or(is_exponent)
}
