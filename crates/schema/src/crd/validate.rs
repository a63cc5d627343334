//! Validation of a definition: names, versions, schemas, columns, conversion.
//!
//! The API server validates a form in which everything that is equal in all versions is lifted out
//! of the list, and its errors point there: `spec.validation.openAPIV3Schema.type` when all
//! versions share their schema, `spec.versions[1].schema.openAPIV3Schema.type` when they differ.

mod ca;
mod columns;
mod conversion;
mod defaults;
mod expressions;
mod limits;
mod names;
mod rules;
mod schema;
mod shown;
mod structural;
mod versions;

pub use ca::valid as ca_bundle_valid;
pub use conversion::client_config as validate_client_config;
pub use names::{Approval, approval_of, name_fault};
pub(crate) use rules::steps as rule_path;
pub use structural::{StructureFault, is_structural, structure_fault};

use serde_json::Value;
use setpoint_object::field::{Error, Errors, Path};
use std::collections::HashSet;

/// Validates a definition on create (`old` absent) or update; paths as the API reports them.
///
/// On update, what the old definition already had wrong is let through, and what may not change is
/// checked.
pub fn validate_definition(crd: &Value, old: Option<&Value>) -> Errors {
    let mut errors = Errors::new();
    limits::check(crd, old, &mut errors);
    if !errors.is_empty() {
        return errors;
    }
    // A definition without webhook calls yet, or with a bad bundle already, may have a bad one.
    let checks_bundle = old.is_some_and(|old| {
        condition_is_true(old, "Established") && ca::of(old).is_none_or(ca::valid)
    });
    versions::spec(crd, checks_bundle, &mut errors);
    if let Some(old) = old {
        let mut before = Errors::new();
        versions::spec(old, false, &mut before);
        let before: HashSet<_> = before.iter().map(identity).collect();
        let is_strict = structural::lacks_needed_structure(crd, old);
        errors.retain(|error| is_strict || !tolerated(error) || !before.contains(&identity(error)));
        immutable(crd, old, &mut errors);
    }
    versions::stored(crd, &mut errors);
    names::approval(crd, old, &mut errors);
    // What another version of Kubernetes has stored stays.
    if preserves_unknown_fields(crd) && !old.is_some_and(preserves_unknown_fields) {
        errors.push(Error::invalid(
            Path::new("spec.preserveUnknownFields"),
            &Value::Bool(true),
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        ));
    }
    errors
}

fn preserves_unknown_fields(crd: &Value) -> bool {
    crd.pointer("/spec/preserveUnknownFields") == Some(&Value::Bool(true))
}

/// Texts of `Warning` headers that writing the definition gives: formats that are not enforced.
pub fn definition_warnings(crd: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    for version in crd.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten() {
        if let Some(schema) = version.pointer("/schema/openAPIV3Schema") {
            schema::unknown_formats(schema, &mut warnings);
        }
    }
    warnings
}

/// The content of an error.
fn identity(error: &Error) -> (&str, String, Option<&str>, &str) {
    (error.reason(), error.path.text(), error.shown.as_deref(), &error.detail)
}

/// Validates a write through `/status`: the accepted names.
pub fn validate_definition_status(crd: &Value) -> Errors {
    let mut errors = Errors::new();
    let names = crd.pointer("/status/acceptedNames").unwrap_or(&Value::Null);
    names::forms(names, &Path::new("status.acceptedNames"), &mut errors);
    errors
}

/// Whether an error that was there before may stay.
fn tolerated(error: &Error) -> bool {
    let path = error.path.text();
    path.starts_with("spec.validation")
        || path.starts_with("spec.selectableFields")
        || (path.starts_with("spec.versions[")
            && (path.contains("].schema") || path.contains("].selectableFields")))
}

/// Immutable fields.
fn immutable(crd: &Value, old: &Value, errors: &mut Errors) {
    let mut fixed = vec!["group", "names/plural"];
    if condition_is_true(old, "Established") {
        fixed.splice(0..0, ["scope", "names/kind"]);
    }
    for field in fixed {
        let pointer = format!("/spec/{field}");
        let text = |crd: &'_ Value| {
            crd.pointer(&pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let new = text(crd);
        if new != text(old) {
            let path = format!("spec.{}", field.replace('/', "."));
            errors.push(Error::invalid(Path::new(path), &new.into(), "field is immutable"));
        }
    }
}

/// Whether a condition of the definition is True.
pub fn condition_is_true(crd: &Value, condition: &str) -> bool {
    let conditions = crd.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|c| c["type"] == condition && c["status"] == "True")
}

/// The versions of a definition.
fn list(crd: &Value) -> &[Value] {
    crd.pointer("/spec/versions").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The text of a member, empty when absent.
fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or("")
}

#[cfg(test)]
mod tests;
