//! Schemas of custom resources, from their definition's `openAPIV3Schema` (spec: crd §12).

use super::row::{Kind, Row};
use super::schema::{LIST_META, OBJECT_META, gvk, with_extras};
use super::{Dialect, name};
use serde_json::{Map, Value, json};

/// What `metadata` is said to be. Tools look for these words.
const OBJECT_METADATA: &str = "Standard object's metadata.";
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

/// The names of the schemas of a kind and of its list, and what makes each.
pub(super) fn definitions<'a>(row: &'a Row<'a>) -> [(String, Made<'a>); 2] {
    let list = Kind { kind: &row.list_kind, ..row.kind };
    [(name::reversed(&row.kind), Made::Kind(row)), (name::reversed(&list), Made::List(row))]
}

/// A schema that is made when its turn comes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Made<'a> {
    /// Of a kind.
    Kind(&'a Row<'a>),
    /// Of its list.
    List(&'a Row<'a>),
}
impl Made<'_> {
    pub(super) fn make(self, dialect: Dialect) -> Value {
        match self {
            Self::Kind(row) => kind(row, dialect),
            Self::List(row) => list_of(row, &Kind { kind: &row.list_kind, ..row.kind }, dialect),
        }
    }
}

/// The schema of a kind. One without a schema, and in v2 one that takes unknown fields at its root,
/// says no more than that it is an object: clients would take the fields it names for all there
/// are.
fn kind(row: &Row<'_>, dialect: Dialect) -> Value {
    let written = row.open_api.as_ref().and_then(|text| serde_json::from_slice(text).ok());
    let mut root = match (written, dialect) {
        (None, _) => Map::new(),
        (Some(Value::Object(written)), Dialect::V2) if is(&written, PRESERVE) => Map::new(),
        (Some(written), dialect) => {
            let mut root = match dialect {
                Dialect::V2 => simplified(written, 0),
                Dialect::V3 => complete(written, 0),
            };
            add_type_and_metadata(&mut root, dialect);
            root
        }
    };
    root.insert("type".to_owned(), "object".into());
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
        .insert("metadata".to_owned(), reference(LIST_META, "Standard list metadata.", dialect));
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
        (
            "apiVersion",
            "APIVersion defines the group and version whose schema this object follows.",
        ),
        ("kind", "Kind names the type of this object in CamelCase. It cannot be changed."),
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
    properties.insert("metadata".to_owned(), reference(OBJECT_META, OBJECT_METADATA, dialect));
    root.insert("properties".to_owned(), properties.into());
}

fn is(schema: &Map<String, Value>, key: &str) -> bool {
    schema.get(key).is_some_and(|value| value == true)
}

/// An embedded resource: its standard members, which it must name itself with.
fn embed(schema: &mut Map<String, Value>, dialect: Dialect) {
    add_type_and_metadata(schema, dialect);
    let mut required = match schema.remove("required") {
        Some(Value::Array(required)) => required,
        _ => Vec::new(),
    };
    for name in ["kind", "apiVersion"] {
        if !required.iter().any(|required| required == name) {
            required.push(name.into());
        }
    }
    schema.insert("required".to_owned(), required.into());
}

/// v3: everything as written; int-or-string says its two types, embedded resources their standard
/// members.
fn complete(schema: Value, depth: usize) -> Map<String, Value> {
    let Value::Object(mut schema) = schema else { return Map::new() };
    let below = |value: &mut Value| {
        if value.is_object() && depth < DEPTH_MAX {
            *value = complete(value.take(), depth + 1).into();
        }
    };
    for (key, value) in &mut schema {
        match value {
            Value::Object(members) if MAPS.contains(&key.as_str()) => {
                members.values_mut().for_each(below);
            }
            Value::Array(schemas) if LISTS.contains(&key.as_str()) => {
                schemas.iter_mut().for_each(below);
            }
            value if SINGLES.contains(&key.as_str()) => below(value),
            _ => {}
        }
    }
    if is(&schema, INT_OR_STRING) && !schema.contains_key("anyOf") && !schema.contains_key("allOf")
    {
        schema.insert("anyOf".to_owned(), json!([{"type": "integer"}, {"type": "string"}]));
    }
    if is(&schema, EMBEDDED) && depth > 0 {
        embed(&mut schema, Dialect::V3);
    }
    schema
}

/// v2: what old clients understand. They know no combinations and no null, and where a node takes
/// unknown fields they would take the fields it names for all there are.
fn simplified(schema: Value, depth: usize) -> Map<String, Value> {
    let Value::Object(mut schema) = schema else { return Map::new() };
    if depth > DEPTH_MAX {
        return Map::new();
    }
    for key in ["allOf", "anyOf", "oneOf", "not", "default"] {
        schema.remove(key);
    }
    let (nullable, preserves) = (is_nullable(&schema), is(&schema, PRESERVE));
    schema.remove("nullable");
    if nullable || preserves {
        schema.remove("items");
        schema.remove("properties");
    }
    let is_type =
        |schema: &Map<String, Value>, ty: &str| schema.get("type").is_some_and(|t| t == ty);
    if nullable
        || preserves && is_type(&schema, "object")
        || is_type(&schema, "array") && !schema.contains_key("items")
    {
        schema.remove("type");
    }
    let mut nullables = Vec::new();
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        for (name, property) in properties {
            if property.as_object().is_some_and(is_nullable) {
                nullables.push(name.clone());
            }
            *property = simplified(property.take(), depth + 1).into();
        }
    }
    if let Some(Value::Array(required)) = schema.get_mut("required") {
        required.retain(|name| !nullables.iter().any(|nullable| name == nullable));
        if required.is_empty() {
            schema.remove("required");
        }
    }
    for key in ["items", "additionalProperties"] {
        if let Some(below) = schema.get_mut(key).filter(|below| below.is_object()) {
            *below = simplified(below.take(), depth + 1).into();
        }
    }
    if is(&schema, EMBEDDED) && depth > 0 && !preserves {
        embed(&mut schema, Dialect::V2);
    }
    schema
}
fn is_nullable(schema: &Map<String, Value>) -> bool {
    is(schema, "nullable")
}
