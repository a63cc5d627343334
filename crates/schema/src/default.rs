//! Defaults: those a schema declares, and (for built-in kinds) those Kubernetes applies in code.
use crate::node::TypeSchema;
use serde_json::Value;
/// Fills every absent property that has a default, null handling included (spec: crd §4).
pub fn apply(_schema: &TypeSchema, _value: &mut Value) {
    todo!()
}
/// Fills a built-in object as Kubernetes' versioned defaulting does (Deployment strategy, Pod policies, Service type, …), the schema's defaults included.
pub fn apply_builtin(
    _group: &str,
    _version: &str,
    _kind: &str,
    _schema: &TypeSchema,
    _value: &mut Value,
) {
    todo!()
}
