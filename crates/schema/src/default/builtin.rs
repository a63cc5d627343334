//! Defaults that Kubernetes applies in code.
use crate::node::TypeSchema;
use serde_json::Value;
/// Fills a built-in object.
pub fn apply_builtin(
    _group: &str,
    _version: &str,
    _kind: &str,
    schema: &TypeSchema,
    value: &mut Value,
) {
    super::apply(schema, value);
}
