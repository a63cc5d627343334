//! Protobuf bodies of built-in kinds, as kubectl and Go clients write them, turned into the tree
//! that JSON would have given.
//!
//! ```text
//! "k8s\0"  Unknown { typeMeta = 1 { apiVersion = 1, kind = 2 }, raw = 2, contentEncoding = 3, contentType = 4 }
//!                                                               └ the message of that kind
//! ```
//!
//! The tables know the number of each field. Values that protobuf writes although none was given
//! (`""`, `0` of fields that are no pointers) are decoded as such a zero value, and
//! [`super::conform`] drops it as it does in JSON. Unknown numbers are skipped.

#[cfg(test)]
mod tests;
mod wire;

use super::budget::Budget;
use super::{DecodeError, Decoded, JSON_DEPTH_MAX};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};
use setpoint_facts::{DEFINITIONS, Definition, Field, Type};
use setpoint_object::time::Moment;
use std::cell::RefCell;
use wire::{Reader, Scalar};

/// The first bytes of a body.
const MAGIC: &[u8] = b"k8s\0";
/// The number of the list in a message that is a list (`ExtraValue`), and of the only field of
/// other small messages.
const ONLY: u32 = 1;

pub(super) fn parse(body: &[u8]) -> Result<Decoded, DecodeError> {
    Ok(Decoded { value: parse_as(body, None)?, problems: Vec::new() })
}

/// Takes the first `apiVersion` for the second one.
pub(super) fn parse_as(body: &[u8], renamed: Option<(&str, &str)>) -> Result<Value, DecodeError> {
    let budget = RefCell::default();
    let place = Place { depth: 0, budget: &budget };
    object(body, renamed, place)
}

/// Where the decoder is, and what it may still make.
#[derive(Clone, Copy)]
struct Place<'b> {
    depth: usize,
    budget: &'b RefCell<Budget>,
}

impl Place<'_> {
    fn below(self) -> Self {
        Self { depth: self.depth + 1, ..self }
    }

    /// Takes a value with so many bytes of text.
    fn value(self, text: usize) -> Result<(), DecodeError> {
        self.budget.borrow_mut().value(text)
    }

    /// Takes a member of a map that has `members` others.
    fn member(self, members: usize, key: usize) -> Result<(), DecodeError> {
        self.budget.borrow_mut().member(members, key)
    }
}

/// An object in its envelope.
fn object(
    body: &[u8],
    renamed: Option<(&str, &str)>,
    place: Place<'_>,
) -> Result<Value, DecodeError> {
    let Some(envelope) = body.strip_prefix(MAGIC) else {
        return Err(DecodeError(
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
                .to_owned(),
        ));
    };
    let (mut version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    let mut reader = Reader::new(envelope);
    while let Some((number, scalar)) = reader.next()? {
        match number {
            1 => {
                let mut meta = Reader::new(scalar.bytes()?);
                while let Some((number, scalar)) = meta.next()? {
                    match number {
                        1 => version = scalar.text()?,
                        2 => kind = scalar.text()?,
                        _ => {}
                    }
                }
            }
            2 => raw = scalar.bytes()?,
            3 if !scalar.bytes()?.is_empty() => {
                return Err(DecodeError("encoded protobuf content is not supported".to_owned()));
            }
            _ => {}
        }
    }
    if let Some((former, present)) = renamed
        && version == former
    {
        present.clone_into(&mut version);
    }
    let definition = body_of(&version, &kind).ok_or_else(|| {
        DecodeError(format!(
            "no kind \"{kind}\" is registered for version \"{version}\" in scheme \"pkg/api/legacyscheme/scheme.go:30\""
        ))
    })?;
    let mut members = message(definition, raw, place)?;
    members.insert("apiVersion".to_owned(), Value::from(version));
    members.insert("kind".to_owned(), Value::from(kind));
    Ok(Value::Object(members))
}

/// The definition of a kind; `DeleteOptions` are those of meta/v1 in every group.
fn body_of(api_version: &str, kind: &str) -> Option<&'static Definition> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let at = setpoint_facts::kind(group, version, kind).or_else(|| {
        (kind == "DeleteOptions").then(|| {
            setpoint_facts::definition("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions")
        })?
    })?;
    DEFINITIONS.get(usize::from(at))
}

