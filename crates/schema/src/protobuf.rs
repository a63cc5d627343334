//! Built-in kinds in protobuf, for answers: from the JSON that an object is at rest to the bytes that Go clients read fastest.
//!
//! ```text
//! "k8s\0"  Unknown { typeMeta = 1 { apiVersion = 1, kind = 2 }, raw = 2, contentEncoding = 3, contentType = 4 }
//!                                                               └ the message of that kind
//! ```
//!
//! The tables know the number of each field. Fields that are no pointers in Go are written although they are absent (`""`, `0`, an
//! empty message), in the order of their numbers, and maps by key, so that equal objects are equal bytes, and the very bytes of the
//! reference server as far as no field holds free-form JSON. Bodies that clients send are read by [`crate::decode`].
//!
//! A message is preceded by its length. It is therefore written from its end to its beginning, and the whole turned round last.

mod special;
#[cfg(test)]
mod tests;
mod writer;

use serde_json::{Map, Value};
use setpoint_facts::{DEFINITIONS, Definition, Field, Presence, Type};
use writer::Writer;

/// What an object in protobuf begins with.
pub const MAGIC: &[u8] = b"k8s\0";

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

/// Why an object cannot be written in protobuf.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The kind is not one of the built-in ones.
    #[error("no kind {kind:?} is registered for version {api_version:?}")]
    UnknownKind {
        /// `apiVersion` of the object.
        api_version: String,
        /// `kind` of the object.
        kind: String,
    },
    /// The bytes are no JSON.
    #[error("parse the object")]
    Json(#[from] serde_json::Error),
    /// A member holds what its type cannot.
    #[error("the value of a field named {field:?} is no {wanted}")]
    Value {
        /// Name of the member; empty for an item or the object itself.
        field: &'static str,
        /// What it should be.
        wanted: &'static str,
    },
}

/// Whether objects of a kind can be written in protobuf.
pub fn has_kind(group: &str, version: &str, kind: &str) -> bool {
    setpoint_facts::kind(group, version, kind).is_some()
}

/// An object of a built-in kind, a `Status` or a `PartialObjectMetadata` in its envelope.
///
/// # Errors
/// Objects of other kinds, or that do not have the shape of their type; those at rest have it.
pub fn object(json: &[u8]) -> Result<Vec<u8>, EncodeError> {
    let tree: Value = serde_json::from_slice(json)?;
    let members = tree.as_object().ok_or(EncodeError::Value { field: "", wanted: "object" })?;
    let name = |member: &str| members.get(member).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (name("apiVersion"), name("kind"));
    let shape = Shape::of(api_version, kind)?;
    let mut writer = Writer::with_capacity(json.len());
    envelope(&mut writer, api_version, kind, |writer| shape.write(writer, members))?;
    Ok(writer.finish())
}

/// A list in its envelope, put together from its `metadata` and items, all in JSON; `kind` is that of the list.
///
/// Only one item is a tree at a time. Lists of built-in kinds and `PartialObjectMetadataList` can be written.
///
/// # Errors
/// As [`object`].
pub fn list<'a>(
    api_version: &str,
    kind: &str,
    metadata: &str,
    items: impl DoubleEndedIterator<Item = &'a [u8]>,
) -> Result<Vec<u8>, EncodeError> {
    let item_kind = kind.strip_suffix("List").unwrap_or(kind);
    let shape = Shape::of(api_version, item_kind)?;
    let metadata: Value = serde_json::from_str(metadata)?;
    let mut writer = Writer::with_capacity(metadata_bytes(&items));
    envelope(&mut writer, api_version, kind, |writer| {
        for item in items.rev() {
            let tree: Value = serde_json::from_slice(item)?;
            let members =
                tree.as_object().ok_or(EncodeError::Value { field: "", wanted: "object" })?;
            writer.message(2, |writer| shape.write(writer, members))?;
        }
        writer.message(1, |writer| match (meta("ListMeta"), &metadata) {
            (Some(definition), Value::Object(members)) => fields(writer, definition, members),
            _ => Ok(()),
        })
    })?;
    Ok(writer.finish())
}

