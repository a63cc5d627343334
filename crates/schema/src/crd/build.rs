//! `openAPIV3Schema` → [`TypeSchema`].
use super::metadata;
use crate::node::{Document, ListType, Node, NodeId, Shape, Str, TypeSchema, Validation};
use crate::pattern::{Budget, Pattern};
use serde_json::{Map, Number, Value};
use std::sync::Arc;

/// The deepest nesting of a schema that is built; what lies deeper has no type. Bodies are not deeper than this either.
const DEPTH_MAX: usize = 128;

/// Builds the schema of one version (root properties apiVersion, kind, metadata included). The definition was validated before:
/// what would be invalid is read leniently. Patterns are compiled when they are first matched.
pub fn type_schema(open_api_v3_schema: &Value) -> TypeSchema {
    let mut document = Document::default();
    let patterns = Arc::default();
    let mut builder = Builder { document: &mut document, patterns: &patterns };
    let root = builder.node(open_api_v3_schema, 0);
    builder.add_type_and_metadata(root, open_api_v3_schema);
    TypeSchema { document: Arc::new(document), root }
}

/// Builds a node that is no root.
pub(crate) fn node_schema(schema: &Value) -> TypeSchema {
    let mut document = Document::default();
    let root = Builder { document: &mut document, patterns: &Arc::default() }.node(schema, 0);
    TypeSchema { document: Arc::new(document), root }
}

struct Builder<'a> {
    document: &'a mut Document,
    /// What the patterns of the document may keep.
    patterns: &'a Arc<Budget>,
}

impl Builder<'_> {
    /// Gives a root or embedded resource the properties every object has; `schema` may restrict
    /// `metadata.name` and `generateName`.
    fn add_type_and_metadata(&mut self, id: NodeId, schema: &Value) {
        let string = self.document.push(Node { shape: Shape::String, ..Node::default() });
        let metadata_id = metadata::object_meta(self.document);
        let restrictions =
            schema.pointer("/properties/metadata/properties").and_then(Value::as_object);
        for (name, restriction) in restrictions.into_iter().flatten() {
            let restricted = self.node(restriction, 0);
            let properties = &mut self.document.nodes[metadata_id.0 as usize].properties;
            if let Ok(at) = properties.binary_search_by(|(n, _)| n.as_ref().cmp(name)) {
                properties[at].1 = restricted;
            }
        }
        let properties = &mut self.document.nodes[id.0 as usize].properties;
        for (name, node) in [("apiVersion", string), ("kind", string), ("metadata", metadata_id)] {
            match properties.binary_search_by(|(n, _)| n.as_ref().cmp(name)) {
                // Restrictions of apiVersion and kind stay as written; metadata is always
                // ObjectMeta.
                Ok(at) if name == "metadata" => properties[at].1 = node,
                Ok(_) => {}
                Err(at) => properties.insert(at, (name.into(), node)),
            }
        }
    }

    fn node(&mut self, schema: &Value, depth: usize) -> NodeId {
        let Some(schema) = schema.as_object().filter(|_| depth < DEPTH_MAX) else {
            return self.document.push(Node {
                shape: Shape::Any,
                preserve_unknown: true,
                ..Node::default()
            });
        };
        let mut node = Node {
            shape: shape(schema),
            required: strings(schema.get("required")),
            nullable: flag(schema, "nullable"),
            preserve_unknown: flag(schema, "x-kubernetes-preserve-unknown-fields"),
            embedded_resource: flag(schema, "x-kubernetes-embedded-resource"),
            list_type: list_type(schema),
            atomic_map: text(schema, "x-kubernetes-map-type") == Some("atomic"),
            default: schema.get("default").filter(|default| !default.is_null()).cloned(),
            description: text(schema, "description").map(|text| Str::from(text.to_owned())),
            format: text(schema, "format").filter(|f| !f.is_empty()).map(|f| f.to_owned().into()),
            ..Node::default()
        };
        let mut validation = Validation::default();
        let constrained = self.validation(schema, depth, &mut validation);
        match schema.get("additionalProperties") {
            Some(Value::Bool(true)) => node.additional_any = true,
            Some(value @ Value::Object(_)) => node.additional = Some(self.node(value, depth + 1)),
            _ => {}
        }
        if let Some(items @ Value::Object(_)) = schema.get("items") {
            node.items = Some(self.node(items, depth + 1));
        }
        if let Some(Value::Object(properties)) = schema.get("properties") {
            // serde_json's map is sorted, as the arena wants it.
            node.properties = properties
                .iter()
                .map(|(name, value)| (Str::from(name.clone()), self.node(value, depth + 1)))
                .collect();
            let has_default =
                |(_, id): &&(Str, NodeId)| self.document.nodes[id.0 as usize].default.is_some();
            node.defaulted = node.properties.iter().filter(has_default).cloned().collect();
        }
        node.validation = constrained.then(|| Box::new(validation));
        let embedded = node.embedded_resource;
        let id = self.document.push(node);
        if embedded {
            self.add_type_and_metadata(id, &Value::Object(schema.clone()));
        }
        id
    }

    /// Reads the value validations; whether there are any.
    fn validation(
        &mut self,
        schema: &Map<String, Value>,
        depth: usize,
        into: &mut Validation,
    ) -> bool {
        let branches = |this: &mut Self, name: &str| -> Vec<NodeId> {
            let list = schema.get(name).and_then(Value::as_array);
            list.into_iter().flatten().map(|branch| this.node(branch, depth + 1)).collect()
        };
        *into = Validation {
            minimum: number(schema, "minimum"),
            maximum: number(schema, "maximum"),
            exclusive_minimum: flag(schema, "exclusiveMinimum"),
            exclusive_maximum: flag(schema, "exclusiveMaximum"),
            multiple_of: number(schema, "multipleOf"),
            min_length: length(schema, "minLength"),
            max_length: length(schema, "maxLength"),
            pattern: text(schema, "pattern").filter(|p| !p.is_empty()).map(|pattern| {
                Arc::new(Pattern::new(Str::from(pattern.to_owned()), self.patterns.clone()))
            }),
            min_items: length(schema, "minItems"),
            max_items: length(schema, "maxItems"),
            min_properties: length(schema, "minProperties"),
            max_properties: length(schema, "maxProperties"),
            enumeration: list(schema, "enum"),
            additional_forbidden: schema.get("additionalProperties") == Some(&Value::Bool(false)),
            all_of: branches(self, "allOf"),
            any_of: branches(self, "anyOf"),
            one_of: branches(self, "oneOf"),
            not: schema.get("not").filter(|n| n.is_object()).map(|n| self.node(n, depth + 1)),
            rules: list(schema, "x-kubernetes-validations"),
        };
        let v = into;
        v.minimum.is_some()
            || v.maximum.is_some()
            || v.multiple_of.is_some()
            || v.min_length.is_some()
            || v.max_length.is_some()
            || v.pattern.is_some()
            || v.min_items.is_some()
            || v.max_items.is_some()
            || v.min_properties.is_some()
            || v.max_properties.is_some()
            || v.additional_forbidden
            || v.not.is_some()
            || !(v.enumeration.is_empty()
                && v.all_of.is_empty()
                && v.any_of.is_empty()
                && v.one_of.is_empty()
                && v.rules.is_empty())
    }
}