fn message(
    definition: &'static Definition,
    bytes: &[u8],
    place: Place<'_>,
) -> Result<Map<String, Value>, DecodeError> {
    let mut members = Map::new();
    lift(definition, &[], bytes, place, &mut members)?;
    Ok(members)
}

/// Reads the message that is reached by `way` into the members of the definition's object.
fn lift(
    definition: &'static Definition,
    way: &[u8],
    bytes: &[u8],
    place: Place<'_>,
    members: &mut Map<String, Value>,
) -> Result<(), DecodeError> {
    if place.depth > JSON_DEPTH_MAX {
        return Err(DecodeError("exceeded max depth".to_owned()));
    }
    let mut reader = Reader::new(bytes);
    while let Some((number, scalar)) = reader.next()? {
        let Ok(number) = u8::try_from(number) else { continue };
        let here = |field: &&Field| {
            field.protobuf.strip_prefix(way).is_some_and(|rest| rest.first() == Some(&number))
        };
        let Some(field) = definition.fields.iter().find(here) else { continue };
        if field.protobuf.len() > way.len() + 1 {
            let way = [way, &[number]].concat();
            lift(definition, &way, scalar.bytes()?, place.below(), members)?;
        } else {
            member(field, scalar, place, members)?;
        }
    }
    Ok(())
}

fn member(
    field: &Field,
    scalar: Scalar<'_>,
    place: Place<'_>,
    members: &mut Map<String, Value>,
) -> Result<(), DecodeError> {
    if !members.contains_key(field.name) {
        place.member(members.len(), field.name.len())?;
    }
    match field.ty {
        Type::List(item) => {
            let items = members.entry(field.name).or_insert_with(|| Value::Array(Vec::new()));
            if let Value::Array(items) = items {
                items.push(value(item, scalar, place)?);
            }
        }
        Type::Map(of) => {
            let (mut key, mut entry) = (String::new(), None);
            let mut reader = Reader::new(scalar.bytes()?);
            while let Some((number, scalar)) = reader.next()? {
                match number {
                    1 => key = scalar.text()?,
                    2 => entry = Some(value(of, scalar, place)?),
                    _ => {}
                }
            }
            let entry = match entry {
                Some(entry) => entry,
                None => value(of, Scalar::Bytes(&[]), place)?,
            };
            let map = members.entry(field.name).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(map) = map {
                place.member(map.len(), key.len())?;
                map.insert(key, entry);
            }
        }
        ref ty => {
            members.insert(field.name.to_owned(), value(ty, scalar, place)?);
        }
    }
    Ok(())
}

fn value(ty: &Type, scalar: Scalar<'_>, place: Place<'_>) -> Result<Value, DecodeError> {
    place.value(match scalar {
        Scalar::Bytes(bytes) if !matches!(ty, Type::Ref(_)) => bytes.len(),
        _ => 0,
    })?;
    Ok(match ty {
        Type::Str => Value::from(scalar.text()?),
        Type::Int => Value::from(scalar.integer()?),
        Type::Num => Value::from(scalar.double()?),
        Type::Bool => Value::from(scalar.integer()? != 0),
        Type::Bytes => Value::from(STANDARD.encode(scalar.bytes()?)),
        Type::Quantity => Value::from(only(scalar)?.map_or(Ok(String::new()), Scalar::text)?),
        Type::IntOrString => {
            let (mut is_string, mut integer, mut text) = (false, 0, String::new());
            let mut reader = Reader::new(scalar.bytes()?);
            while let Some((number, scalar)) = reader.next()? {
                match number {
                    1 => is_string = scalar.integer()? != 0,
                    2 => integer = scalar.integer()?,
                    3 => text = scalar.text()?,
                    _ => {}
                }
            }
            if is_string { Value::from(text) } else { Value::from(integer) }
        }
        Type::Time | Type::MicroTime => time(matches!(ty, Type::MicroTime), scalar.bytes()?)?,
        Type::Ref(at) => match DEFINITIONS.get(usize::from(*at)) {
            Some(definition) if definition.ty == Type::Object => {
                Value::Object(message(definition, scalar.bytes()?, place.below())?)
            }
            Some(definition) if definition.ty == Type::Any => {
                any(definition.name, scalar.bytes()?, place.below())?
            }
            Some(definition) => value(&definition.ty, scalar, place)?,
            None => Value::Null,
        },
        // A list where a field cannot repeat is a message with that list.
        Type::List(item) => {
            let mut items = Vec::new();
            let mut reader = Reader::new(scalar.bytes()?);
            while let Some((number, scalar)) = reader.next()? {
                if number == ONLY {
                    items.push(value(item, scalar, place)?);
                }
            }
            Value::Array(items)
        }
        Type::Any | Type::Object | Type::Map(_) => Value::Null,
    })
}

