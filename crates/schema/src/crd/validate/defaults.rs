//! Defaults in a schema must themselves be valid and pruned.
use super::schema::is_true;
use super::structural::TYPES;
use super::text;
use crate::crd::build;
use crate::decode::conform_metadata;
use crate::node::{TYPE_AND_METADATA, TypeSchema, View};
use crate::rules::{self, OBJECT_COST_MAX, Rules};
use crate::{prune, validate as instance};
use serde_json::{Map, Value};
use setpoint_object::field::{Error, Errors, Path, aggregate};
use std::cell::OnceCell;

/// Checks every default below a structural schema.
pub(super) fn validate(schema: &Value, path: &Path, errors: &mut Errors) {
    Defaults { errors, budget: OBJECT_COST_MAX }.node(schema, true, None, path);
}

/// A resource that defaults are a part of.
struct Resource<'s> {
    schema: &'s Value,
    /// Built when the first default in its type or metadata is checked.
    built: OnceCell<TypeSchema>,
}

/// A node in the type or the metadata of a resource.
#[derive(Clone)]
struct Inside<'s> {
    resource: &'s Resource<'s>,
    /// The way from there; `None`: to the items of a list.
    steps: Vec<Option<&'s str>>,
}

impl<'s> Inside<'s> {
    fn below(&self, step: Option<&'s str>) -> Self {
        let mut below = self.clone();
        below.steps.push(step);
        below
    }

    /// A resource that has nothing but its type and this value.
    fn surround(&self, value: Value) -> Value {
        let mut object = value;
        for step in self.steps.iter().rev() {
            object = match step {
                Some(name) => Value::Object(Map::from_iter([((*name).to_owned(), object)])),
                None => Value::Array(vec![object]),
            };
        }
        for (name, text) in [("apiVersion", "validation/v1"), ("kind", "Validation")] {
            if object.get(name).is_none() {
                object[name] = text.into();
            }
        }
        object
    }
}

struct Defaults<'e> {
    errors: &'e mut Errors,
    budget: u64,
}

impl Defaults<'_> {
    fn node<'s>(
        &mut self,
        schema: &'s Value,
        is_root: bool,
        inside: Option<&Inside<'s>>,
        path: &Path,
    ) {
        let is_resource = is_root || is_true(schema, "x-kubernetes-embedded-resource");
        let inside = inside.filter(|_| !is_resource);
        if let Some(default) = schema.get("default").filter(|default| !default.is_null()) {
            let path = path.child("default");
            match inside {
                Some(inside) => self.check_inside(schema, inside, default, &path),
                None => check(schema, is_root, default, &path, &mut self.budget, self.errors),
            }
        }
        let resource = Resource { schema, built: OnceCell::new() };
        let properties = schema.get("properties").and_then(Value::as_object);
        for (name, inner) in properties.into_iter().flatten() {
            let inside = match is_resource {
                true if TYPE_AND_METADATA.contains(&name.as_str()) => {
                    Some(Inside { resource: &resource, steps: vec![Some(name)] })
                }
                true => None,
                false => inside.map(|inside| inside.below(Some(name))),
            };
            self.node(inner, false, inside.as_ref(), &path.child("properties").key(name));
        }
        // The API does not check those of `additionalProperties`.
        if let Some(inner) = schema.get("items").filter(|inner| inner.is_object()) {
            let inside = inside.map(|inside| inside.below(None));
            self.node(inner, false, inside.as_ref(), &path.child("items"));
        }
    }

    /// Checks a default in the type or the metadata of a resource.
    fn check_inside(&mut self, schema: &Value, inside: &Inside<'_>, default: &Value, path: &Path) {
        let mut object = inside.surround(default.clone());
        let metadata = object.get("metadata").cloned();
        let fault = match conform_metadata(&mut object, &mut Vec::new()) {
            Err(error) => {
                let shown = metadata.unwrap_or_default();
                Some(format!("metadata: Invalid value: {shown}: {error}"))
            }
            Ok(()) => {
                let Resource { schema, built } = inside.resource;
                let resource = built.get_or_init(|| build::node_schema(schema));
                let found = instance::validate_resources(resource, true, &object);
                (!found.is_empty()).then(|| aggregate(&found))
            }
        };
        if let Some(fault) = fault {
            let detail = format!("must result in valid metadata: {fault}");
            return self.errors.push(Error::invalid(path.clone(), default, detail));
        }
        let built = build::node_schema(schema);
        hold(schema, &built, false, default, path, &mut self.budget, self.errors);
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
        errors.push(Error::type_invalid(path.clone(), &found.into(), detail));
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
    let found = instance::validate_resources(&built, is_root, default);
    if found.is_empty() {
        return hold(schema, &built, is_root, default, path, budget, errors);
    }
    for mut error in found {
        instance::put_below(path, &mut error);
        errors.push(error);
    }
}

/// Holds a default to its schema and to the rules in it.
fn hold(
    schema: &Value,
    built: &TypeSchema,
    is_root: bool,
    default: &Value,
    path: &Path,
    budget: &mut u64,
    errors: &mut Errors,
) {
    let lenient = build::node_schema(&without_int_or_string(schema));
    let found = instance::validate_default(&lenient, default);
    if found.is_empty() && built.has_rules() {
        errors.extend(rule_errors(built, is_root, default, path, budget));
    }
    for mut error in found {
        match error.path.text() {
            // The reference takes the place of an item for a name.
            item if item.starts_with('[') => error.path = path.child(&item),
            _ => instance::put_below(path, &mut error),
        }
        errors.push(error);
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
fn rule_errors(
    schema: &TypeSchema,
    is_root: bool,
    default: &Value,
    path: &Path,
    budget: &mut u64,
) -> Errors {
    let view = schema.view();
    if rules::declare(view, is_root, "self").is_none() {
        let mut errors = Errors::default();
        refuse_unseen(view, default, path, &mut errors);
        return errors;
    }
    let rules = Rules::new(view, is_root);
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

/// Refuses what is a default of nodes with rules that expressions do not see.
fn refuse_unseen(view: View<'_>, value: &Value, path: &Path, errors: &mut Errors) {
    if value.is_null() {
        return;
    }
    if view.node().validation.as_deref().is_some_and(|validation| !validation.rules.is_empty()) {
        let detail = "rule compiler initialization error: failed to convert to declType for CEL validation rules";
        errors.push(Error::invalid(path.clone(), &rules::type_word(view.shape).into(), detail));
    }
    match value {
        Value::Array(items) => {
            let Some(view) = view.items() else { return };
            for (i, item) in items.iter().enumerate() {
                refuse_unseen(view, item, &path.index(i), errors);
            }
        }
        Value::Object(members) => {
            let Some(view) = view.additional.map(|id| view.at(id)) else { return };
            for (name, member) in members {
                refuse_unseen(view, member, &path.key(name), errors);
            }
        }
        _ => {}
    }
}
