//! `openAPIV3Schema`: keywords and extensions node by node, then structure, then defaults.
use super::{defaults, expressions, rules, structural, text};
use crate::node::TYPE_AND_METADATA;
use crate::validate::is_known_format;
use serde_json::Value;
use setpoint_object::field::{Error, Errors, Path, quote};
use std::collections::HashSet;

/// The most errors about the keys of one list: each shows all keys.
const KEY_ERRORS_MAX: usize = 16;

/// The root's fields that a status subresource admits, by the error's name and the wire's.
const ROOT_FIELDS: &[(&str, &str)] = &[
    ("Description", "description"),
    ("Type", "type"),
    ("Format", "format"),
    ("Title", "title"),
    ("Maximum", "maximum"),
    ("ExclusiveMaximum", "exclusiveMaximum"),
    ("Minimum", "minimum"),
    ("ExclusiveMinimum", "exclusiveMinimum"),
    ("MaxLength", "maxLength"),
    ("MinLength", "minLength"),
    ("Pattern", "pattern"),
    ("MaxItems", "maxItems"),
    ("MinItems", "minItems"),
    ("UniqueItems", "uniqueItems"),
    ("MultipleOf", "multipleOf"),
    ("Required", "required"),
    ("Items", "items"),
    ("Properties", "properties"),
    ("ExternalDocs", "externalDocs"),
    ("Example", "example"),
    ("XPreserveUnknownFields", "x-kubernetes-preserve-unknown-fields"),
    ("XValidations", "x-kubernetes-validations"),
];

/// Validates one schema; `status` when a status subresource goes with it.
pub(super) fn validate(schema: &Value, status: bool, path: &Path, errors: &mut Errors) {
    let before = errors.len();
    if status {
        beside_status(schema, path, errors);
    }
    if is_true(schema, "nullable") {
        let detail = "nullable cannot be true at the root";
        errors.push(Error::forbidden(path.child("nullable"), detail));
    }
    // What has no structure is not looked at further; the reason is shown if there is no other.
    let unbuilt = structural::unbuilt(schema);
    let mut has_structure = false;
    if unbuilt.is_none() {
        let structure = structural::validate(schema, path);
        if structure.is_empty() {
            let n_errors = errors.len();
            defaults::validate(schema, path, errors);
            has_structure = errors.len() == n_errors;
        } else {
            errors.extend(structure);
        }
    }
    node(schema, path, &Place { root: true, ..Place::default() }, errors);
    if let Some(detail) = unbuilt.filter(|_| errors.len() == before) {
        errors.push(Error::invalid(path.clone(), &"".into(), detail));
    }
    if has_structure {
        expressions::validate(schema, path, before, errors);
    }
}

fn beside_status(schema: &Value, path: &Path, errors: &mut Errors) {
    let ty = text(schema, "type");
    if !ty.is_empty() && ty != "object" {
        let detail = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        errors.push(Error::invalid(path.child("type"), &ty.into(), detail));
        return;
    }
    let is_set = |value: &Value| match value {
        Value::Null | Value::Bool(false) => false,
        Value::Array(list) => !list.is_empty(),
        Value::String(text) => !text.is_empty(),
        _ => true,
    };
    let allowed = |name: &str| ROOT_FIELDS.iter().any(|(_, wire)| *wire == name);
    let members = schema.as_object().into_iter().flatten();
    if members.filter(|(_, value)| is_set(value)).any(|(name, _)| !allowed(name)) {
        let names: Vec<&str> = ROOT_FIELDS.iter().map(|(name, _)| *name).collect();
        let detail = format!(
            "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
            names.join(" ")
        );
        errors.push(Error::invalid(path.clone(), schema, detail));
    }
}

/// Where a node stands.
#[derive(Clone, Default)]
struct Place {
    root: bool,
    /// Where a default would be, when there must be none: `in top-level metadata`.
    no_default: Option<String>,
    /// Inside the type or `metadata` of a resource.
    in_metadata: bool,
}

