//! Built-in kinds in protobuf, for answers and for stores that kube-apiservers use, too: from the
//! JSON of an object to the bytes that Go clients read fastest.
//!
//! ```text
//! "k8s\0"  Unknown { typeMeta = 1 { apiVersion = 1, kind = 2 }, raw = 2, contentEncoding = 3, contentType = 4 }
//!                                                               └ the message of that kind
//! ```
//!
//! The tables know the number of each field. Fields that are no pointers in Go are written although
//! they are absent (`""`, `0`, an empty message), in the order of their numbers, and maps by key,
//! so that equal objects are equal bytes, and the very bytes of the reference server as far as no
//! field holds free-form JSON. Bodies that clients send are read by [`crate::decode`].
//!
//! No general tree is built: JSON is read by the type it should have, its texts are borrowed, and
//! free-form JSON is copied as it stands.
//!
//! A message is preceded by its length. It is therefore written from its end to its beginning, and
//! the whole turned round last.

mod node;
mod plan;
mod special;
#[cfg(test)]
mod tests;
mod writer;

use node::{Members, Node, Of};
use plan::plan;
use serde::Deserialize;
use serde::de::{DeserializeSeed as _, Error as _, IgnoredAny};
use serde_json::value::RawValue;
use setpoint_facts::{DEFINITIONS, Field, Presence, Type};
use setpoint_object::skim;
use writer::Writer;

/// The first bytes of an object in protobuf.
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
    /// The bytes are no JSON, or a list or map stands where another type should.
    #[error("parse the object")]
    Json(#[from] serde_json::Error),
    /// A member holds what its type cannot.
    #[error("the value of a field named {field:?} is no {wanted}")]
    Value {
        /// Name of the member; empty for an item or the object itself.
        field: &'static str,
        /// The expected type.
        wanted: &'static str,
    },
}

/// Whether objects of a kind can be written in protobuf.
pub fn has_kind(group: &str, version: &str, kind: &str) -> bool {
    setpoint_facts::kind(group, version, kind).is_some()
}

/// An object of a built-in kind, a `Status`, a `PartialObjectMetadata` or a document of discovery,
/// in its envelope.
///
/// # Errors
/// Objects of other kinds, or that do not have the shape of their type; those at rest have it.
pub fn object(json: &[u8]) -> Result<Vec<u8>, EncodeError> {
    enveloped(json, None)
}

/// The same with another `apiVersion` in the envelope, whose message is the same.
///
/// # Errors
/// As [`object`].
pub fn object_as(json: &[u8], api_version: &str) -> Result<Vec<u8>, EncodeError> {
    enveloped(json, Some(api_version))
}

fn enveloped(json: &[u8], renamed: Option<&str>) -> Result<Vec<u8>, EncodeError> {
    let [api_version, kind] =
        ["apiVersion", "kind"].map(|name| skim::scalar(json, &[name]).unwrap_or_default());
    let shape = match Shape::of(&api_version, &kind) {
        Ok(shape) => shape,
        Err(unknown) => {
            // What is no JSON declares no kind.
            serde_json::from_slice::<IgnoredAny>(json)?;
            return Err(unknown);
        }
    };
    let mut writer = Writer::with_capacity(json.len());
    let written = renamed.unwrap_or(&api_version);
    envelope(&mut writer, written, &kind, |writer| shape.write(writer, json))?;
    Ok(writer.finish())
}

/// The one member that a metadata-only object has.
#[derive(Debug, Deserialize)]
struct Partial<'a> {
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
}

/// Encodes a list in pieces: each item by itself, and, once the length of all is known, what stands
/// around them. Lists of built-in kinds and `PartialObjectMetadataList` can be written.
///
/// ```
/// use setpoint_schema::protobuf::ListEncoder;
///
/// let encoder = ListEncoder::new("v1", "ConfigMapList")?;
/// let mut items = Vec::new();
/// encoder.push_item(br#"{"metadata":{"name":"a"}}"#, &mut items)?;
/// let (head, tail) = encoder.around(r#"{"resourceVersion":"7"}"#, items.len())?;
/// let whole = [head, items, tail].concat();
/// assert!(whole.starts_with(b"k8s\0"));
/// # Ok::<(), setpoint_schema::protobuf::EncodeError>(())
/// ```
#[derive(Debug, Clone)]
pub struct ListEncoder {
    api_version: String,
    kind: String,
    item: Shape,
}

