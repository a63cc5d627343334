//! Pruning of fields a structural schema does not declare (spec: crd §4).
use crate::node::TypeSchema;
use serde_json::Value;
/// Removes undeclared fields and returns their paths (`spec.foo`, `spec.l[0].u`), document order. `metadata` at the root is left to the caller.
pub fn prune(_schema: &TypeSchema, _value: &mut Value) -> Vec<String> {
    todo!()
}
