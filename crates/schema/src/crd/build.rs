//! `openAPIV3Schema` → [`TypeSchema`].
use super::{metadata, settle};
use crate::node::{
    Document, ListType, Node, NodeId, Property, Shape, Str, TYPE_AND_METADATA, TypeSchema,
    Validation,
};
use crate::pattern::{self, Budget, Pattern};
use serde_json::{Map, Number, Value};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::Arc;

/// The deepest nesting of a schema that is built; what lies deeper has no type. Bodies are not
/// deeper than this either.
pub(super) const DEPTH_MAX: usize = 128;

/// Builds the schema of one version (root properties apiVersion, kind, metadata included). The
/// definition was validated before: what would be invalid is read leniently. Patterns are compiled
/// when they are first matched.
pub fn type_schema(open_api_v3_schema: &Value) -> TypeSchema {
    let mut builder = Builder::default();
    let settled = settle::settled(open_api_v3_schema);
    let root = builder.own_node(settled.as_ref().unwrap_or(open_api_v3_schema), 0);
    builder.add_type_and_metadata(root);
    builder.finish(root)
}

/// Builds a node that is no root.
pub(crate) fn node_schema(schema: &Value) -> TypeSchema {
    let mut builder = Builder::default();
    let root = builder.node(schema, 0);
    builder.finish(root)
}

struct Builder {
    document: Document,
    /// Nodes by their hash. Most nodes of a large definition are alike, leaves above all: they are
    /// one.
    known: HashMap<u64, Vec<NodeId>>,
    /// The patterns by their source: each is compiled once.
    patterns: HashMap<String, Arc<Pattern>>,
    /// The budget of the document's patterns.
    budget: Arc<Budget>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            document: Document::default(),
            known: HashMap::new(),
            patterns: HashMap::new(),
            budget: pattern::budget(),
        }
    }
}

/// Different nodes of one hash that are looked at; more of them are not shared.
const COLLISIONS_MAX: usize = 8;

impl Builder {
    fn finish(mut self, root: NodeId) -> TypeSchema {
        self.document.nodes.shrink_to_fit();
        TypeSchema { document: Arc::new(self.document), root }
    }
    /// Gives a root or embedded resource the properties every object has. The schema may restrict
    /// those of `metadata`.
    fn add_type_and_metadata(&mut self, id: NodeId) {
        let string = self.intern(Node { shape: Shape::String, ..Node::default() });
        let node = &self.document.nodes[id.0 as usize];
        let is_one = |property: &&Property| TYPE_AND_METADATA.contains(&&*property.name);
        let declared: Vec<Property> = node.properties.iter().filter(is_one).cloned().collect();
        let restricted = declared.iter().find(|property| property.name == "metadata");
        let restricted = restricted.map(|property| &self.document.nodes[property.id.0 as usize]);
        let metadata_id = match restricted.filter(|restricted| !restricted.properties.is_empty()) {
            None => metadata::object_meta(&mut self.document),
            Some(restricted) => {
                let (properties, defaulted) =
                    (restricted.properties.clone(), restricted.defaulted.clone());
                let mut node = metadata::own_object_meta(&mut self.document);
                for property in properties {
                    if let Ok(at) = Property::search(&node.properties, &property.name) {
                        node.properties[at].id = property.id;
                    }
                }
                node.defaulted = defaulted;
                self.intern(node)
            }
        };
        let node = &mut self.document.nodes[id.0 as usize];
        for (name, id) in [("apiVersion", string), ("kind", string), ("metadata", metadata_id)] {
            match Property::search(&node.properties, name) {
                // Restrictions of apiVersion and kind stay as written; metadata is always
                // ObjectMeta.
                Ok(at) if name == "metadata" => node.properties[at].id = id,
                Ok(_) => {}
                Err(at) => node.properties.insert(at, Property::new(name, id)),
            }
        }
        node.validation.get_or_insert_default().type_and_metadata = Some(declared);
    }
    /// The node that is the same as this one, or a new one.
    fn intern(&mut self, node: Node) -> NodeId {
        let mut hasher = DefaultHasher::new();
        facts(&node).hash(&mut hasher);
        let alike = self.known.entry(hasher.finish()).or_default();
        let nodes = &self.document.nodes;
        let is_same = |id: &&NodeId| facts(&nodes[id.0 as usize]) == facts(&node);
        if let Some(id) = alike.iter().find(is_same) {
            return *id;
        }
        let id = self.document.push(node);
        if alike.len() < COLLISIONS_MAX {
            alike.push(id);
        }
        id
    }

    /// A node that may be shared with others that are the same.
    fn node(&mut self, schema: &Value, depth: usize) -> NodeId {
        let node = self.read(schema, depth);
        if node.embedded_resource {
            let id = self.document.push(node);
            self.add_type_and_metadata(id);
            return id;
        }
        self.intern(node)
    }
    /// A node that is not shared, so that it may be changed.
    fn own_node(&mut self, schema: &Value, depth: usize) -> NodeId {
        let node = self.read(schema, depth);
        self.document.push(node)
    }
    fn read(&mut self, schema: &Value, depth: usize) -> Node {
        let Some(schema) = schema.as_object().filter(|_| depth < DEPTH_MAX) else {
            return Node { shape: Shape::Any, preserve_unknown: true, ..Node::default() };
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
                .map(|(name, value)| Property::new(name.clone(), self.node(value, depth + 1)))
                .collect();
            let nodes = &self.document.nodes;
            let has_default =
                |property: &&Property| nodes[property.id.0 as usize].default.is_some();
            node.defaulted = node.properties.iter().filter(has_default).cloned().collect();
        }
        node.validation = constrained.then(|| Box::new(validation));
        node
    }

