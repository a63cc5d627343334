//! The set of everything an object mentions.

use super::element::path_element;
use super::fieldset::{FieldSet, Node};
use super::path::PathElement;
use super::types::{Form, Relation, Type};
use serde_json::Value;

/// Every leaf of `value`, elements of keyed lists and members of maps themselves included.
pub(super) fn leaves<'a>(ty: Type<'a>, value: &'a Value) -> FieldSet<'a> {
    below(ty, value).1
}

/// Whether the value itself is a leaf, and what lies below.
fn below<'a>(ty: Type<'a>, value: &'a Value) -> (bool, FieldSet<'a>) {
    let granular = |nodes| (false, FieldSet::from_nodes(nodes));
    match (ty.form(Some(value)), value) {
        (Form::Scalar(_), _) => (true, FieldSet::new()),
        (Form::Map, _) if ty.atomic_map() => (true, FieldSet::new()),
        (Form::List, _) if matches!(ty.relation(), Relation::Atomic) => (true, FieldSet::new()),
        (Form::Map, Value::Object(members)) => {
            let mut nodes = Vec::with_capacity(members.len());
            for (name, value) in members {
                let Some((ty, declared)) = ty.member(name) else { continue };
                let (leaf, children) = below(ty, value);
                let empty = value.is_null() || value.as_object().is_some_and(|map| map.is_empty());
                let member = leaf || empty || !declared;
                nodes.push(Node { element: PathElement::field(name.as_str()), member, children });
            }
            granular(nodes)
        }
        (Form::List, Value::Array(items)) => granular(elements(ty, items)),
        _ => (false, FieldSet::new()),
    }
}

/// Elements; those that occur several times are leaves.
fn elements<'a>(ty: Type<'a>, items: &'a [Value]) -> Vec<Node<'a>> {
    let mut nodes: Vec<Node<'a>> = Vec::with_capacity(items.len());
    for item in items {
        let Ok(element) = path_element(ty, item) else { continue };
        let (_, children) = below(ty.items(), item);
        nodes.push(Node { element, member: true, children });
    }
    let ordered = nodes.windows(2).all(|pair| pair[0].element < pair[1].element);
    if !ordered {
        nodes.sort_by(|a, b| a.element.cmp(&b.element));
        nodes.dedup_by(|later, earlier| {
            let same = later.element == earlier.element;
            if same {
                earlier.children = FieldSet::new();
            }
            same
        });
    }
    nodes
}
