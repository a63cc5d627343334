//! From a request body to a tree: JSON, YAML, protobuf or CBOR, duplicate and unknown fields,
//! types, canonical scalars (spec: api-server §5.2).
//!
//! Two steps. [`parse`] knows no types: it turns bytes into a tree and notes members that were
//! given twice. [`conform`] holds the tree of a built-in kind to its schema. Custom resources go
//! through [`crate::prune`] and [`crate::default`] instead.
//!
//! # Stored built-in objects
//!
//! Kubernetes decodes into Go structs and encodes those again. The result for a field that is
//! absent, null or zero is a property of the field ([`crate::Node::omit_empty`],
//! [`crate::Node::always_present`], [`crate::Node::zero_null`]); following it here makes equal
//! objects equal bytes:
//!
//! | field | absent or `null` | zero: `""`, `0`, `false`, empty list or map |
//! |---|---|---|
//! | omits empty | absent | absent |
//! | pointer | absent | kept |
//! | always present | zero value (or `null`) | kept |
//! | map value, list item | | `null` becomes the zero value; of bytes in a map, no bytes |

mod budget;
pub mod cbor;
mod conform;
mod go_type;
mod json;
mod lenient;
mod number;
mod place;
mod protobuf;
mod repeated;
mod scalar;
mod strict;
mod syntax;
#[cfg(test)]
mod tests;
mod type_meta;
mod yaml;

pub use conform::{MapKeys, conform, conform_changed, conform_custom, conform_metadata, zero};
pub(crate) use json::first_of_wrong;
pub use json::{json_object_fault, number_at};
pub use lenient::conform_stored;
pub(crate) use lenient::type_and_metadata;
pub use number::settle_numbers;
use repeated::merge_repeated;
pub use scalar::{base64_fault, time_fault};
pub use strict::field_problems;
pub use type_meta::{TypeMeta, type_meta};

use crate::node::TypeSchema;
use serde_json::Value;
use std::borrow::Cow;

/// How the body is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `application/json`.
    Json,
    /// `application/yaml`, `application/apply-patch+yaml`. YAML with JSON's data model and
    /// the scalars of YAML 1.1.
    Yaml,
    /// `application/vnd.kubernetes.protobuf`: the envelope names the kind, which must be a built-in
    /// one.
    Protobuf,
    /// `application/cbor`, `application/apply-patch+cbor`. [`parse`] reads it as free-form JSON;
    /// built-in kinds are read by [`cbor::typed`].
    Cbor,
}

/// A decoded body and what was odd about it, in the API's words: `duplicate field "spec.replicas"`,
/// `unknown field "spec.foo"` (duplicates first).
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    /// The tree. Integers fit `i64`; larger ones are floats.
    pub value: Value,
    /// Duplicates and (after [`conform`]) unknown fields, [`PROBLEMS_MAX`] at most. A member given
    /// twice in YAML reads `line 6: key "x" already set in map`.
    pub problems: Vec<String>,
}

impl Decoded {
    /// The type that the document names: see [`type_meta`]. `body`: what it was parsed from.
    ///
    /// # Errors
    ///
    /// Those of [`type_meta`].
    pub fn type_meta(&self, body: &[u8], format: Format) -> Result<TypeMeta<'_>, String> {
        let text = if format == Format::Json { body } else { &[] };
        type_meta(&self.value, text, &self.problems)
    }
    /// Merges what a JSON body of a built-in type has twice, as Go decodes the second one into what
    /// the first one has left. Another format, and a body without repetitions, changes nothing.
    pub fn merge_repeated(&mut self, schema: &TypeSchema, body: &[u8], format: Format) {
        if format == Format::Json
            && !self.problems.is_empty()
            && let Some(merged) = merge_repeated(schema, body)
        {
            self.value = merged;
        }
    }
}

/// Why a body is not a tree; displays Go's words (`unexpected end of JSON input`, …).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DecodeError(pub String);

/// The deepest nesting of a JSON, protobuf or CBOR body: serde_json's recursion limit.
pub const JSON_DEPTH_MAX: usize = 128;
/// The deepest nesting of a YAML body; the same, so that both forms of an object are accepted
/// alike.
pub const YAML_DEPTH_MAX: usize = 128;
/// The most nodes that aliases of one YAML body may expand to, so that a small body cannot grow
/// into a large tree.
pub const YAML_ALIAS_NODES_MAX: usize = 10_000;
/// The most bytes of text that aliases of one YAML body may expand to: twice the largest body.
pub const YAML_ALIAS_BYTES_MAX: usize = 6 << 20;
/// The most bytes of memory that the tree of one body may take, by estimate. A map of one member
/// takes 80 times its text, so that a body of 3 MiB could take 250 MiB; an object that a store
/// accepts stays below this.
pub const TREE_BYTES_MAX: usize = 128 << 20;

/// The most problems of one body that are reported: Go's strict decoder stops at a hundred, too.
pub const PROBLEMS_MAX: usize = 100;
/// No further problem is reported once those before it have this many bytes. A path can be as long
/// as the body, and a hundred of them must not be.
pub const PROBLEMS_BYTES_MAX: usize = 64 << 10;

