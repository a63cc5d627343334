//! The value validations of OpenAPI.
use super::report::Report;
use super::scalar::{self, Formats};
use crate::correlate::{OldItems, is_unchanged};
use crate::node::{Shape, Validation, View};
use serde_json::{Map, Value};
use setpoint_object::field::{Error, Path};

/// Validates a root: its `metadata` only as far as the schema restricts names.
pub(super) fn validate(root: View<'_>, value: &Value, old: Option<&Value>, report: &mut Report) {
    Validator { path: String::new(), formats: Formats::Known, report, visited: 0 }
        .root(root, value, old);
}

/// Validates a node that lies at `path`.
pub(super) fn validate_at(
    schema: View<'_>,
    formats: Formats,
    path: &str,
    value: &Value,
    old: Option<&Value>,
    report: &mut Report,
) {
    Validator { path: path.to_owned(), formats, report, visited: 0 }.node(schema, value, old);
}

struct Validator<'r> {
    path: String,
    formats: Formats,
    report: &'r mut Report,
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

impl Validator<'_> {
    fn root(&mut self, schema: View<'_>, value: &Value, old: Option<&Value>) {
        let Value::Object(members) = value else { return self.node(schema, value, old) };
        self.combinators(schema, value);
        let old = old.and_then(Value::as_object);
        self.object(schema, members, old, true);
    }

    fn node(&mut self, schema: View<'_>, value: &Value, old: Option<&Value>) {
        self.visited += 1;
        self.report.step(1);
        if self.report.is_over() || old.is_some_and(|old| is_unchanged(schema, value, old)) {
            return;
        }
        scalar::check_type(schema, self.formats, &self.path, value, self.report);
        let validation = schema.node().validation.as_deref();
        if !value.is_null() {
            self.combinators(schema, value);
            scalar::check(schema, self.formats, &self.path, value, self.report);
        }
        if let Value::Array(items) = value {
            self.list(schema, items, old);
        }
        if let Some(validation) = validation {
            scalar::check_enum(validation, &self.path, value, self.report);
        }
        if let Value::Object(members) = value {
            self.object(schema, members, old.and_then(Value::as_object), false);
        }
    }

    fn list(&mut self, schema: View<'_>, items: &[Value], old: Option<&Value>) {
        let old = old.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let base = self.path.len();
        if let Some(item_schema) = schema.items() {
            let old_items = OldItems::new(&schema.node().list_type, old);
            for (i, item) in items.iter().enumerate() {
                self.path.push('[');
                self.path.push_str(itoa::Buffer::new().format(i));
                self.path.push(']');
                let old = old_items.of(item);
                self.node(item_schema, item, old);
                self.path.truncate(base);
            }
        }
        let Some(validation) = schema.node().validation.as_deref() else { return };
        let count = items.len();
        if let Some(min) = validation.min_items.filter(|min| (count as u64) < *min) {
            let what = format!("should have at least {min} items");
            self.report.push(invalid(&self.path, &Value::from(count), &what));
        }
        if let Some(max) = validation.max_items.filter(|max| count as u64 > *max) {
            self.report.push(Error::too_many(Path::new(&*self.path), count, max as usize));
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
        self.report.step(schema.node().required.len());
        for name in &schema.node().required {
            if self.report.is_over() {
                return;
            }
            if !members.contains_key(name.as_ref()) {
                self.enter(base, name);
                self.report.push(Error::required(Path::new(&*self.path), ""));
                self.path.truncate(base);
            }
        }
        if validation.is_some_and(|v| v.additional_forbidden) {
            for name in members.keys().filter(|name| schema.property(name).is_none()) {
                if self.report.is_over() {
                    return;
                }
                let path = &self.path;
                let text = format!("{path}.{name} in body is a forbidden property");
                let error = Error::invalid(Path::new(&**path), &Value::from(name.as_str()), text);
                self.report.push(error);
            }
        }
        for (name, member) in members {
            let Some(member_schema) = schema.member(name) else { continue };
            if base == 0 && schema.property(name).is_none() {
                // The API puts a dot before the keys of a map, also at the root of a default.
                self.path.push('.');
            }
            self.enter(base, name);
            let old = old.and_then(|old| old.get(name));
            match name.as_str() {
                "metadata" if root => self.names(member_schema, member),
                // The rest of it is conformed to its type.
                "metadata" if schema.embedded_resource => {
                    if let Some(declared) = schema.declared_property(name) {
                        self.node(declared, member, old);
                    }
                }
                "apiVersion" | "kind" if root && member.is_string() => {
                    self.node(member_schema, member, None);
                }
                _ => self.node(member_schema, member, old),
            }
            self.path.truncate(base);
        }
    }

    /// The names in the `metadata` of a root: all that a schema may restrict.
    fn names(&mut self, schema: View<'_>, metadata: &Value) {
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
            self.report.push(invalid(&self.path, &Value::from(count), &what));
        }
        if let Some(max) = validation.max_properties.filter(|max| count as u64 > *max) {
            self.report.push(Error::too_many(Path::new(&*self.path), count, max as usize));
        }
    }

    /// One branch, on its own: its errors and how far it got.
    fn branch(&mut self, schema: View<'_>, value: &Value) -> (Vec<Error>, usize) {
        let Self { path, formats, report, .. } = self;
        let mut visited = 0;
        let errors = report.apart(|report| {
            let mut validator =
                Validator { path: std::mem::take(path), formats: *formats, report, visited: 0 };
            validator.node(schema, value, None);
            visited = validator.visited;
            *path = validator.path;
        });
        (errors, visited)
    }

    fn combinators(&mut self, schema: View<'_>, value: &Value) {
        let Some(validation) = schema.node().validation.as_deref() else { return };
        if !validation.any_of.is_empty() {
            let mut best = None;
            let valid = validation
                .any_of
                .iter()
                .any(|id| keep_best(self.branch(schema.at(*id), value), &mut best));
            if !valid {
                let path = &self.path;
                let text = format!("{path:?} must validate at least one schema (anyOf)");
                self.report.push(rootless(text));
                self.extend(best.unwrap_or_default().0);
            }
        }
        if !validation.one_of.is_empty() {
            let mut best = None;
            let mut valid = 0;
            for id in &validation.one_of {
                valid += usize::from(keep_best(self.branch(schema.at(*id), value), &mut best));
            }
            if valid != 1 {
                let found = match valid {
                    0 => "Found none valid".to_owned(),
                    n => format!("Found {n} valid alternatives"),
                };
                let path = &self.path;
                let text =
                    format!("{path:?} must validate one and only one schema (oneOf). {found}");
                self.report.push(rootless(text));
                if valid == 0 {
                    self.extend(best.unwrap_or_default().0);
                }
            }
        }
        if !validation.all_of.is_empty() {
            let mut found = Vec::new();
            let mut valid = 0;
            for id in &validation.all_of {
                let errors = self.branch(schema.at(*id), value).0;
                valid += usize::from(errors.is_empty());
                found.extend(errors);
            }
            if valid < validation.all_of.len() {
                let none = if valid == 0 { ". None validated" } else { "" };
                let path = &self.path;
                let text = format!("{path:?} must validate all the schemas (allOf){none}");
                self.extend(found);
                self.report.push(rootless(text));
            }
        }
        if let Some(id) = validation.not
            && self.branch(schema.at(id), value).0.is_empty()
        {
            let path = &self.path;
            let text = format!("{path:?} must not validate the schema (not)");
            self.report.push(rootless(text));
        }
    }

    fn extend(&mut self, errors: Vec<Error>) {
        errors.into_iter().for_each(|error| self.report.push(error));
    }

    fn enter(&mut self, base: usize, name: &str) {
        if base > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
    }
}

/// Whether a branch is valid. Of the failing ones, remembers the first that got furthest.
fn keep_best(branch: (Vec<Error>, usize), best: &mut Option<(Vec<Error>, usize)>) -> bool {
    if branch.0.is_empty() {
        return true;
    }
    if best.as_ref().is_none_or(|(_, visited)| branch.1 > *visited) {
        *best = Some(branch);
    }
    false
}

/// JSON's name of the type a value has.
pub(crate) fn type_of(value: &Value) -> &'static str {
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
