//! The value validations of OpenAPI.
use super::scalar;
use crate::node::{ListType, Shape, Validation, View};
use serde_json::{Map, Value};
use setpoint_object::field::{Error, Path};

/// Validates a root: its `metadata` only as far as the schema restricts names.
pub(super) fn validate(root: View<'_>, value: &Value, old: Option<&Value>) -> Vec<Error> {
    let mut validator = Validator::default();
    validator.root(root, value, old);
    validator.errors
}

/// Validates a node that lies at `path`.
pub(super) fn validate_at(
    schema: View<'_>,
    path: &str,
    value: &Value,
    old: Option<&Value>,
) -> Vec<Error> {
    let mut validator = Validator { path: path.to_owned(), ..Validator::default() };
    validator.node(schema, value, old);
    validator.errors
}

#[derive(Default)]
struct Validator {
    path: String,
    errors: Vec<Error>,
    /// Nodes looked at: of several failing branches the one that got furthest is reported.
    visited: usize,
}

/// An error of the value at `path`, with the sentence `<path> in body <what>`.
pub(super) fn invalid(path: &str, value: &Value, what: &str) -> Error {
    Error::invalid(Path::new(path), value, format!("{path} in body {what}"))
}

/// A value of the wrong type or format: `<path> in body must be of type <wanted>: <shown>`.
pub(super) fn type_invalid(path: &str, wanted: &str, shown: &Value) -> Error {
    let text = setpoint_object::field::show(shown);
    let what = format!("{path} in body must be of type {wanted}: {text}");
    Error::type_invalid(Path::new(path), shown, what)
}

/// An error that belongs to no field.
pub(super) fn rootless(text: String) -> Error {
    Error::invalid(Path::root(), &Value::from(""), text)
}

impl Validator {
    fn root(&mut self, schema: View<'_>, value: &Value, old: Option<&Value>) {
        let Value::Object(members) = value else { return self.node(schema, value, old) };
        self.combinators(schema, value);
        let old = old.and_then(Value::as_object);
        self.object(schema, members, old, true);
    }

    fn node(&mut self, schema: View<'_>, value: &Value, old: Option<&Value>) {
        self.visited += 1;
        if old == Some(value) {
            return;
        }
        scalar::check_type(schema, &self.path, value, &mut self.errors);
        let validation = schema.node().validation.as_deref();
        if !value.is_null() {
            self.combinators(schema, value);
            scalar::check(schema, &self.path, value, &mut self.errors);
        }
        if let Value::Array(items) = value {
            self.list(schema, items, old);
        }
        if let Some(validation) = validation {
            scalar::check_enum(validation, &self.path, value, &mut self.errors);
        }
        if let Value::Object(members) = value {
            self.object(schema, members, old.and_then(Value::as_object), false);
        }
    }

    fn list(&mut self, schema: View<'_>, items: &[Value], old: Option<&Value>) {
        let old = old.and_then(Value::as_array);
        let base = self.path.len();
        if let Some(item_schema) = schema.items() {
            for (i, item) in items.iter().enumerate() {
                self.path.push('[');
                self.path.push_str(itoa::Buffer::new().format(i));
                self.path.push(']');
                let old = old.and_then(|old| correlated(&schema.list_type, item, old));
                self.node(item_schema, item, old);
                self.path.truncate(base);
            }
        }
        let Some(validation) = schema.node().validation.as_deref() else { return };
        let count = items.len();
        if let Some(min) = validation.min_items.filter(|min| (count as u64) < *min) {
            let what = format!("should have at least {min} items");
            self.errors.push(invalid(&self.path, &Value::from(count), &what));
        }
        if let Some(max) = validation.max_items.filter(|max| count as u64 > *max) {
            self.errors.push(Error::too_many(Path::new(&*self.path), count, max as usize));
        }
    }

    fn object(
        &mut self,
        schema: View<'_>,
        members: &Map<String, Value>,
        old: Option<&Map<String, Value>>,
        root: bool,
    ) {
        let validation = schema.node().validation.as_deref();
        if let Some(validation) = validation {
            self.object_bounds(validation, members.len());
        }
        let base = self.path.len();
        for name in &schema.node().required {
            if !members.contains_key(name.as_ref()) {
                self.enter(base, name);
                self.errors.push(Error::required(Path::new(&*self.path), ""));
                self.path.truncate(base);
            }
        }
        if validation.is_some_and(|v| v.additional_forbidden) {
            for name in members.keys().filter(|name| schema.property(name).is_none()) {
                let path = &self.path;
                let text = format!("{path}.{name} in body is a forbidden property");
                let error = Error::invalid(Path::new(&**path), &Value::from(name.as_str()), text);
                self.errors.push(error);
            }
        }
        let meta = root || schema.embedded_resource;
        for (name, member) in members {
            let Some(member_schema) = schema.member(name) else { continue };
            self.enter(base, name);
            let old = old.and_then(|old| old.get(name));
            match name.as_str() {
                "metadata" if meta => self.metadata(member_schema, member),
                "apiVersion" | "kind" if meta && member.is_string() => {
                    self.node(member_schema, member, None);
                }
                _ => self.node(member_schema, member, old),
            }
            self.path.truncate(base);
        }
    }