fn node(schema: &Value, path: &Path, place: &Place, errors: &mut Errors) {
    if !schema.is_object() {
        return;
    }
    unsupported(schema, path, place, errors);
    if is_true(schema, "uniqueItems") {
        let detail =
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(Error::forbidden(path.child("uniqueItems"), detail));
    }
    let inner = Place { root: false, ..place.clone() };
    if let Some(additional) = schema.get("additionalProperties") {
        let has_properties =
            schema.get("properties").and_then(Value::as_object).is_some_and(|p| !p.is_empty());
        if has_properties && (additional.is_object() || *additional == Value::Bool(false)) {
            let detail = "additionalProperties and properties are mutual exclusive";
            errors.push(Error::forbidden(path.child("additionalProperties"), detail));
        }
        let mut inner = inner.clone();
        if place.in_metadata {
            let place = "inside additionalProperties applying to object metadata";
            inner.no_default = Some(place.to_owned());
        }
        node(additional, &path.child("additionalProperties"), &inner, errors);
    }
    let resource = place.root || is_true(schema, "x-kubernetes-embedded-resource");
    for (name, property) in
        schema.get("properties").and_then(Value::as_object).into_iter().flatten()
    {
        let mut inner = inner.clone();
        if resource && TYPE_AND_METADATA.contains(&name.as_str()) {
            inner.in_metadata = true;
            if place.root {
                inner.no_default = Some(format!("in top-level {name}"));
            }
        }
        node(property, &path.child("properties").key(name), &inner, errors);
    }
    if let Some(not) = schema.get("not") {
        node(not, &path.child("not"), &inner, errors);
    }
    for list in ["allOf", "oneOf", "anyOf"] {
        let branches = schema.get(list).and_then(Value::as_array).into_iter().flatten();
        for (i, branch) in branches.enumerate() {
            node(branch, &path.child(list).index(i), &inner, errors);
        }
    }
    named(schema, "definitions", path, &inner, errors);
    match schema.get("items") {
        Some(Value::Array(several)) => {
            for (i, items) in several.iter().enumerate() {
                node(items, &path.child("items").index(i), &inner, errors);
            }
        }
        Some(items) => node(items, &path.child("items"), &inner, errors),
        None => {}
    }
    named(schema, "dependencies", path, &inner, errors);
    extensions(schema, path, errors);
    rules::validate(schema, path, errors);
}

/// The schemas of a map that nothing may have.
fn named(schema: &Value, keyword: &str, path: &Path, place: &Place, errors: &mut Errors) {
    for (name, inner) in schema.get(keyword).and_then(Value::as_object).into_iter().flatten() {
        node(inner, &path.child(keyword).key(name), place, errors);
    }
}

fn unsupported(schema: &Value, path: &Path, place: &Place, errors: &mut Errors) {
    let ty = text(schema, "type");
    if !ty.is_empty() && !structural::TYPES.contains(&ty) {
        errors.push(Error::not_supported(path.child("type"), &ty.into(), &structural::TYPES));
    }
    let mut forbid = |name: &str, detail: String| {
        errors.push(Error::forbidden(path.child(name), detail));
    };
    if let Some(place) = &place.no_default
        && schema.get("default").is_some_and(|default| !default.is_null())
    {
        forbid("default", format!("must not be set {place}"));
    }
    for keyword in
        ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"]
    {
        let set = match schema.get(keyword) {
            None | Some(Value::Null) => false,
            Some(Value::String(text)) => !text.is_empty() || keyword == "$ref",
            Some(Value::Object(members)) => {
                !members.is_empty() || matches!(keyword, "additionalItems" | "dependencies")
            }
            Some(_) => true,
        };
        if set {
            forbid(keyword, format!("{keyword} is not supported"));
        }
    }
    if text(schema, "type") == "null" {
        forbid("type", "type cannot be set to null, use nullable as an alternative".to_owned());
    }
    if schema.get("items").and_then(Value::as_array).is_some_and(|items| !items.is_empty()) {
        forbid("items", "items must be a schema object and not an array".to_owned());
    }
    if place.in_metadata && is_true(schema, "x-kubernetes-embedded-resource") {
        let detail = "must not be used inside of resource meta";
        forbid("x-kubernetes-embedded-resource", detail.to_owned());
    }
}

