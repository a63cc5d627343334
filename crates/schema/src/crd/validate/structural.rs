//! The structural schema rules (spec: crd §3). Errors come sorted by their text.
use super::schema::is_true;
use super::text;
use crate::pattern;
use serde_json::{Map, Value};
use setpoint_object::field::{Error, Errors, Path, aggregate};

/// The types of a schema.
pub(super) const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
const COMBINATORS: [&str; 3] = ["anyOf", "allOf", "oneOf"];

/// The place of a node in its parent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Why a schema cannot have a structure: a keyword anywhere in it that is not supported. The first
/// one; the API walks maps in any order.
pub(super) fn unbuilt(schema: &Value) -> Option<String> {
    let is_set = |keyword: &str| match schema.get(keyword) {
        None | Some(Value::Null) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Object(members)) => !members.is_empty() || keyword == "additionalItems",
        Some(_) => true,
    };
    // The keyword, and its name in the API's sentence.
    const KEYWORDS: [(&str, &str); 7] = [
        ("id", "id"),
        ("$schema", "schema"),
        ("$ref", "$ref"),
        ("patternProperties", "patternProperties"),
        ("dependencies", "dependencies"),
        ("additionalItems", "additionalItems"),
        ("definitions", "definitions"),
    ];
    if let Some((_, name)) = KEYWORDS.iter().find(|(keyword, _)| is_set(keyword)) {
        return Some(format!("OpenAPIV3Schema '{name}' is not supported"));
    }
    if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        let detail =
            "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined";
        return Some(detail.to_owned());
    }
    if schema.get("items").and_then(Value::as_array).is_some_and(|items| !items.is_empty()) {
        return Some("OpenAPIV3Schema 'items' must be a schema, but is an array".to_owned());
    }
    let lists = ["allOf", "anyOf", "oneOf"].into_iter().flat_map(|list| branches(schema, list));
    let single = ["not", "items", "additionalProperties"].into_iter();
    let single = single.filter_map(|name| schema.get(name)).filter(|inner| inner.is_object());
    lists.chain(single).chain(properties(schema).map(|(_, inner)| inner)).find_map(unbuilt)
}

/// The most bytes of a [`StructureFault`]'s sentence.
const FAULT_BYTES_MAX: usize = 32 << 10;

/// Why the schemas of a stored definition are not structural: its condition `NonStructuralSchema`.
/// The sentence is cut after 32 KiB.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StructureFault {
    /// Violations of the structural rules.
    Violations(String),
    /// A schema has a keyword that a structural schema cannot have.
    Unsupported(String),
}

/// Checks the schemas of a stored definition, which another server may have accepted.
pub fn structure_fault(crd: &Value) -> Option<StructureFault> {
    let mut errors = Errors::new();
    if super::preserves_unknown_fields(crd) {
        let path = Path::new("spec.preserveUnknownFields");
        errors.push(Error::invalid(path, &Value::Bool(true), "must be false"));
    }
    let versions = crd.pointer("/spec/versions").and_then(Value::as_array);
    for (i, version) in versions.into_iter().flatten().enumerate() {
        let schema = version.pointer("/schema/openAPIV3Schema");
        let Some(schema) = schema.filter(|schema| schema.is_object()) else { continue };
        if let Some(why) = unbuilt(schema) {
            let name = text(version, "name");
            let sentence = format!("failed to check validation schema for version {name}: {why}");
            return Some(StructureFault::Unsupported(cut(sentence)));
        }
        let path = Path::new("spec.versions").index(i).child("schema").child("openAPIV3Schema");
        errors.extend(validate(schema, &path));
    }
    (!errors.is_empty()).then(|| StructureFault::Violations(cut(aggregate(&errors))))
}

/// Whether a schema is structural, as Kubernetes 1.36 requires it of a new definition.
pub fn is_structural(schema: &Value) -> bool {
    unbuilt(schema).is_none() && validate(schema, &Path::new("")).is_empty()
}

/// Whether schemas that may have been stored without structure need one now: with
/// `preserveUnknownFields`, those that use an extension of Kubernetes; without it, all, if the
/// definition had it before.
pub(super) fn lacks_needed_structure(crd: &Value, old: &Value) -> bool {
    let versions = crd.pointer("/spec/versions").and_then(Value::as_array);
    let mut schemas = versions
        .into_iter()
        .flatten()
        .filter_map(|version| version.pointer("/schema/openAPIV3Schema"))
        .filter(|schema| schema.is_object());
    let is_needed = match super::preserves_unknown_fields(crd) {
        true => schemas.clone().any(has_extension),
        false => super::preserves_unknown_fields(old),
    };
    is_needed && schemas.any(|schema| !is_structural(schema))
}

