//! YAML with JSON's data model: string keys, no tags beyond the core schema and `!!binary`, aliases
//! and merge keys expanded within limits.
//!
//! Plain scalars have the types that they have in the YAML library of Kubernetes, which are those
//! of YAML 1.1 in part: `on` and `y` are booleans, `010` is 8, `1_000` is a number; `1:30` is not.
use super::budget::Budget;
use super::{
    DecodeError, Decoded, YAML_ALIAS_BYTES_MAX, YAML_ALIAS_NODES_MAX, YAML_DEPTH_MAX, json, number,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use granit_parser::{Event, Options, Parser, ScalarStyle, Tag};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::HashMap;

/// The namespace of the tags that YAML itself has.
const YAML_NAMESPACE: &str = "tag:yaml.org,2002:";

pub(super) fn parse(body: &[u8]) -> Result<Decoded, DecodeError> {
    // Most bodies sent as YAML are JSON (kubectl's server-side apply): a JSON parser is faster and
    // exact. A text that it refuses may still be YAML.
    let text = String::from_utf8_lossy(body);
    if text.trim_start().starts_with('{')
        && let Ok(decoded) = json::parse(body)
        && decoded.problems.is_empty()
    {
        return Ok(decoded);
    }
    let mut options = Options::default();
    options.set_emit_comments(false);
    options.flow_nesting_limit = YAML_DEPTH_MAX;
    options.block_nesting_limit = YAML_DEPTH_MAX;
    let mut builder = Builder::default();
    for event in Parser::new_from_str_with_options(&text, options) {
        let (event, span) = event.map_err(|error| fault(error.marker().line(), error.info()))?;
        if builder.take(event, span.start.line())? {
            break;
        }
    }
    Ok(Decoded { value: builder.root.unwrap_or(Value::Null), problems: builder.problems })
}

fn fault(line: usize, what: impl std::fmt::Display) -> DecodeError {
    DecodeError(format!("error converting YAML to JSON: yaml: line {line}: {what}"))
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
        /** The key whose value comes next, and whether it is a plain `<<`. */
        key: Option<(String, bool)>,
        merges: Vec<Value>,
    },
}