/// The one field of a message.
fn only(scalar: Scalar<'_>) -> Result<Option<Scalar<'_>>, DecodeError> {
    let (mut reader, mut found) = (Reader::new(scalar.bytes()?), None);
    while let Some((number, scalar)) = reader.next()? {
        if number == ONLY {
            found = Some(scalar);
        }
    }
    Ok(found)
}

/// Nanoseconds in a second.
const NANOS: i64 = 1_000_000_000;

/// No bytes are Go's zero time, which is `null` in JSON.
fn time(micro: bool, bytes: &[u8]) -> Result<Value, DecodeError> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let (mut seconds, mut nanos) = (0, 0);
    let mut reader = Reader::new(bytes);
    while let Some((number, scalar)) = reader.next()? {
        match number {
            1 => seconds = scalar.integer()?,
            2 => nanos = scalar.integer()?,
            _ => {}
        }
    }
    // As Go, whatever the number of nanoseconds.
    let seconds = seconds.saturating_add(nanos.div_euclid(NANOS));
    let moment = Moment { seconds, nanos: u32::try_from(nanos.rem_euclid(NANOS)).unwrap_or(0) };
    if moment == Moment::ZERO {
        return Ok(Value::Null);
    }
    // A list must not fail because of one time that another server has accepted.
    Ok(Value::from(moment.clamped().rfc3339(micro)))
}

/// Messages that contain JSON text, or one of two shapes.
fn any(name: &str, bytes: &[u8], place: Place<'_>) -> Result<Value, DecodeError> {
    let mut found = Value::Null;
    let mut items = Vec::new();
    let mut reader = Reader::new(bytes);
    while let Some((number, scalar)) = reader.next()? {
        match (name.rsplit('.').next().unwrap_or_default(), number) {
            ("JSON" | "FieldsV1" | "RawExtension", 1) => {
                let raw = scalar.bytes()?;
                if raw.starts_with(MAGIC) {
                    return object(raw, None, place);
                }
                if !raw.is_empty() {
                    let budget = place.budget.take();
                    let (decoded, budget) = super::json::parse_within(raw, budget)?;
                    place.budget.replace(budget);
                    found = decoded.value;
                }
            }
            ("JSONSchemaPropsOrBool", 1) => found = Value::from(scalar.integer()? != 0),
            ("JSONSchemaPropsOrBool", 2)
            | ("JSONSchemaPropsOrArray" | "JSONSchemaPropsOrStringArray", 1) => {
                found = schema(scalar, place)?;
            }
            ("JSONSchemaPropsOrArray", 2) => items.push(schema(scalar, place)?),
            ("JSONSchemaPropsOrStringArray", 2) => items.push(Value::from(scalar.text()?)),
            _ => {}
        }
    }
    Ok(if items.is_empty() { found } else { Value::Array(items) })
}

fn schema(scalar: Scalar<'_>, place: Place<'_>) -> Result<Value, DecodeError> {
    const NAME: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
    let definition =
        setpoint_facts::definition(NAME).and_then(|at| DEFINITIONS.get(usize::from(at)));
    Ok(match definition {
        Some(definition) => Value::Object(message(definition, scalar.bytes()?, place.below())?),
        None => Value::Null,
    })
}
