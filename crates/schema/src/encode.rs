//! Encodes objects with their members in the order in which Kubernetes' API server writes them.
//!
//! A built-in object has the order of its Go struct: `kind`, `apiVersion`, `metadata`, `spec`,
//! `status`, and so on inside them. Maps (labels, `data`) and free-form JSON are sorted by name,
//! and so is every other object: a custom resource is a map in Go. Equal trees have equal bytes.
//!
//! The order comes from the tables ([`setpoint_facts::Facts::order`]). Objects are put in order
//! once, when they are made to be stored or converted, so that reading costs nothing.

use crate::apply::{Owners, PathElement};
use bytes::Bytes;
use serde_json::{Map, Value};
use setpoint_facts::{DEFINITIONS, Definition, Field, Presence, Type};
use setpoint_object::encode;

#[cfg(test)]
mod tests;

const METADATA: &str = "metadata";
const MANAGED_FIELDS: &str = "managedFields";

/// Encodes an object by its `apiVersion` and `kind`.
pub fn to_bytes(object: &Value) -> Bytes {
    let Some((definition, members)) = built_in(object) else {
        return encode::to_bytes(object);
    };
    encode::collect(|out| Writer::new(out, None).structure(members, definition))
}

/// [`to_bytes`] of an object whose managedFields are beside it. It must have `metadata`.
pub fn to_bytes_with(object: &Value, owners: Option<&Owners<'_>>) -> Bytes {
    let Some(owners) = owners else { return to_bytes(object) };
    match built_in(object) {
        Some((definition, members)) => encode::collect(|out| {
            Writer::new(out, Some(owners)).structure(members, definition);
        }),
        None => encode::collect(|out| push_custom(out, object, owners)),
    }
}

/// Appends a custom object with its owners.
fn push_custom(out: &mut Vec<u8>, object: &Value, owners: &Owners<'_>) {
    push_sorted(out, members(object).collect(), |out, name, value| {
        if name != METADATA {
            return encode::push(out, value);
        }
        let metadata = members(value).map(|(name, value)| (name, Some(value)));
        push_sorted(out, metadata.chain([(MANAGED_FIELDS, None)]).collect(), |out, _, value| {
            match value {
                Some(value) => encode::push(out, value),
                None => out.extend_from_slice(owners.as_str().as_bytes()),
            }
        });
    });
}

fn members(object: &Value) -> impl Iterator<Item = (&str, &Value)> {
    object.as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), value))
}

/// Appends an object with its members sorted, whose values `push` appends.
fn push_sorted<V>(
    out: &mut Vec<u8>,
    mut members: Vec<(&str, V)>,
    push: impl Fn(&mut Vec<u8>, &str, V),
) {
    members.sort_unstable_by_key(|(name, _)| *name);
    out.push(b'{');
    for (at, (name, value)) in members.into_iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        encode::push_text(out, name);
        out.push(b':');
        push(out, name, value);
    }
    out.push(b'}');
}

/// The definition of a built-in object, and its members.
fn built_in(object: &Value) -> Option<(&'static Definition, &Map<String, Value>)> {
    let members = object.as_object()?;
    let api_version = members.get("apiVersion")?.as_str()?;
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let kind = members.get("kind")?.as_str()?;
    let index = setpoint_facts::kind(group, version, kind)?;
    Some((&DEFINITIONS[usize::from(index)], members))
}

/// One member of a struct that is being written.
#[derive(Debug)]
struct Member<'v> {
    order: u8,
    name: &'v str,
    value: &'v Value,
    /// `None`: not a member of the Go struct.
    field: Option<&'static Field>,
}

/// Appends values to a text.
#[derive(Debug)]
struct Writer<'o, 'v> {
    out: &'o mut Vec<u8>,
    /// The members of the structs that are being written, the innermost last.
    members: Vec<Member<'v>>,
    /// Those of the object, until its `metadata` is written.
    owners: Option<&'o Owners<'o>>,
}

impl<'o, 'v> Writer<'o, 'v> {
    fn new(out: &'o mut Vec<u8>, owners: Option<&'o Owners<'o>>) -> Self {
        Self { out, members: Vec::with_capacity(64), owners }
    }

    fn value(&mut self, value: &'v Value, ty: &'static Type) {
        match (value, ty) {
            (value, Type::Ref(index)) => self.defined(value, &DEFINITIONS[usize::from(*index)]),
            (Value::Object(members), Type::Map(ty)) if is_ordered(ty) => {
                self.out.push(b'{');
                // Sorted: `serde_json::Map` is, unless a crate of the program asks for insertion
                // order.
                let mut sorted: Vec<_> = members.iter().collect();
                sorted.sort_unstable_by_key(|(name, _)| *name);
                for (at, (name, value)) in sorted.into_iter().enumerate() {
                    if at > 0 {
                        self.out.push(b',');
                    }
                    encode::push_text(self.out, name);
                    self.out.push(b':');
                    self.value(value, ty);
                }
                self.out.push(b'}');
            }
            (Value::Array(items), Type::List(ty)) if is_ordered(ty) => {
                self.out.push(b'[');
                for (at, item) in items.iter().enumerate() {
                    if at > 0 {
                        self.out.push(b',');
                    }
                    self.value(item, ty);
                }
                self.out.push(b']');
            }
            _ => encode::push(self.out, value),
        }
    }