/// Notes a problem while there is room. Each is noted once.
pub(crate) fn note(problems: &mut Vec<String>, problem: impl FnOnce() -> String) {
    let has_room = problems.len() < PROBLEMS_MAX
        && problems.iter().map(String::len).sum::<usize>() < PROBLEMS_BYTES_MAX;
    if has_room {
        let problem = problem();
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }
}

/// Parses. Depth, memory and the expansion of aliases are limited ([`JSON_DEPTH_MAX`],
/// [`YAML_DEPTH_MAX`], [`TREE_BYTES_MAX`], [`YAML_ALIAS_NODES_MAX`], [`YAML_ALIAS_BYTES_MAX`]).
///
/// Of a member given twice the last one wins and a problem is noted. Only the first document of a
/// YAML stream is read.
///
/// # Errors
/// Malformed or too deep text, in the words of Go's decoder.
pub fn parse(body: &[u8], format: Format) -> Result<Decoded, DecodeError> {
    match format {
        Format::Json => json::parse(body),
        Format::Yaml => yaml::parse(body),
        Format::Protobuf => protobuf::parse(body),
        Format::Cbor => Ok(Decoded { value: cbor::object(body)?, problems: Vec::new() }),
    }
}

/// What Go's decoder of JSON says of a value that a type cannot hold. `found`: the value's type in
/// JSON; `field`: the struct and the path in it, as in `Pod.spec.nodeName`, empty for the whole
/// value.
pub fn wrong_type(found: &str, field: &str, ty: &str) -> String {
    match field {
        "" => format!("json: cannot unmarshal {found} into Go value of type {ty}"),
        _ => format!("json: cannot unmarshal {found} into Go struct field {field} of type {ty}"),
    }
}

/// As [`parse`], for a value whose type may have integers. Numbers of JSON that are written with a
/// fraction or an exponent stay floats, because Go reads none of them as an integer: not `1.0` and
/// not `1e0`. [`conform`] refuses them there and makes integers of the others, as
/// [`settle_numbers`] does.
///
/// A number beyond `float64` is the largest one: it is an error only where it is looked at. YAML is
/// converted to JSON first, which writes `1.0` as `1`.
///
/// # Errors
///
/// As [`parse`].
pub fn parse_typed(body: &[u8], format: Format) -> Result<Decoded, DecodeError> {
    match format {
        Format::Json => json::parse_typed(body, true),
        _ => parse(body, format),
    }
}

/// As [`parse_typed`] of JSON, for a body whose type may have anything: numbers beyond `float64`
/// are errors.
///
/// # Errors
///
/// As [`parse`].
pub(crate) fn parse_floats(body: &[u8]) -> Result<Decoded, DecodeError> {
    json::parse_typed(body, false)
}

/// [`parse_typed`] for a JSON list whose elements are structs with these members. Unknown members
/// of the elements are problems too; all are in document order.
///
/// # Errors
///
/// As [`parse`].
pub(crate) fn parse_elements(
    body: &[u8],
    members: &'static [&'static str],
) -> Result<Decoded, DecodeError> {
    json::parse_elements(body, members)
}

/// The error of [`conform`] for a body in JSON as Go has it of the text: the first one, with
/// numbers as they are written, `1e0`. `None` if it conforms, and for the other formats: YAML
/// becomes JSON with sorted members first.
pub fn conform_error(
    schema: &TypeSchema,
    kind: &str,
    body: &[u8],
    format: Format,
) -> Option<DecodeError> {
    if format != Format::Json {
        return None;
    }
    let mut decoded = json::parse_typed(body, true).ok()?;
    decoded.merge_repeated(schema, body, format);
    conform::conform_written(schema, kind, &mut decoded.value, body).err()
}

/// Decodes protobuf whose `apiVersion` may be `former`: it is taken for `present`, which has the
/// same messages.
///
/// # Errors
///
/// As [`parse`].
pub fn parse_former_protobuf(
    body: &[u8],
    former: &str,
    present: &str,
) -> Result<Value, DecodeError> {
    protobuf::parse_as(body, Some((former, present)))
}

/// Why a value does not decode, as the reference's converter words it: applied configurations and
/// results of strategic merge patches pass through it.
pub fn converter_error(why: &str) -> Cow<'_, str> {
    match why.starts_with("illegal base64") {
        true => format!("error decoding from json: {why}").into(),
        false => why.into(),
    }
}

/// `strict decoding error: …`, the sentence by which `fieldValidation=Strict` refuses these
/// problems.
pub fn strict_error(problems: &[String]) -> String {
    let (yaml, fields): (Vec<&str>, Vec<&str>) =
        problems.iter().map(String::as_str).partition(|p| p.starts_with("line "));
    let mut parts = Vec::with_capacity(fields.len() + 1);
    if !yaml.is_empty() {
        parts.push(format!("yaml: unmarshal errors:\n  {}", yaml.join("\n  ")));
    }
    parts.extend(fields.into_iter().map(str::to_owned));
    format!("strict decoding error: {}", parts.join(", "))
}