    /// What a schema may restrict of `metadata`.
    fn metadata(&mut self, schema: View<'_>, metadata: &Value) {
        let base = self.path.len();
        for name in ["generateName", "name"] {
            if let (Some(schema), Some(value)) = (schema.property(name), metadata.get(name)) {
                self.enter(base, name);
                self.node(schema, value, None);
                self.path.truncate(base);
            }
        }
    }

    fn object_bounds(&mut self, validation: &Validation, count: usize) {
        if let Some(min) = validation.min_properties.filter(|min| (count as u64) < *min) {
            let what = format!("should have at least {min} properties");
            self.errors.push(invalid(&self.path, &Value::from(count), &what));
        }
        if let Some(max) = validation.max_properties.filter(|max| count as u64 > *max) {
            self.errors.push(Error::too_many(Path::new(&*self.path), count, max as usize));
        }
    }

    /// One branch, on its own: its errors and how far it got.
    fn branch(&self, schema: View<'_>, value: &Value) -> (Vec<Error>, usize) {
        let mut validator = Validator { path: self.path.clone(), ..Validator::default() };
        validator.node(schema, value, None);
        (validator.errors, validator.visited)
    }

    fn combinators(&mut self, schema: View<'_>, value: &Value) {
        let Some(validation) = schema.node().validation.as_deref() else { return };
        let path = self.path.clone();
        let branch = |this: &Self, id| this.branch(schema.at(id), value);
        if !validation.any_of.is_empty() {
            let mut best = None;
            if !validation.any_of.iter().any(|id| keep_best(branch(self, *id), &mut best)) {
                self.errors
                    .push(rootless(format!("{path:?} must validate at least one schema (anyOf)")));
                self.errors.extend(best.unwrap_or_default().0);
            }
        }
        if !validation.one_of.is_empty() {
            let mut best = None;
            let results =
                validation.one_of.iter().map(|id| keep_best(branch(self, *id), &mut best));
            let valid = results.filter(|valid| *valid).count();
            if valid != 1 {
                let found = match valid {
                    0 => "Found none valid".to_owned(),
                    n => format!("Found {n} valid alternatives"),
                };
                self.errors.push(rootless(format!(
                    "{path:?} must validate one and only one schema (oneOf). {found}"
                )));
                if valid == 0 {
                    self.errors.extend(best.unwrap_or_default().0);
                }
            }
        }
        if !validation.all_of.is_empty() {
            let branches: Vec<_> = validation.all_of.iter().map(|id| branch(self, *id).0).collect();
            let valid = branches.iter().filter(|errors| errors.is_empty()).count();
            if valid < branches.len() {
                let none = if valid == 0 { ". None validated" } else { "" };
                self.errors.push(rootless(format!(
                    "{path:?} must validate all the schemas (allOf){none}"
                )));
                self.errors.extend(branches.into_iter().flatten());
            }
        }
        if let Some(id) = validation.not
            && branch(self, id).0.is_empty()
        {
            self.errors.push(rootless(format!("{path:?} must not validate the schema (not)")));
        }
    }

    fn enter(&mut self, base: usize, name: &str) {
        if base > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
    }
}

/// Whether a branch is valid; of the failing ones the first that got furthest is kept.
fn keep_best(branch: (Vec<Error>, usize), best: &mut Option<(Vec<Error>, usize)>) -> bool {
    if branch.0.is_empty() {
        return true;
    }
    if best.as_ref().is_none_or(|(_, visited)| branch.1 > *visited) {
        *best = Some(branch);
    }
    false
}

/// The old element that a list element stands for.
fn correlated<'a>(list_type: &ListType, item: &Value, old: &'a [Value]) -> Option<&'a Value> {
    let ListType::Map(keys) = list_type else { return None };
    old.iter().find(|old| keys.iter().all(|key| old.get(key.as_ref()) == item.get(key.as_ref())))
}

/// JSON's name of the type a value has.
pub(super) fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_i64() || n.is_u64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Whether a value has a shape; the name of the shape otherwise.
pub(super) fn shape_mismatch(shape: Shape, value: &Value) -> Option<&'static str> {
    let (fits, name) = match shape {
        Shape::Any => return None,
        Shape::Object => (value.is_object(), "object"),
        Shape::Array => (value.is_array(), "array"),
        Shape::String => (value.is_string(), "string"),
        Shape::Boolean => (value.is_boolean(), "boolean"),
        Shape::Number => (value.is_number(), "number"),
        Shape::Integer => (type_of(value) == "integer", "integer"),
        Shape::IntOrString => (matches!(type_of(value), "integer" | "string"), "integer,string"),
    };
    (!fits).then_some(name)
}
