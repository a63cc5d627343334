//! Defaults in a schema must themselves be valid and pruned.
use crate::crd::build;
use crate::node::TypeSchema;
use crate::{prune, validate as instance};
use serde_json::Value;
use setpoint_object::field::{Error, Errors, Path};

/// Checks every default below a structural schema.
pub(super) fn validate(schema: &Value, path: &Path, errors: &mut Errors) {
    if let Some(default) = schema.get("default").filter(|default| !default.is_null()) {
        check(schema, default, &path.child("default"), errors);
    }
    for (name, inner) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        validate(inner, &path.child("properties").key(name), errors);
    }
    for name in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get(name).filter(|inner| inner.is_object()) {
            validate(inner, &path.child(name), errors);
        }
    }
}

fn check(schema: &Value, default: &Value, path: &Path, errors: &mut Errors) {
    let schema: TypeSchema = build::node_schema(schema);
    let mut pruned = default.clone();
    if !prune::prune_node(&schema, &mut pruned).is_empty() {
        errors.push(Error::invalid(path.clone(), default, "must not have unknown fields"));
        return;
    }
    for mut error in instance::validate_node(&schema, default) {
        let below = error.path.text();
        error.path = match below.as_str() {
            "" => path.clone(),
            below if below.starts_with('[') => Path::new(format!("{path}{below}")),
            below => path.child(below),
        };
        errors.push(error);
    }
}