/// Whether a schema, or one inside it, uses an extension that only a structural schema can have.
fn has_extension(schema: &Value) -> bool {
    let is_extension = |name: &str, value: &Value| match (name, value) {
        ("x-kubernetes-embedded-resource" | "x-kubernetes-int-or-string", value) => {
            *value == Value::Bool(true)
        }
        ("x-kubernetes-preserve-unknown-fields", value) => value.is_boolean(),
        ("x-kubernetes-list-type", value) => value.is_string(),
        ("x-kubernetes-list-map-keys" | "x-kubernetes-validations", Value::Array(items)) => {
            !items.is_empty()
        }
        _ => false,
    };
    match schema {
        Value::Object(members) => {
            members.iter().any(|(name, value)| is_extension(name, value) || has_extension(value))
        }
        Value::Array(schemas) => schemas.iter().any(has_extension),
        _ => false,
    }
}

fn cut(mut sentence: String) -> String {
    sentence.truncate(sentence.floor_char_boundary(FAULT_BYTES_MAX));
    sentence
}

/// Every violation of the rules below a schema.
pub(super) fn validate(schema: &Value, path: &Path) -> Errors {
    let mut errors = Errors::new();
    invariants(schema, Level::Root, path, &mut errors);
    complete(schema, Some(schema), path, path, &mut errors);
    errors.sort_by_text();
    errors
}

fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema.get("properties").and_then(Value::as_object).into_iter().flatten()
}

fn property<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    schema.get("properties")?.get(name)
}

fn branches<'a>(schema: &'a Value, list: &str) -> &'a [Value] {
    schema.get(list).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn invariants(schema: &Value, level: Level, path: &Path, errors: &mut Errors) {
    let ty = text(schema, "type");
    let embedded = is_true(schema, "x-kubernetes-embedded-resource");
    let preserve = is_true(schema, "x-kubernetes-preserve-unknown-fields");
    let int_or_string = is_true(schema, "x-kubernetes-int-or-string");
    let additional = schema.get("additionalProperties").filter(|value| !value.is_null());
    if additional.is_some() && level == Level::Root {
        let detail = "must not be used at the root";
        errors.push(Error::forbidden(path.child("additionalProperties"), detail));
    }
    if int_or_string {
        for (set, name) in [
            (preserve, "x-kubernetes-preserve-unknown-fields"),
            (embedded, "x-kubernetes-embedded-resource"),
        ] {
            if set {
                let detail = "must be false if x-kubernetes-int-or-string is true";
                errors.push(Error::invalid(path.child(name), &Value::Bool(true), detail));
            }
        }
    }
    // The pattern of an integer or a string may be anywhere, also without the extension.
    let skip_any_of = is_int_or_string_any_of(schema);
    let skip_first_all_of = branches(schema, "allOf").first().is_some_and(is_int_or_string_any_of);
    value_validation(schema, skip_any_of, skip_first_all_of, path, errors);
    typed(schema, ty, level, path, errors);
    if embedded && additional.is_some() {
        let detail = "must not be used if x-kubernetes-embedded-resource is set";
        errors.push(Error::forbidden(path.child("additionalProperties"), detail));
    }
    if level == Level::Root || embedded {
        type_and_metadata(schema, level, path, errors);
    }
    if embedded && !preserve && properties(schema).next().is_none() {
        errors.push(Error::required(
            path.child("properties"),
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
        ));
    }
    for (name, inner) in properties(schema) {
        invariants(inner, Level::Field, &path.child("properties").key(name), errors);
    }
    if let Some(items) = schema.get("items").filter(|items| items.is_object()) {
        invariants(items, Level::Item, &path.child("items"), errors);
    } else if ty == "array"
        && schema.get("items").and_then(Value::as_array).is_none_or(Vec::is_empty)
    {
        errors.push(Error::required(path.child("items"), "must be specified"));
    }
    if let Some(inner) = additional.filter(|inner| inner.is_object()) {
        invariants(inner, Level::Field, &path.child("additionalProperties"), errors);
    }
}

