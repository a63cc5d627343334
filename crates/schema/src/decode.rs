//! From a request body to a tree: JSON or YAML, duplicate and unknown fields, types, canonical scalars (spec: api-server §5.2).
use crate::node::TypeSchema;
use serde_json::Value;
/// How the body is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Format {
    Json,
    Yaml,
}
/// A decoded body and what was odd about it, in the API's words: `duplicate field "spec.replicas"`, `unknown field "spec.foo"` (duplicates first).
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    /// The tree.
    pub value: Value,
    /// Duplicates and (after [`conform`]) unknown fields.
    pub problems: Vec<String>,
}
/// Why a body is not a tree; displays Go's words (`unexpected end of JSON input`, …).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DecodeError(pub String);
/// Parses; depth and alias expansion are limited.
pub fn parse(_body: &[u8], _format: Format) -> Result<Decoded, DecodeError> {
    todo!()
}
/// Holds a tree of a built-in type to its schema as Go's typed decoding does: unknown fields dropped (their paths appended to
/// `problems`), nulls dropped, wrong types refused (`json: cannot unmarshal number into Go struct field ConfigMap.data of type string`),
/// quantities and times made canonical, empty optional values dropped where `omitempty` does.
pub fn conform(
    _schema: &TypeSchema,
    _kind: &str,
    _value: &mut Value,
    _problems: &mut Vec<String>,
) -> Result<(), DecodeError> {
    todo!()
}
