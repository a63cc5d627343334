//! From the facts tables to nodes.

use crate::node::{Document, ListType, Node, NodeId, PatchStrategy, Property, Scalar, Shape, Str};
use setpoint_facts::{DEFINITIONS, Definition, Field, Presence, Type};

/// A field whose type is a definition: its node is filled once every definition's node is complete.
struct Pending {
    node: NodeId,
    definition: u16,
    field: &'static Field,
}

/// All definitions: node `i` is definition `i`, fields follow.
pub(super) fn document() -> Document {
    let fields: usize = DEFINITIONS.iter().map(|definition| definition.fields.len()).sum();
    let mut document = Document::default();
    document.nodes.reserve(DEFINITIONS.len() + fields * 5 / 4);
    document.nodes.extend(DEFINITIONS.iter().map(definition_node));
    let mut pending = Vec::new();
    for (at, definition) in DEFINITIONS.iter().enumerate() {
        let mut properties = Vec::with_capacity(definition.fields.len());
        for field in definition.fields {
            let node = add_field(&mut document, field, &mut pending);
            properties.push(Property::new(field.name, node));
        }
        document.nodes[at].properties = properties;
    }
    for Pending { node, definition, field } in pending {
        let base = &document.nodes[usize::from(definition)];
        let mut full = base.clone();
        if field.granular {
            full.atomic_map = false;
        }
        add_facts(&mut full, field);
        document.nodes[node.0 as usize] = full;
    }
    document
}

fn definition_node(definition: &'static Definition) -> Node {
    Node {
        required: definition.required.iter().map(|name| Str::Borrowed(*name)).collect(),
        atomic_map: definition.atomic,
        type_name: Some(Str::Borrowed(definition.name)),
        ..scalar_node(definition.ty, definition.format)
    }
}

fn add_field(document: &mut Document, field: &'static Field, pending: &mut Vec<Pending>) -> NodeId {
    if let Type::Ref(definition) = field.ty {
        let node = document.push(Node::default());
        pending.push(Pending { node, definition, field });
        return node;
    }
    let mut node = type_node(document, field.ty, field.format);
    add_facts(&mut node, field);
    document.push(node)
}

/// A node of a type; those inside it are pushed.
fn type_node(document: &mut Document, ty: Type, format: &'static str) -> Node {
    match ty {
        Type::List(items) => Node {
            shape: Shape::Array,
            items: Some(inner(document, *items, format)),
            ..Node::default()
        },
        Type::Map(values) => {
            Node { additional: Some(inner(document, *values, format)), ..Node::default() }
        }
        scalar => scalar_node(scalar, format),
    }
}

/// The node of list items or map values: a definition itself when it is one.
fn inner(document: &mut Document, ty: Type, format: &'static str) -> NodeId {
    if let Type::Ref(definition) = ty {
        return NodeId(u32::from(definition));
    }
    let node = type_node(document, ty, format);
    document.push(node)
}

fn scalar_node(ty: Type, format: &'static str) -> Node {
    let (shape, scalar) = match ty {
        Type::Str => (Shape::String, Scalar::Plain),
        Type::Bytes => (Shape::String, Scalar::Bytes),
        Type::Quantity => (Shape::String, Scalar::Quantity),
        Type::Time => (Shape::String, Scalar::Time),
        Type::MicroTime => (Shape::String, Scalar::MicroTime),
        Type::Int if format == "int32" => (Shape::Integer, Scalar::Int32),
        Type::Int => (Shape::Integer, Scalar::Int64),
        Type::Num => (Shape::Number, Scalar::Plain),
        Type::Bool => (Shape::Boolean, Scalar::Plain),
        Type::IntOrString => (Shape::IntOrString, Scalar::Plain),
        Type::Any => (Shape::Any, Scalar::Plain),
        Type::Object | Type::Ref(_) | Type::Map(_) => (Shape::Object, Scalar::Plain),
        Type::List(_) => (Shape::Array, Scalar::Plain),
    };
    Node {
        shape,
        scalar,
        preserve_unknown: shape == Shape::Any,
        format: (!format.is_empty()).then_some(Str::Borrowed(format)),
        type_name: well_known(ty).map(Str::Borrowed),
        ..Node::default()
    }
}

fn well_known(ty: Type) -> Option<&'static str> {
    Some(match ty {
        Type::IntOrString => "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
        Type::Quantity => "io.k8s.apimachinery.pkg.api.resource.Quantity",
        Type::Time => "io.k8s.apimachinery.pkg.apis.meta.v1.Time",
        Type::MicroTime => "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime",
        _ => return None,
    })
}

/// Properties of the field, not of its type.
fn add_facts(node: &mut Node, field: &'static Field) {
    node.list_type = match field.list_type {
        "map" => ListType::Map(field.list_map_keys.iter().map(|key| Str::Borrowed(*key)).collect()),
        "set" => ListType::Set,
        _ => ListType::Atomic,
    };
    node.atomic_map |= field.atomic;
    for strategy in field.patch_strategy.split(',') {
        match strategy {
            "merge" => node.patch.merge = true,
            "retainKeys" => node.patch.retain_keys = true,
            "replace" => node.patch.replace = true,
            _ => {}
        }
    }
    if !field.merge_key.is_empty() {
        node.patch = PatchStrategy {
            merge_key: Some(Str::Borrowed(field.merge_key)),
            ..std::mem::take(&mut node.patch)
        };
    }
    if !field.default.is_empty() {
        // Generated text: what is no JSON would fail this module's tests.
        node.default = serde_json::from_str(field.default).ok();
    }
    node.order = field.order;
    match field.presence {
        Presence::Omitted => node.omit_empty = true,
        Presence::Pointer => {}
        Presence::Always => node.always_present = true,
        Presence::Null => (node.always_present, node.zero_null) = (true, true),
    }
}