    fn pattern(&mut self, source: &str) -> Arc<Pattern> {
        if let Some(known) = self.patterns.get(source) {
            return known.clone();
        }
        let pattern = Arc::new(Pattern::new(source, self.budget.clone()));
        self.patterns.insert(source.to_owned(), pattern.clone());
        pattern
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
            pattern: text(schema, "pattern").filter(|p| !p.is_empty()).map(|p| self.pattern(p)),
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
            type_and_metadata: None,
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

/// The content of a node of a custom resource.
fn facts(node: &Node) -> impl Hash + PartialEq + use<'_> {
    let ids = (node.additional, node.items);
    let flags = (node.nullable, node.preserve_unknown, node.embedded_resource);
    let kinds = (node.shape, node.scalar, node.additional_any, node.atomic_map);
    let texts = (&node.format, &node.type_name, &node.list_type, &node.patch);
    let values = (&node.default, &node.validation);
    // Those of `ObjectMeta`.
    let written = (node.always_present, node.zero_null, node.omit_empty, node.order);
    (ids, flags, kinds, texts, values, written, &node.properties, &node.required)
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

#[cfg(test)]
mod tests {
    use super::type_schema;
    use serde_json::json;

    #[test]
    fn nodes_that_are_the_same_are_one_and_the_root_is_its_own() {
        let text = |about: &str| json!({"type": "string", "description": about});
        let part = json!({"type": "object", "properties": {"a": text("one"), "b": text("two")}});
        let mut schema = json!({"type": "object", "properties": {"x": part, "y": part, "z": {
            "type": "object", "properties": {"a": text("three"), "b": {"type": "string", "default": "b"}}}}});
        let inner = schema.clone();
        schema["properties"]["again"] = inner;
        let built = type_schema(&schema);
        let root = built.view();
        let id = |name: &str| root.property(name).unwrap().id();
        assert_eq!(id("x"), id("y"));
        assert_ne!(id("x"), id("z"));
        assert!(root.property("again").unwrap().property("metadata").is_none());
        assert_eq!(root.property("again").unwrap().property("x").unwrap().id(), id("x"));
        // The root, `again`, `x`, `z`, a string with a default and one without.
        assert_eq!(built.document.nodes.len(), 6);
        let default = root.property("z").unwrap().property("b").unwrap().default.clone();
        assert_eq!(default, Some(json!("b")));
    }

    /// Five kinds of fields that come ten thousand times are five nodes.
    #[test]
    fn nodes_with_the_same_validations_are_one_and_metadata_is_borrowed() {
        let field = |at: usize| match at % 5 {
            0 => {
                json!({"type": "string", "description": at.to_string(), "pattern": "^a+$", "maxLength": 63})
            }
            1 => json!({"type": "string", "enum": ["Always", "Never"]}),
            2 => json!({"type": "integer", "minimum": 0}),
            3 => {
                json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]})
            }
            _ => json!({"type": "string", "pattern": "^a+$"}),
        };
        let fields: serde_json::Map<_, _> =
            (0..10_000).map(|at| (format!("field{at}"), field(at))).collect();
        let built = type_schema(&json!({"type": "object", "properties": fields}));
        // The five, the two branches, and the root; a string without a pattern is a branch, too.
        assert_eq!(built.document.nodes.len(), 8);
        let node = |name: &str| built.view().property(name).unwrap().node();
        let pattern = |name: &str| node(name).validation.as_ref().unwrap().pattern.clone().unwrap();
        assert!(std::sync::Arc::ptr_eq(&pattern("field0"), &pattern("field4")));
        assert_eq!(node("field2").validation.as_ref().unwrap().minimum, Some(0.into()));
        let metadata = built.view().property("metadata").unwrap();
        assert!(std::ptr::eq(metadata.node(), crate::builtin::object_meta().view().node()));
        let owners = metadata.property("ownerReferences").unwrap().items().unwrap();
        assert!(owners.property("uid").is_some());
    }

    #[test]
    fn restricted_metadata_is_the_definitions_own_and_its_other_fields_are_borrowed() {
        let name = json!({"type": "string", "maxLength": 5});
        let built = type_schema(&json!({"type": "object", "properties": {
            "metadata": {"type": "object", "properties": {"name": name}},
            "inner": {"type": "object", "x-kubernetes-embedded-resource": true}}}));
        let metadata = built.view().property("metadata").unwrap();
        let longest = |property: &str| {
            let node = metadata.property(property).unwrap().node();
            node.validation.as_ref().and_then(|validation| validation.max_length)
        };
        assert_eq!((longest("name"), longest("generateName")), (Some(5), None));
        let labels = metadata.property("labels").unwrap();
        assert!(
            labels.additional.is_some_and(|id| labels.at(id).shape == crate::node::Shape::String)
        );
        let inner = built.view().property("inner").unwrap().property("metadata").unwrap();
        assert!(std::ptr::eq(inner.node(), crate::builtin::object_meta().view().node()));
    }
}
