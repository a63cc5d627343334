//! A tree of a built-in kind held to its schema.
mod faults;

use super::place::At;
use super::{DecodeError, go_type, number_at, scalar, settle_numbers};
use crate::default::memory;
use crate::node::{Node, Property, Scalar, Shape, TypeSchema, View};
use faults::Faults;
use serde_json::{Map, Value};
use setpoint_object::field::quote;

/// Holds a tree of a built-in type to its schema as Go's typed decoding does: unknown fields are
/// dropped (`unknown field "spec.x"` is appended to `problems`), nulls are dropped, scalars become
/// canonical, and what is empty takes the form described at [`crate::decode`]. Fields of structs
/// that Go always encodes appear with their zero value.
///
/// # Errors
/// The first value that a type which reads its own text refuses (a time, a quantity); if there is
/// none, the first value of a wrong type, in Go's words: `json: cannot unmarshal number into Go
/// struct field ConfigMap.data of type string`.
pub fn conform(
    schema: &TypeSchema,
    kind: &str,
    value: &mut Value,
    problems: &mut Vec<String>,
) -> Result<(), DecodeError> {
    conform_changed(schema, kind, value, &Value::Null, MapKeys::Shown, problems)
}

/// As [`conform`] of what was parsed from a text: an error shows a number as the text has it, and
/// is the first in the text instead of the first by name.
pub(super) fn conform_written(
    schema: &TypeSchema,
    kind: &str,
    value: &mut Value,
    text: &[u8],
) -> Result<(), DecodeError> {
    let mut problems = Vec::new();
    let mut conformer =
        Conformer { faults: Faults::of(Some(text)), ..Conformer::new(kind, &mut problems) };
    conformer.member(&At::root(""), schema.view(), value)?;
    conformer.faults.first()
}

/// Whether the places of unknown fields name the keys of maps around them. Go's converter of
/// trees, which reads merged objects, leaves them out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapKeys {
    /// `spec.devices[0].attributes.model.x`.
    Shown,
    /// `spec.devices[0].attributes.x`.
    LeftOut,
}

/// As [`conform`], for an object that was made by changing one that conforms: top-level members
/// that are still the same are not looked at again.
///
/// # Errors
/// Those of [`conform`].
pub fn conform_changed(
    schema: &TypeSchema,
    kind: &str,
    value: &mut Value,
    before: &Value,
    keys: MapKeys,
    problems: &mut Vec<String>,
) -> Result<(), DecodeError> {
    let before = before.as_object();
    let mut conformer = Conformer { before, keys, ..Conformer::new(kind, problems) };
    conformer.member(&At::root(""), schema.view(), value)?;
    conformer.faults.first()
}

/// Holds a custom resource to its schema before it is defaulted: undeclared fields are pruned and
/// `metadata`, at the root and in embedded resources, is conformed to `ObjectMeta`. Each dropped
/// field is appended to `problems` as `unknown field "spec.x"`: first those of `metadata`, then the
/// pruned fields in the order of their paths, as the reference does.
///
/// # Errors
/// `metadata` of a wrong type: `json: cannot unmarshal number into Go struct field
/// ObjectMeta.labels of type string`, in an embedded resource with its place and value before it.
pub fn conform_custom(
    schema: &TypeSchema,
    object: &mut Value,
    problems: &mut Vec<String>,
) -> Result<(), DecodeError> {
    conform_metadata(object, problems)?;
    for path in crate::prune::prune(schema, object) {
        super::note(problems, || format!("unknown field \"{path}\""));
    }
    if !schema.has_embedded_resources() {
        return Ok(());
    }
    let mut embedded = Vec::new();
    embedded_metadata(schema.view(), object, &mut String::new(), &mut embedded)?;
    embedded.sort_unstable();
    for problem in embedded {
        super::note(problems, || problem);
    }
    Ok(())
}