impl ListEncoder {
    /// Of a list's version and kind (`PodList`).
    ///
    /// # Errors
    /// No such kind is known.
    pub fn new(api_version: &str, kind: &str) -> Result<Self, EncodeError> {
        let item_kind = kind.strip_suffix("List").unwrap_or(kind);
        let item = Shape::of(api_version, item_kind)?;
        Ok(Self { api_version: api_version.to_owned(), kind: kind.to_owned(), item })
    }

    /// Appends one item, as it stands in the list.
    ///
    /// # Errors
    /// As [`object`]; then nothing is appended.
    pub fn push_item(&self, json: &[u8], items: &mut Vec<u8>) -> Result<(), EncodeError> {
        let mut writer = Writer::behind(std::mem::take(items));
        let written = writer.message(2, |writer| self.item.write(writer, json));
        *items = if written.is_ok() { writer.finish() } else { writer.discard() };
        written
    }

    /// The bytes before and after the items, which have `items_bytes` in sum. `metadata` is that
    /// of the list, in JSON.
    ///
    /// # Errors
    /// The metadata is no JSON.
    pub fn around(
        &self,
        metadata: &str,
        items_bytes: usize,
    ) -> Result<(Vec<u8>, Vec<u8>), EncodeError> {
        let mut tail = Writer::with_capacity(8);
        end_of_envelope(&mut tail);
        let mut head = Writer::with_capacity(metadata.len() + self.kind.len() + 64);
        head.message(1, |writer| match meta("ListMeta") {
            Some(at) => whole(writer, at, metadata.as_bytes()),
            None => Ok(()),
        })?;
        head.length(2, head.len() + items_bytes);
        start_of_envelope(&mut head, &self.api_version, &self.kind)?;
        Ok((head.finish(), tail.finish()))
    }
}

/// A watch's `WatchEvent` around an object that is already in its envelope ([`object`]); streams
/// hold it without one of its own.
pub fn watch_event(event: &str, object: &[u8]) -> Vec<u8> {
    let mut writer = Writer::with_capacity(object.len() + 32);
    writer.wrapped_bytes(2, object);
    writer.bytes(1, event.as_bytes());
    writer.finish()
}

/// The message of a kind: indices of definitions.
#[derive(Debug, Clone, Copy)]
enum Shape {
    /// All of a definition's fields.
    Whole(u16),
    /// `PartialObjectMetadata`: the metadata alone, as field 1.
    Metadata(u16),
}

impl Shape {
    fn of(api_version: &str, kind: &str) -> Result<Self, EncodeError> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let found = match (group, kind) {
            ("meta.k8s.io", "PartialObjectMetadata") => meta("ObjectMeta").map(Self::Metadata),
            ("" | "meta.k8s.io", "Status") => meta("Status").map(Self::Whole),
            // Documents of discovery. Those of the core group have no version.
            ("", "APIVersions" | "APIGroup" | "APIGroupList" | "APIResourceList") => {
                meta(kind).map(Self::Whole)
            }
            _ => setpoint_facts::kind(group, version, kind).map(Self::Whole),
        };
        found.ok_or_else(|| EncodeError::UnknownKind {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
        })
    }

    /// Writes the message of an object in JSON.
    fn write(self, writer: &mut Writer, json: &[u8]) -> Result<(), EncodeError> {
        match self {
            Self::Whole(at) => whole(writer, at, json),
            Self::Metadata(at) => {
                let Partial { metadata } = serde_json::from_slice(json)?;
                let metadata = metadata.map_or("{}", RawValue::get);
                writer.message(1, |writer| whole(writer, at, metadata.as_bytes()))
            }
        }
    }
}

/// Writes the fields of a definition from JSON.
fn whole(writer: &mut Writer, at: u16, json: &[u8]) -> Result<(), EncodeError> {
    // Checked once, not text by text.
    let json = std::str::from_utf8(json).map_err(serde_json::Error::custom)?;
    let mut input = serde_json::Deserializer::from_str(json);
    let node = Of(Type::Ref(at)).deserialize(&mut input)?;
    input.end()?;
    match node {
        Node::Struct(members) => fields(writer, &members),
        _ => Err(EncodeError::Value { field: "", wanted: "object" }),
    }
}

fn meta(name: &str) -> Option<u16> {
    setpoint_facts::definition(&format!("{META}{name}"))
}

