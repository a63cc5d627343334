//! CustomResourceDefinitions: from `openAPIV3Schema` to a schema, and the validation of the definition itself (spec: crd §1, §3, §8, §9).

mod build;
mod default;
mod metadata;
mod regexp;

pub use build::type_schema;
pub use default::default_definition;

use serde_json::Value;
use setpoint_object::field;

/// Validates a definition on create (`old` absent) or update; paths as the API reports them.
pub fn validate_definition(_crd: &Value, _old: Option<&Value>) -> Vec<field::Error> {
    todo!()
}
