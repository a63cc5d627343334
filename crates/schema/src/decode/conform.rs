//! A tree of a built-in kind held to its schema.
use super::DecodeError;
use crate::node::TypeSchema;
use serde_json::Value;

/// Holds a tree of a built-in type to its schema as Go's typed decoding does.
pub fn conform(
    _schema: &TypeSchema,
    _kind: &str,
    _value: &mut Value,
    _problems: &mut Vec<String>,
) -> Result<(), DecodeError> {
    todo!()
}