fn extensions(schema: &Value, path: &Path, errors: &mut Errors) {
    let ty = text(schema, "type");
    if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        let path = path.child("x-kubernetes-preserve-unknown-fields");
        errors.push(Error::invalid(path, &Value::Bool(false), "must be true or undefined"));
    }
    let needs_type = |extension: &str, wanted: &str, errors: &mut Errors| {
        let detail = format!("must be {wanted} if {extension} is specified");
        errors.push(match ty {
            "" => Error::required(path.child("type"), detail),
            ty => Error::invalid(path.child("type"), &ty.into(), detail),
        });
    };
    if let Some(map_type) = schema.get("x-kubernetes-map-type").and_then(Value::as_str) {
        if ty != "object" {
            needs_type("x-kubernetes-map-type", "object", errors);
        }
        if !matches!(map_type, "atomic" | "granular") {
            let path = path.child("x-kubernetes-map-type");
            errors.push(Error::not_supported(path, &map_type.into(), &["atomic", "granular"]));
        }
    }
    let list_type = schema.get("x-kubernetes-list-type").and_then(Value::as_str);
    if let Some(list_type) = list_type {
        if ty != "array" {
            needs_type("x-kubernetes-list-type", "array", errors);
        } else if list_type == "set" {
            atomic_items(schema, path, errors);
        }
        if !matches!(list_type, "atomic" | "set" | "map") {
            let path = path.child("x-kubernetes-list-type");
            errors.push(Error::not_supported(path, &list_type.into(), &["atomic", "set", "map"]));
        }
    }
    let keys = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
    if keys.is_some_and(|keys| !keys.is_empty()) && list_type != Some("map") {
        let path = path.child("x-kubernetes-list-type");
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        errors.push(match list_type {
            None => Error::required(path, detail),
            Some(other) => Error::invalid(path, &other.into(), detail),
        });
    }
    let keys = keys.map_or(&[][..], Vec::as_slice);
    match list_type {
        Some("map") => map_list(schema, keys, path, errors),
        Some("set") => {
            let items = schema.get("items").filter(|items| items.is_object());
            items.into_iter().for_each(|items| {
                not_nullable(items, "set", &path.child("items"), errors);
            });
        }
        _ => {}
    }
}

fn map_list(schema: &Value, keys: &[Value], path: &Path, errors: &mut Errors) {
    let keys_path = path.child("x-kubernetes-list-map-keys");
    if keys.is_empty() {
        let detail = "must not be empty if x-kubernetes-list-type is map";
        errors.push(Error::required(keys_path.clone(), detail));
    }
    let path = path.child("items");
    let items = match schema.get("items") {
        Some(items @ Value::Object(_)) => items,
        Some(several @ Value::Array(_)) => {
            let detail = "must only have a single schema if x-kubernetes-list-type is map";
            return errors.push(Error::invalid(path, several, detail));
        }
        _ => {
            let detail = "must have a schema if x-kubernetes-list-type is map";
            return errors.push(Error::required(path, detail));
        }
    };
    let ty = text(items, "type");
    if ty != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(Error::invalid(path.child("type"), &ty.into(), detail));
    }
    let property = |key: &str| items.get("properties").and_then(|properties| properties.get(key));
    let shown = Value::Array(keys.to_vec());
    let keys: Vec<&str> = keys.iter().filter_map(Value::as_str).collect();
    if ty == "object" {
        let (mut seen, n_errors) = (HashSet::new(), errors.len());
        for key in &keys {
            if errors.len() - n_errors >= KEY_ERRORS_MAX {
                break;
            }
            let path = path.child("properties").key(key).child("type");
            match property(key).map(|property| text(property, "type")) {
                Some(ty @ ("array" | "object")) => errors.push(Error::invalid(
                    path,
                    &ty.into(),
                    "must be a scalar type if parent array's x-kubernetes-list-type is map",
                )),
                Some(_) => {}
                None => errors.push(Error::invalid(
                    keys_path.clone(),
                    &shown,
                    "entries must all be names of item properties",
                )),
            }
            if !seen.insert(key) {
                let detail = "must not contain duplicate entries";
                errors.push(Error::invalid(keys_path.clone(), &shown, detail));
            }
        }
    }
    not_nullable(items, "map", &path, errors);
    let required = items.get("required").and_then(Value::as_array).into_iter().flatten();
    let required: HashSet<&str> = required.filter_map(Value::as_str).collect();
    for key in keys {
        let Some(property) = property(key) else { continue };
        let path = path.child("properties").key(key);
        let has_default = property.get("default").is_some_and(|default| !default.is_null());
        if !has_default && !required.contains(key) {
            errors.push(Error::required(
                path.child("default"),
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
            ));
        }
        if is_true(property, "nullable") {
            errors.push(Error::forbidden(
                path.child("nullable"),
                "this property is in x-kubernetes-list-map-keys, so it cannot be nullable",
            ));
        }
    }
}