fn shape(schema: &Map<String, Value>) -> Shape {
    if flag(schema, "x-kubernetes-int-or-string") {
        return Shape::IntOrString;
    }
    match text(schema, "type") {
        Some("object") => Shape::Object,
        Some("array") => Shape::Array,
        Some("string") => Shape::String,
        Some("integer") => Shape::Integer,
        Some("number") => Shape::Number,
        Some("boolean") => Shape::Boolean,
        _ => Shape::Any,
    }
}

fn list_type(schema: &Map<String, Value>) -> ListType {
    match text(schema, "x-kubernetes-list-type") {
        Some("set") => ListType::Set,
        Some("map") => ListType::Map(strings(schema.get("x-kubernetes-list-map-keys"))),
        _ => ListType::Atomic,
    }
}

fn flag(schema: &Map<String, Value>, name: &str) -> bool {
    schema.get(name) == Some(&Value::Bool(true))
}
fn text<'a>(schema: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    schema.get(name).and_then(Value::as_str)
}
fn number(schema: &Map<String, Value>, name: &str) -> Option<Number> {
    schema.get(name).and_then(Value::as_number).cloned()
}
fn length(schema: &Map<String, Value>, name: &str) -> Option<u64> {
    schema.get(name).and_then(Value::as_u64)
}
fn list(schema: &Map<String, Value>, name: &str) -> Vec<Value> {
    schema.get(name).and_then(Value::as_array).cloned().unwrap_or_default()
}
fn strings(value: Option<&Value>) -> Vec<Str> {
    let list = value.and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_str).map(|text| Str::from(text.to_owned())).collect()
}