fn envelope(
    writer: &mut Writer,
    api_version: &str,
    kind: &str,
    raw: impl FnOnce(&mut Writer) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    end_of_envelope(writer);
    writer.message(2, raw)?;
    start_of_envelope(writer, api_version, kind)
}

/// The part of an envelope after the message.
fn end_of_envelope(writer: &mut Writer) {
    writer.bytes(4, b"");
    writer.bytes(3, b"");
}

/// The part of an envelope before the message.
fn start_of_envelope(
    writer: &mut Writer,
    api_version: &str,
    kind: &str,
) -> Result<(), EncodeError> {
    writer.message(1, |writer| {
        writer.bytes(2, kind.as_bytes());
        writer.bytes(1, api_version.as_bytes());
        Ok(())
    })?;
    writer.plain(MAGIC);
    Ok(())
}

/// The fields of a message, from the last to the first.
fn fields(writer: &mut Writer, members: &Members<'_>) -> Result<(), EncodeError> {
    match plan(members.definition) {
        Some(plan) => plan.write(writer, &|field| members.get(field)),
        None => Ok(()),
    }
}

fn member(
    writer: &mut Writer,
    number: u32,
    field: &'static Field,
    value: &Node<'_>,
) -> Result<(), EncodeError> {
    match (field.ty, value) {
        (Type::List(_) | Type::Map(_), Node::Null) => Ok(()),
        (Type::List(of), Node::List(items)) => {
            for item in items.iter().rev() {
                single(writer, number, field.name, of, item)?;
            }
            Ok(())
        }
        (Type::Map(of), Node::Map(entries)) => {
            for (key, value) in entries.iter().rev() {
                writer.message(number, |writer| {
                    if !(matches!(value, Node::Null) && *of == Type::Bytes) {
                        single(writer, 2, field.name, of, value)?;
                    }
                    writer.bytes(1, key.as_bytes());
                    Ok(())
                })?;
            }
            Ok(())
        }
        (Type::List(_) | Type::Map(_), _) => {
            Err(EncodeError::Value { field: field.name, wanted: "list or map" })
        }
        (_, Node::Null) if is_pointer(field) => Ok(()),
        (_, value) => single(writer, number, field.name, &field.ty, value),
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
    value: &Node<'_>,
) -> Result<(), EncodeError> {
    let wrong = |wanted| EncodeError::Value { field, wanted };
    match ty {
        Type::Str => writer.bytes(number, text(field, value)?.as_bytes()),
        Type::Int => {
            let integer = match value {
                Node::Null => 0,
                Node::Int(integer) => *integer,
                _ => return Err(wrong("integer")),
            };
            writer.varint(number, integer.cast_unsigned());
        }
        Type::Num => {
            let float = match value {
                Node::Null => 0.0,
                Node::Num(float) => *float,
                #[expect(
                    clippy::cast_precision_loss,
                    reason = "as Go reads an integer into a float"
                )]
                Node::Int(integer) => *integer as f64,
                _ => return Err(wrong("number")),
            };
            writer.double(number, float);
        }
        Type::Bool => {
            let flag = match value {
                Node::Null => false,
                Node::Bool(flag) => *flag,
                _ => return Err(wrong("boolean")),
            };
            writer.varint(number, u64::from(flag));
        }
        Type::Ref(at) => match (DEFINITIONS.get(usize::from(*at)), value) {
            (Some(definition), _) if definition.ty == Type::Any => {
                special::any(writer, number, field, node::short_name(definition), value)?;
            }
            (Some(definition), _) if definition.ty != Type::Object => {
                single(writer, number, field, &definition.ty, value)?;
            }
            (Some(_), Node::Struct(members)) => {
                writer.message(number, |writer| fields(writer, members))?;
            }
            (Some(_), Node::Null) => writer.message(number, |writer| match plan(*at) {
                Some(plan) => plan.write(writer, &|_| None),
                None => Ok(()),
            })?,
            _ => return Err(wrong("object")),
        },
        // A list where a field cannot repeat is a message with that list.
        Type::List(of) => writer.message(number, |writer| {
            if let Node::List(items) = value {
                for item in items.iter().rev() {
                    single(writer, 1, field, of, item)?;
                }
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
fn text<'a>(field: &'static str, value: &'a Node<'_>) -> Result<&'a str, EncodeError> {
    match value {
        Node::Null => Ok(""),
        Node::Text(text) => Ok(text),
        _ => Err(EncodeError::Value { field, wanted: "string" }),
    }
}