/// Bytes to begin with for a list: a kibibyte for each item that is known to come.
fn metadata_bytes<'a>(items: &impl Iterator<Item = &'a [u8]>) -> usize {
    items.size_hint().0.saturating_mul(1024).saturating_add(256)
}

/// A watch's `WatchEvent` around an object that is already in its envelope ([`object`]); streams hold it without one of its own.
pub fn watch_event(event: &str, object: &[u8]) -> Vec<u8> {
    let mut writer = Writer::with_capacity(object.len() + 32);
    writer.wrapped_bytes(2, object);
    writer.bytes(1, event.as_bytes());
    writer.finish()
}

/// What the message of a kind is.
#[derive(Debug, Clone, Copy)]
enum Shape {
    /// All of a definition's fields.
    Whole(&'static Definition),
    /// `PartialObjectMetadata`: the metadata alone, as field 1.
    Metadata(&'static Definition),
}

impl Shape {
    fn of(api_version: &str, kind: &str) -> Result<Self, EncodeError> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let found = match (group, kind) {
            ("meta.k8s.io", "PartialObjectMetadata") => meta("ObjectMeta").map(Self::Metadata),
            ("" | "meta.k8s.io", "Status") => meta("Status").map(Self::Whole),
            _ => setpoint_facts::kind(group, version, kind)
                .and_then(|at| DEFINITIONS.get(usize::from(at)))
                .map(Self::Whole),
        };
        found.ok_or_else(|| EncodeError::UnknownKind {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
        })
    }

    fn write(self, writer: &mut Writer, members: &Map<String, Value>) -> Result<(), EncodeError> {
        match self {
            Self::Whole(definition) => fields(writer, definition, members),
            Self::Metadata(definition) => writer.message(1, |writer| {
                let metadata = members.get("metadata").and_then(Value::as_object);
                fields(writer, definition, metadata.unwrap_or(&Map::new()))
            }),
        }
    }
}

fn meta(name: &str) -> Option<&'static Definition> {
    DEFINITIONS.get(usize::from(setpoint_facts::definition(&format!("{META}{name}"))?))
}

fn envelope(
    writer: &mut Writer,
    api_version: &str,
    kind: &str,
    raw: impl FnOnce(&mut Writer) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    writer.bytes(4, b"");
    writer.bytes(3, b"");
    writer.message(2, raw)?;
    writer.message(1, |writer| {
        writer.bytes(2, kind.as_bytes());
        writer.bytes(1, api_version.as_bytes());
        Ok(())
    })?;
    writer.plain(MAGIC);
    Ok(())
}

/// The fields of a message, from the last to the first.
fn fields(
    writer: &mut Writer,
    definition: &'static Definition,
    members: &Map<String, Value>,
) -> Result<(), EncodeError> {
    within(writer, definition, definition.protobuf, 0, members)
}

/// The fields of the message that is `depth` numbers into the ways of `indices`: JSON lifts its members to where the message stands.
fn within(
    writer: &mut Writer,
    definition: &'static Definition,
    indices: &'static [u8],
    depth: usize,
    members: &Map<String, Value>,
) -> Result<(), EncodeError> {
    let way = |at: u8| definition.fields.get(usize::from(at)).map_or(&[][..], |f| f.protobuf);
    let number = |at: &u8| way(*at).get(depth).copied().unwrap_or_default();
    for group in indices.chunk_by(|a, b| number(a) == number(b)).rev() {
        let Some(first) = group.first() else { continue };
        let Some(field) = definition.fields.get(usize::from(*first)) else { continue };
        let number = u32::from(number(first));
        if field.protobuf.len() > depth + 1 {
            writer
                .message(number, |writer| within(writer, definition, group, depth + 1, members))?;
        } else {
            member(writer, number, field, members.get(field.name))?;
        }
    }
    Ok(())
}

