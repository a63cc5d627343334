//! Trees as values, and values as trees.

use std::sync::LazyLock;

use base64::Engine;
use serde_json::Value as Json;

use super::{Duration, Fuel, Key, List, Map, Object, Str, Timestamp, Value};
use crate::decl::{DeclKind, DeclType, ListType};
use crate::eval::Error;

static DYNAMIC: LazyLock<DeclType> = LazyLock::new(|| DeclType::int_or_string(None));
static ATOMIC: ListType = ListType::Atomic;

/// The most bytes of the JSON of a value: 64 MiB, as much as an evaluation may make.
const JSON_BYTES_MAX: usize = 64 << 20;

/// The most bytes of an invalid text that an error shows.
const SHOWN_BYTES_MAX: usize = 1 << 10;

/// What is left of the bytes of a value as JSON.
pub(super) struct Room(usize);

impl Default for Room {
    fn default() -> Self {
        Self(JSON_BYTES_MAX)
    }
}

impl Room {
    /// Takes the room of a part, with its text.
    fn take(&mut self, text: usize) -> Option<()> {
        self.0 = self.0.checked_sub(size_of::<Json>().saturating_add(text))?;
        Some(())
    }

    /// Takes the room of a tree.
    fn take_tree(&mut self, tree: &Json) -> Option<()> {
        match tree {
            Json::String(text) => self.take(text.len()),
            Json::Array(items) => {
                self.take(0)?;
                items.iter().try_for_each(|item| self.take_tree(item))
            }
            Json::Object(map) => self.take_map(map),
            _ => self.take(0),
        }
    }

    fn take_map(&mut self, map: &serde_json::Map<String, Json>) -> Option<()> {
        self.take(0)?;
        map.iter().try_for_each(|(key, tree)| {
            self.take(key.len())?;
            self.take_tree(tree)
        })
    }
}

/// The beginning of a text that an error shows.
fn shown(text: &str) -> &str {
    &text[..text.floor_char_boundary(SHOWN_BYTES_MAX)]
}

/// Whether two trees are equal.
///
/// # Errors
///
/// The fuel is used up.
pub(super) fn equals(a: &Json, b: &Json, fuel: &mut Fuel) -> Result<bool, Error> {
    fuel.take(1)?;
    Ok(match (a, b) {
        (Json::String(a), Json::String(b)) => {
            fuel.read(if a.len() == b.len() { a.len() } else { 0 })?;
            a == b
        }
        (Json::Array(a), Json::Array(b)) => {
            if a.len() != b.len() {
                return Ok(false);
            }
            for (a, b) in a.iter().zip(b) {
                if !equals(a, b, fuel)? {
                    return Ok(false);
                }
            }
            true
        }
        (Json::Object(a), Json::Object(b)) => {
            if a.len() != b.len() {
                return Ok(false);
            }
            for (key, a) in a {
                fuel.read(key.len())?;
                let Some(b) = b.get(key) else { return Ok(false) };
                if !equals(a, b, fuel)? {
                    return Ok(false);
                }
            }
            true
        }
        (a, b) => a == b,
    })
}

/// How many bytes are read to make the value of a tree.
pub(super) fn read_bytes(tree: &Json, decl: &DeclType) -> usize {
    let is_read = matches!(
        decl.kind,
        DeclKind::Bytes | DeclKind::Timestamp | DeclKind::Date | DeclKind::Duration
    );
    tree.as_str().filter(|_| is_read).map_or(0, str::len)
}

