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
    node(schema, true, path, &mut budget, errors);
}

fn node(schema: &Value, is_root: bool, path: &Path, budget: &mut u64, errors: &mut Errors) {
    if let Some(default) = schema.get("default").filter(|default| !default.is_null()) {
        check(schema, is_root, default, &path.child("default"), budget, errors);
    }
    for (name, inner) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        node(inner, false, &path.child("properties").key(name), budget, errors);
    }
    for name in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get(name).filter(|inner| inner.is_object()) {
            node(inner, false, &path.child(name), budget, errors);
        }
    }
}

fn check(
    schema: &Value,
    is_root: bool,
    default: &Value,
    path: &Path,
    budget: &mut u64,
    errors: &mut Errors,
) {
    let ty = text(schema, "type");
    if !ty.is_empty() && !TYPES.contains(&ty) {
        // Nothing is of a type that does not exist.
        let found = instance::type_of(default);
        let detail = format!(" in body must be of type {ty}: {found:?}");
        errors.push(Error::invalid(path.clone(), &found.into(), detail));
        return;
    }
    // The type and metadata of a root are not pruned.
    let built: TypeSchema =
        if is_root { build::type_schema(schema) } else { build::node_schema(schema) };
    let mut pruned = default.clone();
    let unknown = match is_root {
        true => prune::prune(&built, &mut pruned),
        false => prune::prune_node(&built, &mut pruned),
    };
    if !unknown.is_empty() {
        errors.push(Error::invalid(path.clone(), default, "must not have unknown fields"));
    }
    // What has a wrong type or wrong metadata is not looked at further.
    let mut found = instance::validate_resources(&built, is_root, default);
    if found.is_empty() {
        let lenient = build::node_schema(&without_int_or_string(schema));
        found = instance::validate_default(&lenient, default);
    }
    let is_valid = found.is_empty();
    for mut error in found {
        instance::put_below(path, &mut error);
        errors.push(error);
    }
    if is_valid && built.has_rules() {
        errors.extend(rule_errors(&built, default, path, budget));
    }
}

/// A schema in which what is an integer or a string may be anything: the API does not check that of
/// defaults.
fn without_int_or_string(schema: &Value) -> Value {
    match schema {
        Value::Object(members) => {
            let kept = members.iter().filter(|(name, value)| {
                **name != "x-kubernetes-int-or-string" || !value.is_boolean()
            });
            let kept = kept.map(|(name, value)| match name.as_str() {
                "default" | "enum" | "example" => (name.clone(), value.clone()),
                _ => (name.clone(), without_int_or_string(value)),
            });
            Value::Object(kept.collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(without_int_or_string).collect()),
        value => value.clone(),
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