fn typed(schema: &Value, ty: &str, level: Level, path: &Path, errors: &mut Errors) {
    let path = path.child("type");
    let untyped = is_true(schema, "x-kubernetes-int-or-string")
        || is_true(schema, "x-kubernetes-preserve-unknown-fields");
    if is_true(schema, "x-kubernetes-embedded-resource") && ty != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(match ty {
            "" => Error::required(path.clone(), detail),
            ty => Error::invalid(path.clone(), &ty.into(), detail),
        });
    } else if ty.is_empty() && !untyped {
        let place = match level {
            Level::Root => "at the root",
            Level::Item => "for specified array items",
            Level::Field => "for specified object fields",
        };
        errors.push(Error::required(path.clone(), format!("must not be empty {place}")));
    }
    if level == Level::Root && !ty.is_empty() && ty != "object" {
        errors.push(Error::invalid(path.clone(), &ty.into(), "must be object at the root"));
    }
}

/// `apiVersion`, `kind` and `metadata` of a resource.
fn type_and_metadata(schema: &Value, level: Level, path: &Path, errors: &mut Errors) {
    let path = path.child("properties");
    for (name, wanted) in [("kind", "string"), ("apiVersion", "string"), ("metadata", "object")] {
        let Some(ty) = property(schema, name).map(|inner| text(inner, "type")) else { continue };
        if ty != wanted {
            let path = path.key(name).child("type");
            errors.push(Error::invalid(path, &ty.into(), format!("must be {wanted}")));
        }
    }
    let Some(metadata) = property(schema, "metadata").filter(|_| level == Level::Root) else {
        return;
    };
    let nothing_else =
        metadata.as_object().into_iter().flatten().all(|(name, value)| match name.as_str() {
            "type" | "default" => true,
            "properties" => value
                .as_object()
                .is_none_or(|p| p.keys().all(|name| matches!(&**name, "name" | "generateName"))),
            _ => {
                value.is_null()
                    || *value == Value::Bool(false)
                    || value.as_str() == Some("")
                    || value.as_array().is_some_and(Vec::is_empty)
            }
        });
    if !nothing_else {
        errors.push(Error::forbidden(
            path.key("metadata"),
            "must not specify anything other than name and generateName, but metadata is implicitly specified",
        ));
    }
}

/// `anyOf: [{type: integer}, {type: string}]`, exactly.
fn is_int_or_string_any_of(schema: &Value) -> bool {
    let only = |branch: &Value, ty: &str| {
        branch.as_object().is_some_and(|b: &Map<_, _>| b.len() == 1) && text(branch, "type") == ty
    };
    matches!(branches(schema, "anyOf"), [a, b] if only(a, "integer") && only(b, "string"))
}

fn value_validation(
    schema: &Value,
    skip_any_of: bool,
    skip_first_all_of: bool,
    path: &Path,
    errors: &mut Errors,
) {
    for list in COMBINATORS {
        if list == "anyOf" && skip_any_of {
            continue;
        }
        for (i, branch) in branches(schema, list).iter().enumerate() {
            let skip = list == "allOf" && i == 0 && skip_first_all_of;
            nested(branch, skip, &path.child(list).index(i), errors);
        }
    }
    if let Some(not) = schema.get("not").filter(|not| not.is_object()) {
        nested(not, false, &path.child("not"), errors);
    }
    let pattern = text(schema, "pattern");
    if let Err(error) = pattern::translate(pattern) {
        let detail = format!("must be a valid regular expression, but isn't: {error}");
        errors.push(Error::invalid(path.child("pattern"), &pattern.into(), detail));
    }
}

