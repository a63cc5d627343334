//! Schemas of custom resources, from their definition's `openAPIV3Schema` (spec: crd §12).

use super::row::{Kind, Row};
use super::schema::{LIST_META, OBJECT_META, gvk, with_extras};
use super::{Dialect, name, write_value};
use memchr::memmem;
use serde_json::{Map, Value, json};
use setpoint_object::members;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

/// The description of `metadata`. Tools check for these words.
const OBJECT_METADATA: &str = "Standard object's metadata.";
/// Maximum nesting that is published; admitted schemas are far below it.
const DEPTH_MAX: usize = 256;
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const EMBEDDED: &str = "x-kubernetes-embedded-resource";
const GROUP_VERSION_KIND: &str = "x-kubernetes-group-version-kind";
const SELECTABLE_FIELDS: &str = "x-kubernetes-selectable-fields";
/// Members that are maps of schemas.
const MAPS: [&str; 1] = ["properties"];
/// Members that are a schema.
const SINGLES: [&str; 3] = ["items", "additionalProperties", "not"];
/// Members that are lists of schemas.
const LISTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];

/// The names of the schemas of a kind and its list, with the schemas.
pub(super) fn definitions<'a>(
    row: &'a Row<'a>,
    dialect: Dialect,
) -> [(String, CustomSchema<'a>); 2] {
    let list = Kind { kind: &row.list_kind, ..row.kind };
    [
        (name::reversed(&row.kind, dialect), CustomSchema::Kind(row)),
        (name::reversed(&list, dialect), CustomSchema::List(row)),
    ]
}

/// A schema that is built when it is written.
#[derive(Debug, Clone, Copy)]
pub(super) enum CustomSchema<'a> {
    /// The schema of a kind.
    Kind(&'a Row<'a>),
    /// The schema of its list.
    List(&'a Row<'a>),
}
impl CustomSchema<'_> {
    pub(super) fn make(self, dialect: Dialect) -> Value {
        match self {
            Self::Kind(row) => kind(row, dialect),
            Self::List(row) => list_of(row, &Kind { kind: &row.list_kind, ..row.kind }, dialect),
        }
    }

    /// Appends it to a v3 document.
    pub(super) fn write_v3(self, out: &mut Vec<u8>) {
        let as_written = match self {
            Self::Kind(row) => push_as_written(out, row),
            Self::List(_) => None,
        };
        if as_written.is_none() {
            write_value(out, &self.make(Dialect::V3));
        }
    }
}

/// Appends the v3 schema of a kind as written, if [`complete`] changes nothing below its root. The
/// result equals that of [`kind`], which needs a tree: ten times the time and, for a schema of half
/// a megabyte, some megabytes of memory.
fn push_as_written(out: &mut Vec<u8>, row: &Row<'_>) -> Option<()> {
    type Members<'a> = BTreeMap<Cow<'a, [u8]>, Cow<'a, [u8]>>;
    /// The members of a schema, and those of its `properties`. One pass.
    fn read(schema: &[u8]) -> Option<(Members<'_>, Members<'_>)> {
        let slice = |range| Cow::Borrowed(&schema[range]);
        let (mut root, mut properties) = (Members::default(), Members::default());
        let mut members = members::of(schema);
        while let Some((name, value)) = members.name() {
            if &schema[name.clone()] == b"properties" && schema.get(value) == Some(&b'{') {
                let inner = &schema[value..];
                let mut of_inner = members::of(inner);
                for member in &mut of_inner {
                    let part = |range: Range<usize>| Cow::Borrowed(&inner[range]);
                    properties.insert(part(member.name), part(member.value));
                }
                members.go_on(value + of_inner.end()?);
            } else {
                let member = members.next()?;
                root.insert(slice(member.name), slice(member.value));
            }
        }
        Some((root, properties))
    }
    fn put(members: &mut Members<'_>, all: Map<String, Value>) {
        for (name, value) in all {
            members.insert(name.into_bytes().into(), value.to_string().into_bytes().into());
        }
    }
    /// `properties`: the members of the member with this name.
    fn push(out: &mut Vec<u8>, members: &Members<'_>, properties: Option<&Members<'_>>) {
        out.push(b'{');
        for (at, (name, value)) in members.iter().enumerate() {
            out.extend_from_slice(if at > 0 { b",\"" } else { b"\"" });
            out.extend_from_slice(name);
            out.extend_from_slice(b"\":");
            match properties.filter(|_| &**name == b"properties") {
                Some(properties) => push(out, properties, None),
                None => out.extend_from_slice(value),
            }
        }
        out.push(b'}');
    }
    let text = row.open_api.as_deref().filter(|text| text.first() == Some(&b'{'))?;
    if !is_complete(text) {
        return None;
    }
    let (mut root, mut properties) = read(text)?;
    put(&mut properties, own_properties(Dialect::V3));
    root.insert(b"properties".into(), Cow::Borrowed(b"".as_slice()));
    put(&mut root, extensions(&row.kind, row));
    put(&mut root, [("type".to_owned(), "object".into())].into_iter().collect());
    out.reserve(text.len() + 1024);
    push(out, &root, Some(&properties));
    Some(())
}