/// Holds the `metadata` of a custom resource to `ObjectMeta`; unknown fields are reported as
/// `unknown field "metadata.foo"`.
///
/// # Errors
/// As [`conform`], with fields named from `ObjectMeta`: `… Go struct field ObjectMeta.labels of
/// type string`.
pub fn conform_metadata(object: &mut Value, problems: &mut Vec<String>) -> Result<(), DecodeError> {
    let Some(metadata) = object.get_mut("metadata") else { return Ok(()) };
    if metadata.is_null() {
        *metadata = Value::Object(Map::new());
    }
    object_meta(metadata, "metadata", problems)
}

/// Holds the fields of `ObjectMeta` to it. `path`: where unknown ones are reported.
pub(super) fn object_meta(
    metadata: &mut Value,
    path: &str,
    problems: &mut Vec<String>,
) -> Result<(), DecodeError> {
    let schema = crate::builtin::object_meta();
    let mut conformer = Conformer::new("ObjectMeta", problems);
    conformer.member(&At::root(path), schema.view(), metadata)?;
    conformer.faults.first()
}

fn embedded_metadata(
    schema: View<'_>,
    value: &mut Value,
    path: &mut String,
    problems: &mut Vec<String>,
) -> Result<(), DecodeError> {
    let base = path.len();
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                let is_root = base == 0;
                crate::validate::enter(path, schema, name);
                let is_type = matches!(&**name, "apiVersion" | "kind");
                if schema.embedded_resource && is_type && !member.is_string() && !member.is_null() {
                    return Err(DecodeError(format!(
                        "{path}: Invalid value: {member}: must be a string"
                    )));
                } else if schema.embedded_resource && name == "metadata" {
                    let shown = member.clone();
                    object_meta(member, path, problems).map_err(|error| {
                        DecodeError(format!("{path}: Invalid value: {shown}: {error}"))
                    })?;
                } else if (member.is_object() || member.is_array())
                    && let Some(schema) = schema.member(name)
                    && !(is_root && name == "metadata")
                {
                    embedded_metadata(schema, member, path, problems)?;
                }
                path.truncate(base);
            }
            Ok(())
        }
        Value::Array(items) => {
            let Some(schema) = schema.items() else { return Ok(()) };
            for (i, item) in items.iter_mut().enumerate() {
                path.push('[');
                path.push_str(itoa::Buffer::new().format(i));
                path.push(']');
                embedded_metadata(schema, item, path, problems)?;
                path.truncate(base);
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// The most bytes of memory that zero values may add to one object, by estimate: 32 MiB. `{}` in a
/// list of containers is three bytes, and what Go encodes for it fills a map.
const ZEROS_BYTES_MAX: usize = 32 << 20;
/// Bytes of a map that was empty and is no longer.
const EMPTY_MAP_BYTES: usize = 640;

/// The structs whose maps of quantities are no resource lists: amounts of a resource list are
/// rounded to thousandths.
const EXACT: [&str; 3] = ["CapacityRequirements", "DeviceRequestAllocationResult", "Overhead"];

/// Lists and maps that `omitempty` leaves out, and that the rules of their kinds refuse even
/// without items, by their struct: they stay, so that the rules see them. No accepted object has
/// one.
const REFUSED_EMPTY: [(&str, &str); 7] = [
    ("EphemeralContainer", "ports"),
    ("EphemeralContainer", "resizePolicy"),
    ("EphemeralContainer", "restartPolicyRules"),
    ("HPAScalingRules", "policies"),
    ("JSONSchemaProps", "dependencies"),
    ("PodExtendedResourceClaimStatus", "requestMappings"),
    ("VolumeResourceRequirements", "requests"),
];

pub(super) struct Conformer<'p> {
    problems: &'p mut Vec<String>,
    /// The members of the root that conform as they are, until the root has taken them.
    before: Option<&'p Map<String, Value>>,
    keys: MapKeys,
    /// The name of the innermost Go struct around the value, or of its definition.
    owner: &'p str,
    /// Bytes of memory that zero values have added, by estimate.
    added: usize,
    faults: Faults<'p>,
}

impl<'p> Conformer<'p> {
    fn new(kind: &'p str, problems: &'p mut Vec<String>) -> Self {
        Self {
            problems,
            before: None,
            keys: MapKeys::Shown,
            owner: kind,
            added: 0,
            faults: Faults::of(None),
        }
    }

    /// The innermost Go struct.
    fn owner(&self) -> &'p str {
        go_type::last_name(self.owner)
    }

    /// Holds one value that is not null.
    fn member(
        &mut self,
        at: &At<'_>,
        schema: View<'p>,
        value: &mut Value,
    ) -> Result<(), DecodeError> {
        match schema.scalar {
            Scalar::Plain => {}
            Scalar::Int32 => return self.integer(at, schema, value, i32::try_from),
            Scalar::Int64 => return self.integer(at, schema, value, Ok::<i64, ()>),
            special => {
                return match scalar::canonical(special, value) {
                    Ok(()) => Ok(()),
                    Err(scalar::Fault::Type) => self.mismatch(at, schema, value),
                    Err(scalar::Fault::Item(found)) => self.mismatch_of(at, &found, "uint8"),
                    Err(scalar::Fault::NotAString(found)) => {
                        self.faults.end(at, self.mismatch_error(at, &found, "string"))
                    }
                    Err(scalar::Fault::Text(text)) if special == Scalar::Bytes => {
                        self.faults.note(at, DecodeError(text));
                        Ok(())
                    }
                    Err(scalar::Fault::Text(text)) => self.faults.end(at, DecodeError(text)),
                };
            }
        }
        match schema.shape {
            Shape::Any => self.any(at, schema, value),
            Shape::String if value.is_string() => Ok(()),
            Shape::Boolean if value.is_boolean() => Ok(()),
            Shape::Number if value.is_number() => {
                settle_numbers(value);
                Ok(())
            }
            Shape::Integer => self.integer(at, schema, value, Ok::<i64, ()>),
            Shape::IntOrString => self.int_or_string(at, value),
            Shape::Array => self.list(at, schema, value),
            Shape::Object if !schema.properties.is_empty() => self.structure(at, schema, value),
            Shape::Object if schema.additional.is_some() => self.map(at, schema, value),
            // A definition without fields is a struct without fields.
            Shape::Object if schema.node().type_name.is_some() => self.structure(at, schema, value),
            Shape::Object if value.is_object() => {
                settle_numbers(value);
                Ok(())
            }
            _ => self.mismatch(at, schema, value),
        }
    }

    /// Untyped, but for the schemas inside schemas, which stand where a boolean or a list may stand
    /// too.
    fn any(&mut self, at: &At<'_>, schema: View<'p>, value: &mut Value) -> Result<(), DecodeError> {
        let union = match go_type::short_name(schema.node()) {
            Some("JSONSchemaPropsOrArray") => (true, false),
            Some("JSONSchemaPropsOrBool") => (false, true),
            Some("JSONSchemaPropsOrStringArray") => (false, false),
            _ => {
                settle_numbers(value);
                return Ok(());
            }
        };
        let Some(props) = crate::builtin::json_schema_props() else { return Ok(()) };
        let n_problems = self.problems.len();
        let result = match (value, union) {
            (value @ Value::Object(_), _) => self.member(at, props, value),
            (Value::Array(schemas), (true, _)) => {
                schemas.iter_mut().try_for_each(|inner| self.member(at, props, inner))
            }
            (Value::Bool(_), (_, true)) | (Value::Array(_), (false, false)) => Ok(()),
            // The unions decode themselves and say no more than this.
            (_, (_, true)) => {
                self.faults.end(at, DecodeError("boolean or JSON schema expected".to_owned()))
            }
            // The others take anything else for nothing.
            (value, (_, false)) => {
                *value = Value::Null;
                Ok(())
            }
        };
        // The reference's unions decode themselves, and not strictly: their unknown fields are
        // dropped without a report.
        self.problems.truncate(n_problems);
        result
    }

    fn integer<N, E>(
        &mut self,
        at: &At<'_>,
        schema: View<'_>,
        value: &Value,
        fits: impl Fn(i64) -> Result<N, E>,
    ) -> Result<(), DecodeError> {
        match value {
            Value::Number(n) if n.as_i64().is_some_and(|n| fits(n).is_ok()) => Ok(()),
            _ => self.mismatch(at, schema, value),
        }
    }

    fn int_or_string(&mut self, at: &At<'_>, value: &Value) -> Result<(), DecodeError> {
        let fits = match value {
            Value::String(_) => true,
            Value::Number(n) => n.as_i64().is_some_and(|n| i32::try_from(n).is_ok()),
            _ => false,
        };
        if fits {
            return Ok(());
        }
        self.faults.end(at, self.mismatch_error(at, &self.found(at, value, true), "int32"))
    }

    fn list(
        &mut self,
        at: &At<'_>,
        schema: View<'p>,
        value: &mut Value,
    ) -> Result<(), DecodeError> {
        let Value::Array(items) = value else { return self.mismatch(at, schema, value) };
        let Some(item_schema) = schema.items() else { return Ok(()) };
        for (i, item) in items.iter_mut().enumerate() {
            if item.is_null() {
                *item = zero(item_schema);
                self.add(item)?;
            } else {
                self.member(&at.index(i), item_schema, item)?;
            }
        }
        Ok(())
    }

    fn map(&mut self, at: &At<'_>, schema: View<'p>, value: &mut Value) -> Result<(), DecodeError> {
        let Value::Object(members) = value else { return self.mismatch(at, schema, value) };
        let Some(values) = schema.additional.map(|id| schema.at(id)) else { return Ok(()) };
        let has_amounts = values.scalar == Scalar::Quantity && !EXACT.contains(&self.owner());
        for (name, member) in members.iter_mut() {
            if member.is_null() {
                *member = match values.scalar {
                    // Kubernetes stores objects in protobuf, where no bytes are empty bytes.
                    Scalar::Bytes => Value::from(""),
                    _ => zero(values),
                };
                self.add(member)?;
            } else {
                let entry = at.key(name);
                let shown = if self.keys == MapKeys::Shown { &entry } else { at };
                self.member(shown, values, member)?;
            }
            if has_amounts {
                scalar::round_amount(member);
            }
        }
        Ok(())
    }

    fn structure(
        &mut self,
        at: &At<'_>,
        schema: View<'p>,
        value: &mut Value,
    ) -> Result<(), DecodeError> {
        let Value::Object(members) = value else { return self.mismatch(at, schema, value) };
        let before = self.before.take();
        let owner = self.owner;
        match schema.node().type_name.as_deref() {
            // The root is named as the caller says.
            Some(name) if at.is_in_field || owner.is_empty() => self.owner = name,
            _ => {}
        }
        let mut gone = Vec::new();
        for (name, member) in members.iter_mut() {
            if before.is_some_and(|before| before.get(name) == Some(&*member)) {
                continue;
            }
            let Some(property) = schema.property(name) else {
                super::note(self.problems, || {
                    format!("unknown field {}", quote(&at.field(name).path()))
                });
                gone.push(name.clone());
                continue;
            };
            if member.is_null() {
                gone.push(name.clone());
                continue;
            }
            self.member(&at.field(name), property, member)?;
            // An empty list of managers resets the ownership; `apply::update` takes it
            // out.
            let asks = || name == "managedFields" && at.path() == "metadata";
            if member.is_null()
                || property.omit_empty
                    && !asks()
                    && is_zero(property.node(), member)
                    && !(is_empty(member) && REFUSED_EMPTY.contains(&(self.owner(), name.as_str())))
            {
                gone.push(name.clone());
            }
        }
        for name in gone {
            members.remove(&name);
        }
        let was_empty = members.is_empty();
        let added = add_always_present(schema, members);
        if added > 0 {
            self.added += added + if was_empty { EMPTY_MAP_BYTES } else { 0 };
            self.check_added()?;
        }
        self.owner = owner;
        Ok(())
    }

    /// Counts a zero value that was added.
    fn add(&mut self, value: &Value) -> Result<(), DecodeError> {
        self.added += memory(value);
        self.check_added()
    }

    fn check_added(&self) -> Result<(), DecodeError> {
        if self.added <= ZEROS_BYTES_MAX {
            return Ok(());
        }
        Err(DecodeError(format!(
            "zero values of the object take more than {ZEROS_BYTES_MAX} bytes"
        )))
    }

    /// Notes a value of the wrong type, in Go's words.
    fn mismatch(
        &mut self,
        at: &At<'_>,
        schema: View<'_>,
        value: &Value,
    ) -> Result<(), DecodeError> {
        if self.faults.is_full() {
            return Ok(());
        }
        let numeric = matches!(schema.scalar, Scalar::Int32 | Scalar::Int64)
            || schema.shape == Shape::Integer;
        let ty = go_type::of_field(schema, self.owner, &at.fields());
        self.mismatch_of(at, &self.found(at, value, numeric), &ty)
    }

    /// Notes that something was found where a type of Go is wanted.
    fn mismatch_of(&mut self, at: &At<'_>, found: &str, ty: &str) -> Result<(), DecodeError> {
        self.faults.note(at, self.mismatch_error(at, found, ty));
        Ok(())
    }

    fn mismatch_error(&self, at: &At<'_>, found: &str, ty: &str) -> DecodeError {
        let (owner, fields) = (self.owner(), at.fields());
        let field = match fields.is_empty() {
            true => String::new(),
            false => format!("{owner}.{fields}"),
        };
        DecodeError(super::wrong_type(found, &field, ty))
    }

    /// The JSON type that was found here. A number that is no integer is shown.
    fn found(&self, at: &At<'_>, value: &Value, integer_wanted: bool) -> String {
        let written = self
            .faults
            .text
            .filter(|_| integer_wanted && value.is_number())
            .and_then(|text| number_at(text, &at.path()));
        match written {
            Some(number) => format!("number {number}"),
            None => go_type::found(value, integer_wanted),
        }
    }
}