fn atomic_items(schema: &Value, path: &Path, errors: &mut Errors) {
    let path = path.child("items");
    let Some(items) = schema.get("items").filter(|items| items.is_object()) else { return };
    let (extension, default_is_atomic) = match text(items, "type") {
        "object" => ("x-kubernetes-map-type", false),
        "array" => ("x-kubernetes-list-type", true),
        _ => return,
    };
    let given = items.get(extension).cloned().unwrap_or_default();
    if given != "atomic" && !(given.is_null() && default_is_atomic) {
        let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
        errors.push(Error::invalid(path.child(extension), &given, detail));
    }
}

fn not_nullable(items: &Value, list_type: &str, path: &Path, errors: &mut Errors) {
    if is_true(items, "nullable") {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.push(Error::forbidden(path.child("nullable"), detail));
    }
}

/// Whether a member is `true`.
pub(super) fn is_true(schema: &Value, name: &str) -> bool {
    schema.get(name) == Some(&Value::Bool(true))
}

/// `unrecognized format "foo"` for every format that is not enforced.
pub(super) fn unknown_formats(schema: &Value, warnings: &mut Vec<String>) {
    let format = text(schema, "format");
    let is_known = match text(schema, "type") {
        "" | "string" => is_known_format(format),
        "integer" => matches!(format, "int32" | "int64"),
        "number" => matches!(format, "float" | "double"),
        _ => false,
    };
    if !format.is_empty() && !is_known {
        warnings.push(format!("unrecognized format {}", quote(format)));
    }
    // In the API's order.
    for (name, holds) in INNER_SCHEMAS {
        match (holds, schema.get(name)) {
            (Holds::Map, Some(Value::Object(map))) => {
                map.values().for_each(|inner| unknown_formats(inner, warnings));
            }
            (Holds::Schemas, Some(Value::Array(list))) => {
                list.iter().for_each(|inner| unknown_formats(inner, warnings));
            }
            (Holds::Schemas, Some(inner @ Value::Object(_))) => unknown_formats(inner, warnings),
            _ => {}
        }
    }
}

/// What a member of a schema holds.
#[derive(Clone, Copy)]
enum Holds {
    /// A schema, or a list of them.
    Schemas,
    /// Schemas by name.
    Map,
}
/// The members of a schema with schemas inside.
const INNER_SCHEMAS: [(&str, Holds); 11] = [
    ("items", Holds::Schemas),
    ("allOf", Holds::Schemas),
    ("anyOf", Holds::Schemas),
    ("oneOf", Holds::Schemas),
    ("not", Holds::Schemas),
    ("properties", Holds::Map),
    ("additionalProperties", Holds::Schemas),
    ("patternProperties", Holds::Map),
    ("additionalItems", Holds::Schemas),
    ("definitions", Holds::Map),
    ("dependencies", Holds::Map),
];

/// Whether any node has rules in CEL.
pub(super) fn has_rules(schema: &Value) -> bool {
    match schema {
        Value::Object(members) => members.iter().any(|(name, inner)| {
            (name == "x-kubernetes-validations" && inner.as_array().is_some_and(|r| !r.is_empty()))
                || has_rules(inner)
        }),
        Value::Array(items) => items.iter().any(has_rules),
        _ => false,
    }
}