fn member(
    writer: &mut Writer,
    number: u32,
    field: &'static Field,
    value: Option<&Value>,
) -> Result<(), EncodeError> {
    let wrong = |wanted| EncodeError::Value { field: field.name, wanted };
    match (field.ty, value) {
        (Type::List(_) | Type::Map(_), None | Some(Value::Null)) => Ok(()),
        (Type::List(of), Some(value)) => {
            let items = value.as_array().ok_or_else(|| wrong("list"))?;
            for item in items.iter().rev() {
                single(writer, number, field.name, of, item)?;
            }
            Ok(())
        }
        (Type::Map(of), Some(value)) => {
            let map = value.as_object().ok_or_else(|| wrong("map"))?;
            let mut entries: Vec<(&String, &Value)> = map.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            for (key, value) in entries.into_iter().rev() {
                writer.message(number, |writer| {
                    if !(value.is_null() && *of == Type::Bytes) {
                        single(writer, 2, field.name, of, value)?;
                    }
                    writer.bytes(1, key.as_bytes());
                    Ok(())
                })?;
            }
            Ok(())
        }
        (_, None | Some(Value::Null)) if is_pointer(field) => Ok(()),
        (_, value) => single(writer, number, field.name, &field.ty, value.unwrap_or(&Value::Null)),
    }
}

/// Whether nothing is written for a field that is absent.
fn is_pointer(field: &Field) -> bool {
    let is_value = match field.ty {
        // Times and free-form JSON whose zero value is `null`.
        Type::Time | Type::MicroTime => true,
        Type::Ref(at) => {
            DEFINITIONS.get(usize::from(at)).is_some_and(|definition| definition.ty == Type::Any)
        }
        _ => false,
    };
    match field.presence {
        Presence::Pointer => true,
        Presence::Null => !is_value,
        Presence::Omitted => field.ty == Type::Bytes,
        Presence::Always => false,
    }
}

/// One value with its number. `null` is the type's zero value.
fn single(
    writer: &mut Writer,
    number: u32,
    field: &'static str,
    ty: &Type,
    value: &Value,
) -> Result<(), EncodeError> {
    let wrong = |wanted| EncodeError::Value { field, wanted };
    match ty {
        Type::Str => writer.bytes(number, text(field, value)?.as_bytes()),
        Type::Int => {
            let integer = match value {
                Value::Null => 0,
                value => value.as_i64().ok_or_else(|| wrong("integer"))?,
            };
            writer.varint(number, integer.cast_unsigned());
        }
        Type::Num => {
            let float = match value {
                Value::Null => 0.0,
                value => value.as_f64().ok_or_else(|| wrong("number"))?,
            };
            writer.double(number, float);
        }
        Type::Bool => {
            let flag = match value {
                Value::Null => false,
                value => value.as_bool().ok_or_else(|| wrong("boolean"))?,
            };
            writer.varint(number, u64::from(flag));
        }
        Type::Ref(at) => match DEFINITIONS.get(usize::from(*at)) {
            Some(definition) if definition.ty == Type::Object => {
                let empty = Map::new();
                let members = match value {
                    Value::Null => &empty,
                    value => value.as_object().ok_or_else(|| wrong("object"))?,
                };
                writer.message(number, |writer| fields(writer, definition, members))?;
            }
            Some(definition) if definition.ty == Type::Any => {
                special::any(writer, number, field, definition.name, value)?;
            }
            Some(definition) => single(writer, number, field, &definition.ty, value)?,
            None => {}
        },
        // A list where a field cannot repeat is a message with that list.
        Type::List(of) => writer.message(number, |writer| {
            for item in value.as_array().into_iter().flatten().rev() {
                single(writer, 1, field, of, item)?;
            }
            Ok(())
        })?,
        Type::Bytes | Type::Quantity | Type::IntOrString | Type::Time | Type::MicroTime => {
            special::scalar(writer, number, field, ty, value)?;
        }
        // No field of a built-in kind that protobuf holds has these types.
        Type::Any | Type::Object | Type::Map(_) => {}
    }
    Ok(())
}

/// A string; `null` is the empty one.
fn text<'a>(field: &'static str, value: &'a Value) -> Result<&'a str, EncodeError> {
    match value {
        Value::Null => Ok(""),
        value => value.as_str().ok_or(EncodeError::Value { field, wanted: "string" }),
    }
}
