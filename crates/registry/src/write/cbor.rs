//! Bodies in CBOR, and the reference's sentences about those that are none.
use super::Write;
use super::body::cannot_be_handled;
use crate::request::Body;
use serde_json::{Value, json};
use setpoint_object::{ApiError, GroupVersion, GroupVersionKind};
use setpoint_schema::decode::DecodeError;
use setpoint_schema::decode::cbor::{self, Head};
use setpoint_schema::node::TypeSchema;
use std::fmt::Write as _;

/// Maximum bytes that an error shows of a body.
const EXCERPT_BYTES_MAX: usize = 30;

impl Write<'_> {
    /// Decodes a body and finds the unknown fields of a built-in kind. `schema`: that of the kind;
    /// `None` for a custom resource.
    pub(super) fn parse_cbor(
        &self,
        gvk: &GroupVersionKind,
        body: &Body,
        schema: Option<&TypeSchema>,
    ) -> Result<(Value, Vec<String>), ApiError> {
        match schema {
            Some(schema) => built_in(gvk, &body.bytes, schema),
            None => custom(gvk, &body.bytes).map(|value| (value, Vec::new())),
        }
    }
}

/// A body of a built-in kind becomes the struct of the kind that it names.
fn built_in(
    gvk: &GroupVersionKind,
    body: &[u8],
    schema: &TypeSchema,
) -> Result<(Value, Vec<String>), ApiError> {
    let Head { api_version, kind } = cbor::head(body).map_err(|e| untyped(gvk, body, &e))?;
    let is_of_kind = kind.is_empty() || kind == *gvk.kind;
    let is_of_version = api_version.is_empty() || api_version == gvk.group_version().to_string();
    if !is_of_kind || !is_of_version {
        // Refused for its type, before anything else in it matters.
        return Ok((json!({"apiVersion": api_version, "kind": kind}), Vec::new()));
    }
    let decoded = cbor::typed(body, schema).map_err(|e| cannot_be_handled(gvk, &gvk.kind, &e))?;
    Ok((decoded.value, decoded.unknown.into_iter().collect()))
}

/// A custom resource is a map, and says itself what it is.
fn custom(gvk: &GroupVersionKind, body: &[u8]) -> Result<Value, ApiError> {
    let value = match cbor::object(body) {
        Ok(value) => value,
        Err(error) => {
            let head = cbor::head(body).map_err(|e| untyped(gvk, body, &e))?;
            return Err(cannot_be_handled(&named(head, gvk), &gvk.kind, &error));
        }
    };
    let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
    let missing = |name: &str| format!("Object '{name}' is missing in '{}'", cbor::diagnose(body));
    if text("kind").is_empty() {
        return Err(unrecognized(gvk, body, &missing("Kind")));
    }
    if text("apiVersion").is_empty() {
        let found = GroupVersionKind::new("", "", text("kind"));
        return Err(cannot_be_handled(&found, &gvk.kind, &missing("apiVersion")));
    }
    Ok(value)
}

/// The type that a body names, or that of the endpoint.
fn named(head: Head, gvk: &GroupVersionKind) -> GroupVersionKind {
    let version = match head.api_version.as_str() {
        "" => gvk.group_version(),
        text => GroupVersion::parse(text).unwrap_or_else(|| GroupVersion::new("", text)),
    };
    version.kind(if head.kind.is_empty() { gvk.kind.to_string() } else { head.kind })
}

/// 400: a body whose type cannot be read.
fn untyped(gvk: &GroupVersionKind, body: &[u8], error: &DecodeError) -> ApiError {
    unrecognized(gvk, body, &format!("unable to determine group/version/kind: {error}"))
}

fn unrecognized(gvk: &GroupVersionKind, body: &[u8], why: &str) -> ApiError {
    ApiError::bad_request(format!(
        "the object provided is unrecognized (must be of type {}): {why} ({})",
        gvk.kind,
        excerpt(body),
    ))
}

/// The first bytes of a body: as text if it starts like JSON, otherwise in hex.
fn excerpt(body: &[u8]) -> String {
    let (start, rest) = body.split_at(body.len().min(EXCERPT_BYTES_MAX));
    let mut shown = match start {
        [] => return "<empty>".to_owned(),
        [b'{', ..] => String::from_utf8_lossy(start).into_owned(),
        _ => start.iter().fold(String::new(), |mut hex, byte| {
            // Writing to a String cannot fail.
            _ = write!(hex, "{byte:02x}");
            hex
        }),
    };
    if !rest.is_empty() {
        shown.push_str(" ...");
    }
    shown
}
