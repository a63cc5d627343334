//! CustomResourceDefinitions: from `openAPIV3Schema` to a schema, and the validation of the
//! definition itself (spec: crd §1, §3, §8, §9).

mod build;
mod default;
mod metadata;
mod settle;
mod validate;

pub use build::type_schema;
pub use default::default_definition;
pub(crate) use validate::rule_path;
pub use validate::{
    Approval, StructureFault, approval_of, ca_bundle_valid, condition_is_true, definition_warnings,
    is_structural, name_fault, structure_fault, validate_client_config, validate_definition,
    validate_definition_status,
};