pub(super) fn dynamic(tree: &Json) -> Value<'_> {
    match tree {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(number) => match number.as_i64() {
            Some(value) => Value::Int(value),
            None => Value::Double(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::String(Str::Borrowed(text)),
        Json::Array(items) => Value::List(List::json(items, &DYNAMIC, &ATOMIC)),
        Json::Object(map) => Value::Map(Map::json(map, &DYNAMIC)),
    }
}

pub(super) fn view<'v>(tree: &'v Json, decl: &'v DeclType) -> Result<Value<'v>, Error> {
    let expected = |what: &str| {
        let found = setpoint_object::field::go_type(tree);
        Error::Message(format!("invalid data, expected {what}, got {found}").into())
    };
    let lacks = |what: &str, of: &str| {
        let text = format!("invalid data, expected {what} for the provided schema with type={of}");
        Error::Message(text.into())
    };
    if tree.is_null() {
        return Ok(Value::Null);
    }
    let text = || tree.as_str().ok_or_else(|| expected("string"));
    Ok(match &decl.kind {
        DeclKind::Dyn => dynamic(tree),
        DeclKind::Bool => Value::Bool(tree.as_bool().ok_or_else(|| expected("bool"))?),
        DeclKind::Int => match (tree.as_i64(), tree.as_f64()) {
            (Some(value), _) => Value::Int(value),
            // 1.0 and 1e3 are integers in JSON.
            (None, Some(value)) if value.fract() == 0.0 && value.abs() < 2f64.powi(63) => {
                Value::Int(value as i64)
            }
            _ => return Err(expected("int")),
        },
        DeclKind::Double => Value::Double(tree.as_f64().ok_or_else(|| expected("float"))?),
        DeclKind::String => Value::String(Str::Borrowed(text()?)),
        // The alphabet of URLs, as Kubernetes reads the format.
        DeclKind::Bytes => {
            let text = text()?;
            let bytes =
                base64::engine::general_purpose::URL_SAFE.decode(text).map_err(|error| {
                    let at = match error {
                        base64::DecodeError::InvalidByte(at, _) => at,
                        _ => text.len(),
                    };
                    let why = format!("illegal base64 data at input byte {at}");
                    Error::Message(
                        format!("Invalid byte formatted string {}: {why}", shown(text)).into(),
                    )
                })?;
            Value::Bytes(bytes.into())
        }
        DeclKind::Timestamp => {
            let text = text()?;
            Value::Timestamp(Timestamp::parse_lenient(text).ok_or_else(|| {
                Error::Message(format!("Invalid date-time formatted string {}", shown(text)).into())
            })?)
        }
        DeclKind::Date => {
            let text = text()?;
            Value::Timestamp(Timestamp::parse_date(text).ok_or_else(|| {
                Error::Message(format!("Invalid date formatted string {}", shown(text)).into())
            })?)
        }
        DeclKind::Duration => {
            let text = text()?;
            Value::Duration(Duration::parse_lenient(text).ok_or_else(|| {
                Error::Message(format!("Invalid duration {}", shown(text)).into())
            })?)
        }
        DeclKind::List { items, list } => Value::List(List::json(
            tree.as_array().ok_or_else(|| lacks("an array", "array"))?,
            items,
            list,
        )),
        DeclKind::Map { values } => {
            Value::Map(Map::json(tree.as_object().ok_or_else(|| lacks("a map", "object"))?, values))
        }
        DeclKind::Object(object) => Value::Object(Object::json(
            tree.as_object().ok_or_else(|| lacks("a map", "object"))?,
            object,
        )),
    })
}

pub(super) fn to_json(value: &Value<'_>, room: &mut Room) -> Option<Json> {
    room.take(value.text_bytes())?;
    Some(match value {
        Value::Null => Json::Null,
        Value::Bool(value) => (*value).into(),
        Value::Int(value) => (*value).into(),
        Value::Uint(value) => (*value).into(),
        Value::Double(value) => serde_json::Number::from_f64(*value)?.into(),
        Value::String(text) => (**text).into(),
        Value::Bytes(bytes) => base64::engine::general_purpose::STANDARD.encode(bytes).into(),
        Value::Duration(duration) => duration.to_string().into(),
        Value::Timestamp(time) => time.to_string().into(),
        Value::List(list) => {
            list.iter().map(|item| to_json(&item.ok()?, room)).collect::<Option<Vec<_>>>()?.into()
        }
        Value::Map(map) => {
            let mut object = serde_json::Map::new();
            for key in map.keys() {
                let name = match Key::of(&key)? {
                    Key::String(text) => text.to_string(),
                    Key::Bool(value) => value.to_string(),
                    Key::Number(value, _) => value.to_string(),
                };
                room.take(name.len())?;
                object.insert(name, to_json(&map.get(&key)?.ok()?, room)?);
            }
            object.into()
        }
        Value::Object(object) => {
            room.take_map(object.map)?;
            Json::Object(object.map.clone())
        }
        Value::Optional(Some(value)) => to_json(value, room)?,
        Value::Optional(None) => Json::Null,
        Value::Type(_) | Value::Opaque(_) => return None,
    })
}