/// A schema inside a combinator: only value validations.
fn nested(schema: &Value, skip_any_of: bool, path: &Path, errors: &mut Errors) {
    value_validation(schema, skip_any_of, false, path, errors);
    for (how, names) in [
        (
            "must be empty to be structural",
            &[
                "type",
                "title",
                "description",
                "x-kubernetes-list-map-keys",
                "x-kubernetes-validations",
            ][..],
        ),
        (
            "must be undefined to be structural",
            &["default", "additionalProperties", "x-kubernetes-list-type", "x-kubernetes-map-type"],
        ),
        (
            "must be false to be structural",
            &[
                "nullable",
                "x-kubernetes-preserve-unknown-fields",
                "x-kubernetes-embedded-resource",
                "x-kubernetes-int-or-string",
            ],
        ),
    ] {
        for name in names {
            let set = match schema.get(*name) {
                None | Some(Value::Null) => false,
                Some(Value::Bool(false)) if *name == "additionalProperties" => false,
                Some(Value::Bool(value)) => *value || how.contains("undefined"),
                Some(Value::String(text)) => !text.is_empty() || how.contains("undefined"),
                Some(Value::Array(list)) => !list.is_empty() || how.contains("undefined"),
                Some(_) => true,
            };
            if set {
                errors.push(Error::forbidden(path.child(name), how));
            }
        }
    }
    if property(schema, "metadata").is_some() {
        let detail = "must not be specified in a nested context";
        errors.push(Error::forbidden(path.child("properties").key("metadata"), detail));
    }
    if let Some(items) = schema.get("items").filter(|items| items.is_object()) {
        nested(items, false, &path.child("items"), errors);
    }
    for (name, inner) in properties(schema) {
        nested(inner, false, &path.child("properties").key(name), errors);
    }
}

/// Fields that combinators mention must also be specified outside them. `schema` is the
/// combinator's side (found at `value_path`), `outside` the same place outside, found at `path`.
fn complete(
    schema: &Value,
    outside: Option<&Value>,
    path: &Path,
    value_path: &Path,
    errors: &mut Errors,
) {
    for list in ["allOf", "anyOf", "oneOf"] {
        for (i, branch) in branches(schema, list).iter().enumerate() {
            let value_path = value_path.child(list).index(i);
            nested_complete(branch, outside, path, &value_path, errors);
        }
    }
    if let Some(not) = schema.get("not").filter(|not| not.is_object()) {
        nested_complete(not, outside, path, &value_path.child("not"), errors);
    }
}

fn nested_complete(
    schema: &Value,
    outside: Option<&Value>,
    path: &Path,
    value_path: &Path,
    errors: &mut Errors,
) {
    if outside.is_none() {
        let detail = format!("because it is defined in {value_path}");
        errors.push(Error::required(path.clone(), detail));
        // What lies below is not defined either, and not reported.
        return;
    }
    complete(schema, outside, path, value_path, errors);
    if let Some(items) = schema.get("items").filter(|items| items.is_object()) {
        let outside = outside.and_then(|outside| outside.get("items"));
        nested_complete(items, outside, &path.child("items"), &value_path.child("items"), errors);
    }
    for (name, inner) in properties(schema) {
        let outside = outside.and_then(|outside| property(outside, name));
        let step = |path: &Path| path.child("properties").key(name);
        nested_complete(inner, outside, &step(path), &step(value_path), errors);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fault(preserved: bool, schemas: &[Value]) -> Option<StructureFault> {
        let version = |schema: &Value| json!({"name": "v1", "schema": {"openAPIV3Schema": schema}});
        let versions: Vec<Value> = schemas.iter().map(version).collect();
        let spec = json!({"preserveUnknownFields": preserved, "versions": versions});
        structure_fault(&json!({ "spec": spec }))
    }

    #[test]
    fn stored_definitions_without_structure_have_a_fault() {
        let good = json!({"type": "object"});
        assert_eq!(fault(false, &[]), None);
        assert_eq!(fault(false, &[good.clone(), Value::Null]), None);
        assert_eq!(
            fault(true, &[good.clone(), json!({"properties": {"a": {}}})]),
            Some(StructureFault::Violations(
                "[spec.preserveUnknownFields: Invalid value: true: must be false, \
                 spec.versions[1].schema.openAPIV3Schema.properties[a].type: Required value: must not be empty for specified object fields, \
                 spec.versions[1].schema.openAPIV3Schema.type: Required value: must not be empty at the root]"
                    .to_owned()
            ))
        );
        assert_eq!(
            fault(true, &[json!({"$ref": "#/a"})]),
            Some(StructureFault::Unsupported(
                "failed to check validation schema for version v1: OpenAPIV3Schema '$ref' is not supported"
                    .to_owned()
            ))
        );
        let many: serde_json::Map<String, Value> =
            (0..10_000).map(|n| (format!("é{n}"), json!({}))).collect();
        let Some(StructureFault::Violations(sentence)) =
            fault(false, &[json!({"type": "object", "properties": many})])
        else {
            panic!("no violations")
        };
        assert!(sentence.len() <= FAULT_BYTES_MAX, "{}", sentence.len());
    }
}