    fn defined(&mut self, value: &'v Value, definition: &'static Definition) {
        match (value, union_of(definition)) {
            (Value::Object(members), Some(Union::Fields)) => self.owned(members),
            (Value::Object(members), None) => self.structure(members, definition),
            (value @ Value::Object(_), Some(Union::Schemas(of))) => self.defined(value, of),
            (Value::Array(items), Some(Union::Schemas(of))) => {
                self.out.push(b'[');
                for (at, item) in items.iter().enumerate() {
                    if at > 0 {
                        self.out.push(b',');
                    }
                    self.defined(item, of);
                }
                self.out.push(b']');
            }
            _ => encode::push(self.out, value),
        }
    }

    /// Fields with an owner (`fieldsV1`).
    fn owned(&mut self, members: &Map<String, Value>) {
        // They are sorted as texts, which is enough for names of fields.
        if members.keys().filter(|name| !name.starts_with("f:") && *name != ".").count() > 1 {
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_by_cached_key(|(name, _)| Name::of(name));
            return self.owned_in_order(sorted.into_iter());
        }
        self.owned_in_order(members.iter());
    }

    fn owned_in_order<'m>(&mut self, members: impl Iterator<Item = (&'m String, &'m Value)>) {
        self.out.push(b'{');
        for (at, (name, value)) in members.enumerate() {
            if at > 0 {
                self.out.push(b',');
            }
            encode::push_text(self.out, name);
            self.out.push(b':');
            match value {
                Value::Object(members) => self.owned(members),
                value => encode::push(self.out, value),
            }
        }
        self.out.push(b'}');
    }

    fn structure(&mut self, members: &'v Map<String, Value>, definition: &'static Definition) {
        let first = self.members.len();
        for (name, value) in members {
            let field = definition.field(name);
            let order = field.map_or(u8::MAX, |field| field.order);
            self.members.push(Member { order, name, value, field });
        }
        self.members[first..].sort_unstable_by_key(|member| (member.order, member.name));
        self.out.push(b'{');
        for at in first..first + members.len() {
            if at > first {
                self.out.push(b',');
            }
            let Member { name, value, field, .. } = self.members[at];
            match field {
                // An empty list that is always written: protobuf, in which the original stores,
                // does not tell it from a missing one. If it was given, it has an owner.
                Some(field) if field.presence == Presence::Null && is_empty(field, value) => {
                    encode::push_text(self.out, name);
                    self.out.extend_from_slice(b":null");
                }
                Some(field) => {
                    // Names of fields need no escapes.
                    self.out.push(b'"');
                    self.out.extend_from_slice(name.as_bytes());
                    self.out.extend_from_slice(b"\":");
                    self.value(value, &field.ty);
                    if first == 0 && name == METADATA {
                        self.own();
                    }
                }
                None => {
                    encode::push_text(self.out, name);
                    self.out.push(b':');
                    encode::push(self.out, value);
                }
            }
        }
        self.out.push(b'}');
        self.members.truncate(first);
    }

    /// Adds the owners to the `metadata` just written, where they are the last member.
    fn own(&mut self) {
        let Some(owners) = self.owners.take() else { return };
        if self.out.pop_if(|last| *last == b'}').is_none() {
            return;
        }
        if self.out.last() != Some(&b'{') {
            self.out.push(b',');
        }
        encode::push_text(self.out, MANAGED_FIELDS);
        self.out.push(b':');
        self.out.extend_from_slice(owners.as_str().as_bytes());
        self.out.push(b'}');
    }
}

/// A definition without members that has an order.
enum Union {
    /// Fields with an owner.
    Fields,
    /// A schema, a list of schemas, or something else.
    Schemas(&'static Definition),
}

/// Which one a definition is; `None`: it has members, or no order.
fn union_of(definition: &'static Definition) -> Option<Union> {
    if !definition.fields.is_empty() {
        return None;
    }
    let (package, name) = definition.name.rsplit_once('.')?;
    match name {
        "FieldsV1" => Some(Union::Fields),
        "JSONSchemaPropsOrArray" | "JSONSchemaPropsOrBool" | "JSONSchemaPropsOrStringArray" => {
            let schema = setpoint_facts::definition(&format!("{package}.JSONSchemaProps"))?;
            Some(Union::Schemas(&DEFINITIONS[usize::from(schema)]))
        }
        _ => None,
    }
}

/// A name of a `fieldsV1`, in the order of structured-merge-diff's path elements: items of lists
/// are in the order of their keys, and numbers are compared as numbers, so the port 80 comes before
/// 443.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Name<'a> {
    /// The set itself, and what is no element.
    Other(&'a str),
    Element(PathElement<'a>),
}

impl<'a> Name<'a> {
    fn of(text: &'a str) -> Self {
        match PathElement::from_wire(text) {
            Ok(Some(element)) => Self::Element(element),
            _ => Self::Other(text),
        }
    }
}

/// Whether a value is an empty list or map.
fn is_empty(field: &Field, value: &Value) -> bool {
    match (&field.ty, value) {
        (Type::List(_), Value::Array(items)) => items.is_empty(),
        (Type::Map(_), Value::Object(members)) => members.is_empty(),
        _ => false,
    }
}

/// Whether values of a type contain structs.
fn is_ordered(ty: &Type) -> bool {
    match ty {
        Type::Ref(_) => true,
        Type::List(ty) | Type::Map(ty) => is_ordered(ty),
        _ => false,
    }
}