impl Builder {
    /// Takes one event; `true` when the first document is complete.
    fn take(&mut self, event: Event<'_>, line: usize) -> Result<bool, DecodeError> {
        match event {
            Event::DocumentEnd => return Ok(true),
            Event::Scalar(text, style, anchor, tag) => {
                let is_merge = style == ScalarStyle::Plain && text == "<<";
                let value = scalar(text, style, tag.as_deref()).map_err(|e| fault(line, e))?;
                if anchor != 0 {
                    self.anchors.insert(anchor, (value.clone(), size(&value)));
                }
                if !self.begin_member(&value, is_merge, line)? {
                    self.add(value, line)?;
                }
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
                if !self.begin_member(&value, false, line)? {
                    self.add(value, line)?;
                }
            }
            _ => {}
        }
        Ok(false)
    }
    /// Takes a scalar as the key of a member, if a map waits for one.
    fn begin_member(
        &mut self,
        value: &Value,
        is_merge: bool,
        line: usize,
    ) -> Result<bool, DecodeError> {
        let Some(Frame { node: Open::Map { key: key @ None, members, .. }, .. }) =
            self.stack.last_mut()
        else {
            return Ok(false);
        };
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Bool(_) | Value::Number(_) => value.to_string(),
            Value::Null => return Err(fault(line, "unsupported map key of type: null")),
            Value::Array(_) | Value::Object(_) => {
                return Err(fault(line, "a map key must be a scalar"));
            }
        };
        if !is_merge && members.contains_key(&text) {
            super::note(&mut self.problems, || {
                format!("line {line}: key {value} already set in map")
            });
        }
        *key = Some((text, is_merge));
        Ok(true)
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
                Some((_, true)) => merges.push(value),
                Some((key, false)) => {
                    self.budget.member(members.len(), key.len())?;
                    members.insert(key, value);
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

/// A scalar: by its tag, or by its text if it is plain.
fn scalar(text: Cow<'_, str>, style: ScalarStyle, tag: Option<&Tag>) -> Result<Value, String> {
    let Some(tag) = tag else {
        let value = if style == ScalarStyle::Plain { plain(&text)? } else { None };
        return Ok(value.unwrap_or_else(|| Value::String(text.into_owned())));
    };
    let wanted = tag.suffix_in_namespace(YAML_NAMESPACE);
    match wanted.as_deref() {
        Some("bool" | "int" | "float" | "null") => {}
        Some("binary") => {
            let bytes = STANDARD.decode(text.as_bytes());
            let bytes = bytes.map_err(|_| "!!binary value contains invalid base64 data")?;
            return Ok(Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        }
        _ => return Ok(Value::String(text.into_owned())),
    }
    match (wanted.as_deref(), plain(&text)?) {
        (Some("bool"), Some(value @ Value::Bool(_)))
        | (Some("null"), Some(value @ Value::Null))
        | (Some("float"), Some(value @ Value::Number(_))) => Ok(value),
        (Some("int"), Some(value @ Value::Number(_))) if !value.is_f64() => Ok(value),
        (Some(wanted), found) => {
            let found = match found {
                Some(Value::Null) => "null",
                Some(Value::Bool(_)) => "bool",
                Some(Value::Number(_)) => "float",
                _ => "str",
            };
            Err(format!("cannot decode !!{found} `{text}` as a !!{wanted}"))
        }
        (None, _) => Ok(Value::String(text.into_owned())),
    }
}

/// The value of a plain scalar that is not a string.
fn plain(text: &str) -> Result<Option<Value>, String> {
    Ok(match text {
        "" | "~" | "null" | "Null" | "NULL" => Some(Value::Null),
        "true" | "True" | "TRUE" | "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => {
            Some(Value::Bool(true))
        }
        "false" | "False" | "FALSE" | "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => {
            Some(Value::Bool(false))
        }
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" | "-.inf" | "-.Inf" | "-.INF"
        | ".nan" | ".NaN" | ".NAN" => {
            return Err(format!("json: unsupported value: {text}"));
        }
        _ => numeric(text),
    })
}

/// A number: an integer with an optional prefix for its base, or a float. Underscores do not count.
fn numeric(text: &str) -> Option<Value> {
    if !text.starts_with(|c: char| matches!(c, '+' | '-' | '.') || c.is_ascii_digit()) {
        return None;
    }
    let text = match text.starts_with('.') {
        true => Cow::Borrowed(text),
        false => Cow::Owned(text.replace('_', "")),
    };
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(&text);
    let (radix, digits) = match unsigned.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &unsigned[2..]),
        [b'0', b'o' | b'O', ..] => (8, &unsigned[2..]),
        [b'0', b'b' | b'B', ..] => (2, &unsigned[2..]),
        [b'0', _, ..] => (8, &unsigned[1..]),
        _ => (10, unsigned),
    };
    // Neither a sign nor a fraction is a digit of any base.
    if digits.bytes().all(|b| b.is_ascii_alphanumeric())
        && let Ok(amount) = u64::from_str_radix(digits, radix)
    {
        if !text.starts_with('-') {
            return number::integer(&amount.to_string());
        }
        if let Ok(number) = i64::try_from(-i128::from(amount)) {
            return Some(Value::from(number));
        }
    }
    if is_float(unsigned) { text.parse::<f64>().ok().and_then(number::float) } else { None }
}

/// Whether a text without a sign is a decimal float.
fn is_float(unsigned: &str) -> bool {
    let are_digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let exponent = exponent.map(|text| text.strip_prefix(['-', '+']).unwrap_or(text));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    are_digits(whole)
        && are_digits(fraction)
        && !(whole.is_empty() && fraction.is_empty())
        && exponent.is_none_or(|text| !text.is_empty() && are_digits(text))
}