/// Adds the zero value of fields that Go encodes even when nobody set them. Returns the bytes of
/// memory they take, by estimate.
fn add_always_present(schema: View<'_>, members: &mut Map<String, Value>) -> usize {
    let mut bytes = 0;
    for Property { name, id, .. } in &schema.node().filled {
        let property = schema.at(*id);
        if property.always_present && !members.contains_key(name.as_ref()) {
            let value = zero(property);
            bytes += name.len() + memory(&value);
            members.insert(name.clone().into_owned(), value);
        }
    }
    bytes
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    }
}

/// Whether `omitempty` leaves a value out. A struct that is there is never empty.
fn is_zero(schema: &Node, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(n) => n.as_f64() == Some(0.0) && schema.shape != Shape::IntOrString,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty() && schema.additional.is_some(),
    }
}

/// Go's encoding of an unset field or list item: the zero value of its type, `null` for
/// lists, maps, times and untyped JSON, a struct with the zero values of its always-present fields.
pub fn zero(schema: View<'_>) -> Value {
    match (schema.shape, schema.scalar) {
        _ if schema.zero_null => Value::Null,
        (_, Scalar::Quantity) => Value::from("0"),
        (_, Scalar::Time | Scalar::MicroTime | Scalar::Bytes) | (Shape::Array | Shape::Any, _) => {
            Value::Null
        }
        (_, Scalar::Duration) => Value::from("0s"),
        (Shape::String, _) => Value::from(""),
        (Shape::Integer | Shape::Number | Shape::IntOrString, _) => Value::from(0),
        (Shape::Boolean, _) => Value::Bool(false),
        (Shape::Object, _) if schema.properties.is_empty() && schema.additional.is_some() => {
            Value::Null
        }
        (Shape::Object, _) => {
            let mut members = Map::new();
            add_always_present(schema, &mut members);
            Value::Object(members)
        }
    }
}

#[cfg(test)]
mod tests;