/// Whether [`complete`] would change nothing below the root: no embedded resources, and each
/// int-or-string has its types. May return false negatives. One pass.
fn is_complete(schema: &[u8]) -> bool {
    const TYPES: &[u8] = br#"[{"type":"integer"},{"type":"string"}]"#;
    const FIRST_TYPES: &[u8] = br#"[{"anyOf":[{"type":"integer"},{"type":"string"}]"#;
    let has = |text: &str| memmem::find(schema, text.as_bytes()).is_some();
    if has(EMBEDDED) {
        return false;
    }
    if !has(INT_OR_STRING) {
        return true;
    }
    // For each open object, whether its types have been seen. Members of stored bytes are sorted,
    // so the types come before the extension.
    let mut says_types = Vec::new();
    let mut at = 0;
    while let Some(byte) = schema.get(at) {
        match byte {
            b'{' => says_types.push(false),
            b'}' => _ = says_types.pop(),
            b'"' => {
                let Some(end) = members::string_end(schema, at) else { return false };
                let text = &schema[at + 1..end - 1];
                if schema.get(end) == Some(&b':') {
                    let value = &schema[end + 1..];
                    if text == b"anyOf" && value.starts_with(TYPES)
                        || text == b"allOf" && value.starts_with(FIRST_TYPES)
                    {
                        says_types.last_mut().into_iter().for_each(|says| *says = true);
                    } else if text == INT_OR_STRING.as_bytes() && says_types.last() != Some(&true) {
                        return false;
                    }
                }
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    true
}

/// The schema of a kind. Without a schema, and in v2 if unknown fields are allowed at its root, it
/// is just an object: clients would otherwise treat the declared fields as the only ones.
fn kind(row: &Row<'_>, dialect: Dialect) -> Value {
    let written = row.open_api.as_ref().and_then(|text| serde_json::from_slice(text).ok());
    let mut root = match (written, dialect) {
        (None, _) => Map::new(),
        (Some(Value::Object(written)), Dialect::V2)
            if row.keeps_unknown_fields || is(&written, PRESERVE) =>
        {
            Map::new()
        }
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
    let item = dialect.reference(&name::reversed(&row.kind, dialect));
    let mut properties = type_properties();
    let items = json!({
        "description": format!("List of {}.", row.resource), "items": item, "type": "array",
    });
    properties.insert("items".to_owned(), items);
    properties
        .insert("metadata".to_owned(), reference(LIST_META, "Standard list metadata.", dialect));
    root.insert("properties".to_owned(), properties.into());
    finish(root, list, row)
}

fn finish(mut root: Map<String, Value>, kind: &Kind<'_>, row: &Row<'_>) -> Value {
    root.extend(extensions(kind, row));
    root.into()
}

/// The extensions at the root of a kind.
fn extensions(kind: &Kind<'_>, row: &Row<'_>) -> Map<String, Value> {
    let mut out = Map::new();
    out.insert(GROUP_VERSION_KIND.to_owned(), json!([gvk(kind)]));
    if !row.selectable.is_empty() {
        let fields: Vec<Value> =
            row.selectable.iter().map(|path| json!({"fieldPath": path})).collect();
        out.insert(SELECTABLE_FIELDS.to_owned(), fields.into());
    }
    out
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
    properties.extend(own_properties(dialect));
    root.insert("properties".to_owned(), properties.into());
}

/// The members that every object has.
fn own_properties(dialect: Dialect) -> Map<String, Value> {
    let mut out = type_properties();
    out.insert("metadata".to_owned(), reference(OBJECT_META, OBJECT_METADATA, dialect));
    out
}

fn is(schema: &Map<String, Value>, key: &str) -> bool {
    schema.get(key).is_some_and(|value| value == true)
}

/// Adds the standard members of an embedded resource, which must contain its type.
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

/// v3: as written, with the two types of int-or-string and the standard members of embedded
/// resources added.
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
    if is(&schema, INT_OR_STRING) {
        add_types(&mut schema);
    }
    if is(&schema, EMBEDDED) {
        embed(&mut schema, Dialect::V3);
    }
    schema
}

/// Adds the two types of int-or-string, unless `anyOf` or the first of `allOf` has them. They
/// become `anyOf`, or the first of `allOf` if there is an `anyOf` already.
fn add_types(schema: &mut Map<String, Value>) {
    let types = || json!([{"type": "integer"}, {"type": "string"}]);
    let any_of = schema.get("anyOf").filter(|any_of| any_of.get(0).is_some());
    let first = schema.get("allOf").and_then(|all_of| all_of.get(0)?.get("anyOf"));
    if any_of == Some(&types()) || first == Some(&types()) {
        return;
    }
    if any_of.is_none() {
        schema.insert("anyOf".to_owned(), types());
        return;
    }
    let mut all_of = vec![json!({"anyOf": types()})];
    if let Some(Value::Array(written)) = schema.remove("allOf") {
        all_of.extend(written);
    }
    schema.insert("allOf".to_owned(), all_of.into());
}

/// v2: the part that old clients understand. They know neither combinations nor null, and would
/// treat the declared fields of a node with unknown fields as the only ones.
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
    if schema.get("additionalProperties").and_then(Value::as_object).is_some_and(is_nullable) {
        schema.remove("required");
    }
    for key in ["items", "additionalProperties"] {
        if let Some(below) = schema.get_mut(key).filter(|below| below.is_object()) {
            *below = simplified(below.take(), depth + 1).into();
        }
    }
    if is(&schema, EMBEDDED) && !preserves {
        embed(&mut schema, Dialect::V2);
    }
    schema
}
fn is_nullable(schema: &Map<String, Value>) -> bool {
    is(schema, "nullable")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use setpoint_registry::SchemaLanguage;

    fn row(schema: &Value) -> Row<'static> {
        let kind = Kind { group: "ex.io", version: "v1", kind: "Widget" };
        Row {
            kind,
            list_kind: "WidgetList".to_owned(),
            resource: "widgets",
            namespaced: true,
            verbs: Vec::new(),
            subresources: Vec::new(),
            language: SchemaLanguage::OpenApi,
            has_watch_paths: false,
            returns_deleted: false,
            cbor: false,
            open_api: Some(schema.to_string().into()),
            keeps_unknown_fields: false,
            selectable: vec!["spec.color"],
        }
    }

    fn as_written(schema: &Value) -> Option<Value> {
        let mut out = Vec::new();
        push_as_written(&mut out, &row(schema))?;
        Some(serde_json::from_slice(&out).unwrap())
    }

    #[test]
    fn a_complete_schema_is_copied() {
        let port = json!({"anyOf": [{"type": "integer"}, {"type": "string"}], INT_OR_STRING: true});
        let complete = json!({"type": "object", "description": "a \"widget\"", "properties": {
            "kind": {"type": "string"}, "port": port.clone(), "ports": {"type": "array", "items": port},
        }});
        assert_eq!(as_written(&complete), Some(kind(&row(&complete), Dialect::V3)));
        let port = json!({INT_OR_STRING: true});
        assert_eq!(as_written(&json!({"properties": {"port": port}})), None);
        assert_eq!(as_written(&json!({"properties": {"a": {EMBEDDED: true}}})), None);
    }

    /// A group may be chosen so that its types have names of built-in ones.
    #[test]
    fn names_of_built_in_types_are_not_taken() {
        let group = "apiextensions.apis.pkg.apiextensions-apiserver.k8s.io";
        let crafted = Kind { group, version: "v1", kind: "CustomResourceDefinition" };
        let crafted = Row { kind: crafted, ..row(&json!({"type": "object"})) };
        let built_in =
            "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition";
        assert!(setpoint_facts::definition(built_in).is_some());
        let [(name, schema), (list_name, list)] = definitions(&crafted, Dialect::V2);
        assert_eq!(name, format!("{built_in}_v2"));
        assert_eq!(list_name, built_in.replace("CustomResourceDefinition", "WidgetList"));
        let item = &list.make(Dialect::V2)["properties"]["items"]["items"];
        assert_eq!(item["$ref"], format!("#/definitions/{name}"));
        assert_eq!(schema.make(Dialect::V2)["type"], "object");
        // Each group version has a document of its own.
        assert_eq!(definitions(&crafted, Dialect::V3)[0].0, built_in);
        let crafted =
            Kind { group: "meta.apis.pkg.apimachinery.k8s.io", kind: "ObjectMeta", ..crafted.kind };
        assert_eq!(name::reversed(&crafted, Dialect::V3), format!("{OBJECT_META}_v2"));
    }

    #[test]
    fn v2_has_no_properties_if_unknown_fields_are_kept() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}});
        let row = Row { keeps_unknown_fields: true, ..row(&schema) };
        assert_eq!(kind(&row, Dialect::V2).get("properties"), None);
        assert!(kind(&row, Dialect::V3)["properties"]["a"].is_object());
    }

    /// As the reference publishes it.
    #[test]
    fn int_or_string_keeps_its_other_rules() {
        let v3 = |schema: &Value| Value::Object(complete(schema.clone(), 0));
        let types = json!([{"type": "integer"}, {"type": "string"}]);
        let pattern = json!([{"pattern": "^x"}]);
        for (written, published) in [
            (json!({}), json!({"anyOf": types})),
            (json!({"allOf": pattern}), json!({"allOf": pattern, "anyOf": types})),
            (json!({"anyOf": pattern}), json!({"allOf": [{"anyOf": types}], "anyOf": pattern})),
            (
                json!({"allOf": pattern, "anyOf": pattern}),
                json!({"allOf": [{"anyOf": types}, {"pattern": "^x"}], "anyOf": pattern}),
            ),
            (json!({"anyOf": types}), json!({"anyOf": types})),
            (json!({"allOf": [{"anyOf": types}]}), json!({"allOf": [{"anyOf": types}]})),
        ] {
            let with = |mut schema: Value| {
                schema[INT_OR_STRING] = true.into();
                schema
            };
            let root = json!({"properties": {"a": with(written.clone())}});
            let expected = json!({"properties": {"a": with(published)}});
            assert_eq!(v3(&root), expected);
            if let Some(copied) = as_written(&root) {
                assert_eq!(copied["properties"]["a"], expected["properties"]["a"], "{written}");
            }
        }
    }

    #[test]
    fn embedded_root_must_contain_its_type() {
        let schema = json!({EMBEDDED: true, "type": "object", "required": ["spec"],
            "properties": {"spec": {"type": "object"}}});
        for dialect in [Dialect::V2, Dialect::V3] {
            let required = &kind(&row(&schema), dialect)["required"];
            assert_eq!(required, &json!(["spec", "kind", "apiVersion"]));
        }
    }

    /// v2 cannot say that a value may be null, so it cannot say what is required, either.
    #[test]
    fn v2_requires_nothing_beside_nullable_additional_properties() {
        let schema = |nullable: bool| {
            let additional = json!({"type": "string", "nullable": nullable});
            json!({"type": "object", "required": ["q"], "additionalProperties": additional})
        };
        assert_eq!(simplified(schema(true), 1).get("required"), None);
        assert_eq!(simplified(schema(false), 1)["required"], json!(["q"]));
    }

    fn schema() -> impl Strategy<Value = Value> {
        let name = prop::sample::select(vec![
            "properties",
            "items",
            "anyOf",
            "allOf",
            "default",
            "description",
            "type",
            "a \"quoted\" name",
            INT_OR_STRING,
            EMBEDDED,
        ]);
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            Just(json!("object")),
            Just(json!("{\"anyOf\":")),
            Just(json!(1.5)),
            Just(Value::Null),
        ];
        let value = leaf.prop_recursive(6, 48, 5, move |inner| {
            prop_oneof![
                1 => prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                4 => prop::collection::btree_map(name.clone(), inner, 0..5).prop_map(|members| {
                    members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
                }),
            ]
        });
        value.prop_filter("an object", Value::is_object)
    }

    proptest! {
        #[test]
        fn a_copied_schema_equals_the_one_from_a_tree(schema in schema()) {
            if let Some(copied) = as_written(&schema) {
                prop_assert_eq!(copied, kind(&row(&schema), Dialect::V3));
            }
        }
    }
}
