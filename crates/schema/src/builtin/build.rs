//! From the facts tables to nodes.
//!
//! Fields that differ in their names only have one node: the names are in the nodes of their
//! definitions.

use crate::node::{Document, ListType, Node, NodeId, PatchStrategy, Property, Scalar, Shape, Str};
use setpoint_facts::{DEFINITIONS, Definition, Facts, Field, Presence, Type};
use std::collections::HashMap;

/// A field whose type is a definition: its node is filled once every definition's node is complete.
struct Pending {
    node: NodeId,
    definition: u16,
    facts: &'static Facts,
}

/// The document while it is built.
#[derive(Default)]
struct Builder {
    document: Document,
    /// The nodes of fields by the address of their facts. The compiler makes one of most facts that
    /// are alike, and to compare them would take longer than everything else here.
    by_address: HashMap<usize, NodeId>,
    /// The same by the facts, for those that it made twice.
    fields: HashMap<&'static Facts, NodeId>,
    /// The nodes of items and values that are no definitions.
    inner: HashMap<(Type, &'static str), NodeId>,
    pending: Vec<Pending>,
}

/// All definitions: node `i` is definition `i`, fields follow.
pub(super) fn document() -> Document {
    let mut builder = Builder::default();
    // Enough for all, so that nothing is copied.
    let n_fields: usize = DEFINITIONS.iter().map(|definition| definition.fields.len()).sum();
    builder.document.nodes.reserve(DEFINITIONS.len() + n_fields / 2);
    builder.document.nodes.extend(DEFINITIONS.iter().map(definition_node));
    for (at, definition) in DEFINITIONS.iter().enumerate() {
        let property =
            |field: &'static Field| Property::new(field.name, builder.field(field.facts));
        let properties: Vec<Property> = definition.fields.iter().map(property).collect();
        let fields = definition.fields.iter().zip(&properties);
        let filled = fields.filter(|(field, _)| is_filled(field.facts));
        builder.document.nodes[at].filled = filled.map(|(_, property)| property.clone()).collect();
        builder.document.nodes[at].properties = properties;
    }
    let Builder { mut document, pending, .. } = builder;
    for Pending { node, definition, facts } in pending {
        let base = &document.nodes[usize::from(definition)];
        let mut full = base.clone();
        if facts.granular {
            full.atomic_map = false;
        }
        add_facts(&mut full, facts);
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

impl Builder {
    /// The node of a field.
    fn field(&mut self, facts: &'static Facts) -> NodeId {
        let address = std::ptr::from_ref(facts).addr();
        if let Some(known) = self.by_address.get(&address) {
            return *known;
        }
        let id = match self.fields.get(facts) {
            Some(known) => *known,
            None => self.new_field(facts),
        };
        self.by_address.insert(address, id);
        id
    }

    /// A new node for a field.
    fn new_field(&mut self, facts: &'static Facts) -> NodeId {
        let id = if let Type::Ref(definition) = facts.ty {
            let node = self.document.push(Node::default());
            self.pending.push(Pending { node, definition, facts });
            node
        } else {
            let mut node = self.node(facts.ty, facts.format);
            add_facts(&mut node, facts);
            self.document.push(node)
        };
        self.fields.insert(facts, id);
        id
    }

    /// A node of a type; those inside it are pushed.
    fn node(&mut self, ty: Type, format: &'static str) -> Node {
        match ty {
            Type::List(items) => Node {
                shape: Shape::Array,
                items: Some(self.inner(*items, format)),
                ..Node::default()
            },
            Type::Map(values) => {
                Node { additional: Some(self.inner(*values, format)), ..Node::default() }
            }
            scalar => scalar_node(scalar, format),
        }
    }

    /// The node of list items or map values: a definition itself when it is one.
    fn inner(&mut self, ty: Type, format: &'static str) -> NodeId {
        if let Type::Ref(definition) = ty {
            return NodeId(u32::from(definition));
        }
        if let Some(known) = self.inner.get(&(ty, format)) {
            return *known;
        }
        let node = self.node(ty, format);
        let id = self.document.push(node);
        self.inner.insert((ty, format), id);
        id
    }
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

/// Whether a field may be filled in where it is absent.
fn is_filled(facts: &Facts) -> bool {
    !facts.default.is_empty() || matches!(facts.presence, Presence::Always | Presence::Null)
}

/// Properties of the field, not of its type.
fn add_facts(node: &mut Node, facts: &'static Facts) {
    node.list_type = match facts.list_type {
        "map" => ListType::Map(facts.list_map_keys.iter().map(|key| Str::Borrowed(*key)).collect()),
        "set" => ListType::Set,
        _ => ListType::Atomic,
    };
    node.atomic_map |= facts.atomic;
    for strategy in facts.patch_strategy.split(',') {
        match strategy {
            "merge" => node.patch.merge = true,
            "retainKeys" => node.patch.retain_keys = true,
            "replace" => node.patch.replace = true,
            _ => {}
        }
    }
    if !facts.merge_key.is_empty() {
        node.patch = PatchStrategy {
            merge_key: Some(Str::Borrowed(facts.merge_key)),
            ..std::mem::take(&mut node.patch)
        };
    }
    if !facts.default.is_empty() {
        // Generated text: what is no JSON would fail this module's tests.
        node.default = serde_json::from_str(facts.default).ok();
    }
    node.order = facts.order;
    match facts.presence {
        Presence::Omitted => node.omit_empty = true,
        Presence::Pointer => {}
        Presence::Always => node.always_present = true,
        Presence::Null => (node.always_present, node.zero_null) = (true, true),
    }
}
