//! Validation of custom resources against their structural schema (spec: crd §5).
use crate::node::TypeSchema;
use serde_json::Value;
use setpoint_object::field;
/// Every violation, in the order the API reports them. `old` is the stored object on update (ratcheting).
pub fn validate(_schema: &TypeSchema, _value: &Value, _old: Option<&Value>) -> Vec<field::Error> {
    todo!()
}
