//! Objects in CBOR, for answers: from the JSON that an object is at rest.
//!
//! ```text
//! 55799( map )                      an object; 55799 is the tag of self-described CBOR
//! 55799( {"type", "object": … } )   an event of a watch, with the object and its tag
//! ```
//!
//! Strings and keys are byte strings, integers and floats have their shortest form, and lengths
//! are definite. A field of bytes of a built-in kind is the bytes themselves below tag 22, and a
//! field of floats is always a float. Members stand in the order of the JSON; the reference's
//! order is random. Bodies that clients send are read by [`crate::decode::cbor`].
//!
//! No tree is built. The head of a map is written when its members are counted. One byte is kept
//! free for it, so that only maps and lists of more than 23 members are moved: a byte at most once
//! per level, of which there are no more than serde_json reads.

#[cfg(test)]
mod tests;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ciborium_ll::{Encoder, Header};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use setpoint_facts::{DEFINITIONS, Definition, Type};
use setpoint_object::skim;
use std::fmt;

/// The first bytes of an object in CBOR: the tag of self-described CBOR.
pub const MAGIC: &[u8] = b"\xd9\xd9\xf7";
/// The longest head.
const HEAD_BYTES: usize = 9;
/// The tag of bytes that are base64 in JSON.
const BASE64: u64 = 22;
/// The member of a list that is written last.
const ITEMS: &str = "items";

/// Why an object cannot be written in CBOR.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The bytes are no JSON.
    #[error("parse the object")]
    Json(#[from] serde_json::Error),
}

/// An object of any kind, below the tag of self-described CBOR.
///
/// # Errors
/// The bytes are no JSON, or nested deeper than serde_json reads (128).
pub fn object(json: &[u8]) -> Result<Vec<u8>, EncodeError> {
    let [api_version, kind] =
        ["apiVersion", "kind"].map(|name| skim::scalar(json, &[name]).unwrap_or_default());
    let mut out = Vec::with_capacity(json.len() + MAGIC.len());
    out.extend_from_slice(MAGIC);
    push(&mut out, json, of_kind(&api_version, &kind))?;
    Ok(out)
}

/// Encodes a list in pieces: what stands around its items, and each item by itself.
///
/// ```
/// use setpoint_schema::cbor::ListEncoder;
///
/// let encoder = ListEncoder::new("v1", "ConfigMapList");
/// let mut list = encoder.head(br#"{"kind":"ConfigMapList","apiVersion":"v1","items":[]}"#, 1)?;
/// encoder.push_item(br#"{"metadata":{"name":"a"}}"#, &mut list)?;
/// assert!(list.starts_with(b"\xd9\xd9\xf7\xa3"));
/// # Ok::<(), setpoint_schema::cbor::EncodeError>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct ListEncoder {
    item: Type,
}

impl ListEncoder {
    /// Of a list's version and kind (`PodList`).
    pub fn new(api_version: &str, kind: &str) -> Self {
        Self { item: of_kind(api_version, kind.strip_suffix("List").unwrap_or(kind)) }
    }

    /// The list up to its first item: its tag, its other members, and the head of `n` items.
    /// `envelope` is the list without items, in JSON.
    ///
    /// # Errors
    /// The envelope is no JSON.
    pub fn head(&self, envelope: &[u8], n: usize) -> Result<Vec<u8>, EncodeError> {
        let mut out = Vec::with_capacity(envelope.len() + HEAD_BYTES + MAGIC.len());
        out.extend_from_slice(MAGIC);
        let mut input = serde_json::Deserializer::from_slice(envelope);
        Envelope { out: &mut out }.deserialize(&mut input)?;
        input.end()?;
        push_head(&mut out, Header::Array(Some(n)));
        Ok(out)
    }

    /// Appends one item, as it stands in the list.
    ///
    /// # Errors
    /// As [`object`]; then a part of the item may be appended.
    pub fn push_item(&self, json: &[u8], list: &mut Vec<u8>) -> Result<(), EncodeError> {
        push(list, json, self.item)
    }
}

/// A watch's event around an object in CBOR ([`object`]): one item of a sequence (RFC 8742).
pub fn watch_event(event: &str, object: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(object.len() + event.len() + 32);
    out.extend_from_slice(MAGIC);
    push_head(&mut out, Header::Map(Some(2)));
    for text in ["type", event, "object"] {
        push_bytes(&mut out, text.as_bytes());
    }
    out.extend_from_slice(object);
    out
}

/// The type of a kind. Kinds that the tables do not know have no field of bytes or floats.
fn of_kind(api_version: &str, kind: &str) -> Type {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    setpoint_facts::kind(group, version, kind).map_or(Type::Any, Type::Ref)
}

fn push(out: &mut Vec<u8>, json: &[u8], ty: Type) -> Result<(), EncodeError> {
    let mut input = serde_json::Deserializer::from_slice(json);
    Item { out, ty }.deserialize(&mut input)?;
    Ok(input.end()?)
}

fn push_head(out: &mut Vec<u8>, head: Header) {
    let (bytes, length) = encoded(head);
    out.extend(bytes.iter().take(length));
}

