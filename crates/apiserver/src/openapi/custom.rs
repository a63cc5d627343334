//! Schemas of custom resources, from their definition's `openAPIV3Schema` (spec: crd §12).

use super::row::{Kind, Row};
use super::schema::{LIST_META, OBJECT_META, gvk, with_extras};
use super::{Dialect, name};
use serde_json::{Map, Value, json};

/// Deepest nesting that is published; a schema that was admitted is far below it.
const DEPTH_MAX: usize = 256;
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const EMBEDDED: &str = "x-kubernetes-embedded-resource";
/// Members whose values are schemas, by their own names.
const MAPS: [&str; 1] = ["properties"];
/// Members that are a schema.
const SINGLES: [&str; 3] = ["items", "additionalProperties", "not"];
/// Members that are lists of schemas.
const LISTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];

/// The schemas of a kind and of its list.
pub(super) fn definitions(row: &Row<'_>, dialect: Dialect) -> [(String, Value); 2] {
    let list = Kind { kind: &row.list_kind, ..row.kind };
    [
        (name::reversed(&row.kind), kind(row, dialect)),
        (name::reversed(&list), list_of(row, &list, dialect)),
    ]
}

fn kind(row: &Row<'_>, dialect: Dialect) -> Value {
    let empty = json!({"type": "object"});
    let written = row.open_api.unwrap_or(&empty);
    let mut root = match dialect {
        Dialect::V2 => simplified(written, 0).unwrap_or_default(),
        Dialect::V3 => complete(written, dialect, 0),
    };
    root.insert("type".to_owned(), "object".into());
    add_type_and_metadata(&mut root, dialect);
    finish(root, &row.kind, row)
}

fn list_of(row: &Row<'_>, list: &Kind<'_>, dialect: Dialect) -> Value {
    let mut root = Map::new();
    root.insert(
        "description".to_owned(),
        format!("{} is a list of {}", row.list_kind, row.kind.kind).into(),
    );
    root.insert("type".to_owned(), "object".into());
    root.insert("required".to_owned(), json!(["items"]));
    let item = dialect.reference(&name::reversed(&row.kind));
    let mut properties = type_properties();
    properties.insert("items".to_owned(), json!({"items": item, "type": "array"}));
    properties
        .insert("metadata".to_owned(), reference(LIST_META, "The list's own metadata.", dialect));
    root.insert("properties".to_owned(), properties.into());
    finish(root, list, row)
}

fn finish(mut root: Map<String, Value>, kind: &Kind<'_>, row: &Row<'_>) -> Value {
    root.insert("x-kubernetes-group-version-kind".to_owned(), json!([gvk(kind)]));
    if !row.selectable.is_empty() {
        let fields: Vec<Value> =
            row.selectable.iter().map(|path| json!({"fieldPath": path})).collect();
        root.insert("x-kubernetes-selectable-fields".to_owned(), fields.into());
    }
    root.into()
}

fn type_properties() -> Map<String, Value> {
    let mut out = Map::new();
    for (name, description) in [
        ("apiVersion", "Group and version whose schema this object is written in."),
        ("kind", "Kind of this object, in CamelCase; it cannot be changed."),
    ] {
        out.insert(name.to_owned(), json!({"description": description, "type": "string"}));
    }
    out
}

fn reference(definition: &str, description: &str, dialect: Dialect) -> Value {
    let mut extras = Map::new();
    extras.insert("description".to_owned(), description.into());
    with_extras(dialect.reference(definition), extras, dialect)
}

fn add_type_and_metadata(root: &mut Map<String, Value>, dialect: Dialect) {
    let mut properties = match root.remove("properties") {
        Some(Value::Object(properties)) => properties,
        _ => Map::new(),
    };
    properties.extend(type_properties());
    properties
        .insert("metadata".to_owned(), reference(OBJECT_META, "The object's metadata.", dialect));
    root.insert("properties".to_owned(), properties.into());
}

fn is(schema: &Map<String, Value>, key: &str) -> bool {
    schema.get(key).is_some_and(|value| value == true)
}

/// v3: everything as written; int-or-string says its two types, embedded resources their standard members.
fn complete(schema: &Value, dialect: Dialect, depth: usize) -> Map<String, Value> {
    let Value::Object(schema) = schema else { return Map::new() };
    let below = |value: &Value| match value {
        Value::Object(_) if depth < DEPTH_MAX => complete(value, dialect, depth + 1).into(),
        other => other.clone(),
    };
    let mut out = Map::new();
    for (key, value) in schema {
        let value = match value {
            Value::Object(members) if MAPS.contains(&key.as_str()) => {
                members.iter().map(|(name, value)| (name.clone(), below(value))).collect()
            }
            Value::Array(schemas) if LISTS.contains(&key.as_str()) => {
                schemas.iter().map(below).collect()
            }
            value if SINGLES.contains(&key.as_str()) => below(value),
            value => value.clone(),
        };
        out.insert(key.clone(), value);
    }
    if is(schema, INT_OR_STRING) && !schema.contains_key("anyOf") && !schema.contains_key("allOf") {
        out.insert("anyOf".to_owned(), json!([{"type": "integer"}, {"type": "string"}]));
    }
    if is(schema, EMBEDDED) && depth > 0 {
        add_type_and_metadata(&mut out, dialect);
    }
    out
}

/// v2: what old clients understand; `None` for a nullable node, about which nothing can be said to them.
fn simplified(schema: &Value, depth: usize) -> Option<Map<String, Value>> {
    let Value::Object(schema) = schema else { return Some(Map::new()) };
    if depth > DEPTH_MAX || (depth > 0 && is(schema, "nullable")) {
        return None;
    }
    let mut out = Map::new();
    if is(schema, INT_OR_STRING) {
        out.insert(INT_OR_STRING.to_owned(), true.into());
        return Some(out);
    }
    let preserves = is(schema, PRESERVE);
    let mut required: Vec<&Value> =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().collect();
    for (key, value) in schema {
        match (key.as_str(), value) {
            ("default" | "nullable" | "not" | "required", _) => {}
            ("allOf" | "anyOf" | "oneOf", _) => {}
            ("type" | "properties" | "items" | "additionalProperties", _) if preserves => {}
            ("properties", Value::Object(members)) => {
                let mut properties = Map::new();
                for (name, member) in members {
                    let member = simplified(member, depth + 1);
                    if member.is_none() {
                        required.retain(|required| *required != name);
                    }
                    properties.insert(name.clone(), member.unwrap_or_default().into());
                }
                out.insert(key.clone(), properties.into());
            }
            ("items" | "additionalProperties", Value::Object(_)) => {
                let below = simplified(value, depth + 1).unwrap_or_default();
                out.insert(key.clone(), below.into());
            }
            ("type", kind) if kind == "array" && !schema.contains_key("items") => {}
            _ => {
                out.insert(key.clone(), value.clone());
            }
        }
    }
    if !required.is_empty() && !preserves {
        out.insert("required".to_owned(), required.into_iter().cloned().collect());
    }
    if is(schema, EMBEDDED) && depth > 0 && !preserves {
        add_type_and_metadata(&mut out, Dialect::V2);
    }
    Some(out)
}
