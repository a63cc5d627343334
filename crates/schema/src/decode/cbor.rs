//! CBOR bodies, turned into the tree that JSON would have given.
//!
//! ```text
//! 55799( map )     55799 is the tag of self-described CBOR; it may be missing
//! ```
//!
//! | CBOR | tree |
//! |---|---|
//! | byte string, text string | a string. Text must be UTF-8 |
//! | byte string below tag 21, 22, 23 | base64url, base64 or base16 of it |
//! | text below tag 0, number below tag 1 | a time in RFC 3339 |
//! | what is below another tag | itself |
//! | integer | `int64`; others are refused |
//! | `NaN`, infinities, `undefined`, bignums, other simple values | refused |
//! | map | keys are strings, each once |
//!
//! The rules and the texts are those of the reference's decoder. It decodes a built-in kind into a
//! struct: there a byte string in a field of bytes is base64, tags 21 to 23 mean that it is not, a
//! text string there is refused, and of unknown fields only the first has a place, its index in
//! its map ([`typed`]). Everything else is free-form ([`object`]).
//!
//! The form of a whole body is checked before any of it is decoded. Both are linear in its bytes.

mod diagnose;
mod form;
#[cfg(test)]
mod tests;
mod typed;
mod value;
mod wire;

use super::DecodeError;
use crate::cbor::MAGIC;
use crate::node::TypeSchema;
use serde_json::Value;
use wire::Reader;

/// `apiVersion` and `kind` of a body; empty if absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Head {
    /// `apiVersion`.
    pub api_version: String,
    /// `kind`.
    pub kind: String,
}

/// Reads the type of a body that becomes a struct. The form of all of it is checked, and that no
/// member of the object itself is given twice.
///
/// # Errors
/// Malformed bodies, what is neither a map nor `null`, and types that are not strings.
pub fn head(body: &[u8]) -> Result<Head, DecodeError> {
    form::check(body)?;
    value::head(Reader::new(body))
}

/// A decoded body of a built-in kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Typed {
    /// The object, without unknown fields. [`super::conform`] makes it canonical.
    pub value: Value,
    /// What strict decoding says about unknown fields: `cbor: found unknown field at map element
    /// index 3`.
    pub unknown: Option<String>,
}

/// Decodes a body of a built-in kind. `null` is an empty object.
///
/// # Errors
/// Malformed bodies, and the first value of a wrong type, in the words of the reference's decoder.
pub fn typed(body: &[u8], schema: &TypeSchema) -> Result<Typed, DecodeError> {
    form::check(body)?;
    typed::decode(Reader::new(body), schema.view())
}

/// Decodes a body that may have any members: a custom resource, an applied configuration. The
/// result is an object or `null`.
///
/// # Errors
/// Malformed bodies, other values, and values without a JSON form.
pub fn object(body: &[u8]) -> Result<Value, DecodeError> {
    form::check(body)?;
    value::object(Reader::new(body))
}

/// A well-formed body in diagnostic notation, as errors show it: `55799({'kind': 'Foo'})`. Empty
/// if it is malformed. A text of up to six times the length of the body.
pub fn diagnose(body: &[u8]) -> String {
    let mut out = String::new();
    if form::check(body).is_err() || diagnose::item(&mut Reader::new(body), &mut out).is_err() {
        out.clear();
    }
    out
}