/// The bytes of a head, and how many there are.
fn encoded(head: Header) -> ([u8; HEAD_BYTES], usize) {
    let mut bytes = [0; HEAD_BYTES];
    let mut rest = &mut bytes[..];
    // Every head has room.
    _ = Encoder::from(&mut rest).push(head);
    let length = HEAD_BYTES - rest.len();
    (bytes, length)
}

fn push_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    push_head(out, Header::Bytes(Some(bytes.len())));
    out.extend_from_slice(bytes);
}

/// Writes the head of what begins at `start`, where one byte is kept free.
fn close(out: &mut Vec<u8>, start: usize, head: Header) {
    let (bytes, length) = encoded(head);
    out.splice(start..=start, bytes.into_iter().take(length));
}

/// Appends one value of a type.
struct Item<'o> {
    out: &'o mut Vec<u8>,
    ty: Type,
}

/// The definition that a type refers to, and its fields.
fn definition(ty: Type) -> Option<&'static Definition> {
    match ty {
        Type::Ref(at) => DEFINITIONS.get(usize::from(at)),
        _ => None,
    }
}

/// The type in place of one that refers to it: scalars have definitions of their own, and where a
/// boolean or a list may stand for a schema, the others are schemas.
fn resolved(ty: Type) -> Type {
    const SCHEMA: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
    match definition(ty) {
        Some(definition) if definition.name.contains("JSONSchemaPropsOr") => {
            setpoint_facts::definition(SCHEMA).map_or(Type::Any, Type::Ref)
        }
        Some(definition) if definition.ty != Type::Object => definition.ty,
        _ => ty,
    }
}

impl<'de> DeserializeSeed<'de> for Item<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(mut self, input: D) -> Result<(), D::Error> {
        self.ty = resolved(self.ty);
        input.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Item<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_unit<E>(self) -> Result<(), E> {
        push_head(self.out, Header::Simple(22));
        Ok(())
    }
    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        push_head(self.out, Header::Simple(if value { 21 } else { 20 }));
        Ok(())
    }
    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        match u64::try_from(value) {
            Ok(value) => self.visit_u64(value),
            Err(_) if self.ty == Type::Num => self.visit_f64(value as f64),
            // The head of a negative number has its complement.
            Err(_) => {
                push_head(self.out, Header::Negative(!value.cast_unsigned()));
                Ok(())
            }
        }
    }
    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        // As in JSON: what is no int64 is a float.
        if self.ty == Type::Num || i64::try_from(value).is_err() {
            return self.visit_f64(value as f64);
        }
        push_head(self.out, Header::Positive(value));
        Ok(())
    }
    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        push_head(self.out, Header::Float(value));
        Ok(())
    }
    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        if self.ty == Type::Bytes
            && let Ok(bytes) = STANDARD.decode(text)
        {
            push_head(self.out, Header::Tag(BASE64));
            push_bytes(self.out, &bytes);
        } else {
            push_bytes(self.out, text.as_bytes());
        }
        Ok(())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Self { out, ty } = self;
        let ty = match ty {
            Type::List(of) => *of,
            // A list of schemas.
            Type::Ref(_) => ty,
            _ => Type::Any,
        };
        let start = out.len();
        out.push(0);
        let mut n = 0;
        while items.next_element_seed(Item { out: &mut *out, ty })?.is_some() {
            n += 1;
        }
        close(out, start, Header::Array(Some(n)));
        Ok(())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let Self { out, ty } = self;
        let start = out.len();
        out.push(0);
        let mut n = 0;
        while let Some(ty) = members.next_key_seed(Name { out: &mut *out, of: ty })? {
            members.next_value_seed(Item { out: &mut *out, ty })?;
            n += 1;
        }
        close(out, start, Header::Map(Some(n)));
        Ok(())
    }
}

/// Appends the name of a member, and returns the type of its value.
struct Name<'o> {
    out: &'o mut Vec<u8>,
    of: Type,
}

impl<'de> DeserializeSeed<'de> for Name<'_> {
    type Value = Type;
    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<Type, D::Error> {
        input.deserialize_str(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = Type;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a member")
    }
    fn visit_str<E>(self, name: &str) -> Result<Type, E> {
        push_bytes(self.out, name.as_bytes());
        Ok(match self.of {
            Type::Map(of) => *of,
            of => definition(of)
                .and_then(|definition| definition.field(name))
                .map_or(Type::Any, |field| field.ty),
        })
    }
}

/// Appends the members of a list, and the name of its items last.
struct Envelope<'o> {
    out: &'o mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for Envelope<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<(), D::Error> {
        input.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Envelope<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let out = self.out;
        let start = out.len();
        out.push(0);
        // The items.
        let mut n = 1;
        while let Some(name) = members.next_key::<String>()? {
            if name == ITEMS {
                members.next_value::<IgnoredAny>()?;
                continue;
            }
            push_bytes(out, name.as_bytes());
            members.next_value_seed(Item { out: &mut *out, ty: Type::Any })?;
            n += 1;
        }
        push_bytes(out, ITEMS.as_bytes());
        close(out, start, Header::Map(Some(n)));
        Ok(())
    }
}
