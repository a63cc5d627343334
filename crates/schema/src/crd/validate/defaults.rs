//! Defaults in a schema must themselves be valid and pruned.
use super::structural::TYPES;
use super::text;
use crate::crd::build;
use crate::node::TypeSchema;
use crate::rules::{self, OBJECT_COST_MAX, Rules};
use crate::{prune, validate as instance};
use serde_json::Value;
use setpoint_object::field::{Error, Errors, Path};

/// Checks every default below a structural schema.
pub(super) fn validate(schema: &Value, path: &Path, errors: &mut Errors) {
    let mut budget = OBJECT_COST_MAX;
    node(schema, path, &mut budget, errors);
}

fn node(schema: &Value, path: &Path, budget: &mut u64, errors: &mut Errors) {
    if let Some(default) = schema.get("default").filter(|default| !default.is_null()) {
        check(schema, default, &path.child("default"), budget, errors);
    }
    for (name, inner) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        node(inner, &path.child("properties").key(name), budget, errors);
    }
    for name in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get(name).filter(|inner| inner.is_object()) {
            node(inner, &path.child(name), budget, errors);
        }
    }
}

fn check(schema: &Value, default: &Value, path: &Path, budget: &mut u64, errors: &mut Errors) {
    let ty = text(schema, "type");
    if !ty.is_empty() && !TYPES.contains(&ty) {
        // Nothing is of a type that does not exist.
        let found = instance::type_of(default);
        let detail = format!(" in body must be of type {ty}: {found:?}");
        errors.push(Error::invalid(path.clone(), &found.into(), detail));
        return;
    }
    let schema: TypeSchema = build::node_schema(schema);
    let mut pruned = default.clone();
    if !prune::prune_node(&schema, &mut pruned).is_empty() {
        errors.push(Error::invalid(path.clone(), default, "must not have unknown fields"));
        return;
    }
    let found = instance::validate_node(&schema, default);
    let is_valid = found.is_empty();
    for mut error in found {
        let below = error.path.text();
        error.path = match below.as_str() {
            "" => path.clone(),
            below if below.starts_with('[') => Path::new(format!("{path}{below}")),
            below => path.child(below),
        };
        errors.push(error);
    }
    if is_valid && schema.has_rules() {
        errors.extend(rule_errors(&schema, default, path, budget));
    }
}

/// The violations of an old default and of a new one.
fn rule_errors(schema: &TypeSchema, default: &Value, path: &Path, budget: &mut u64) -> Errors {
    let view = schema.view();
    let rules = Rules::new(view, false);
    let mut left = *budget;
    let errors =
        rules::evaluate(&rules, view, default, Some(default), false, path, &mut left).errors;
    if !errors.is_empty() {
        *budget = left;
        return errors;
    }
    let mut left_when_new = *budget;
    let errors =
        rules::evaluate(&rules, view, default, None, false, path, &mut left_when_new).errors;
    *budget = left.min(left_when_new);
    errors
}
