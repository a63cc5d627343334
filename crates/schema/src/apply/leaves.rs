//! The set of everything an object mentions.

use super::element::path_element;
use super::fieldset::{FieldSet, Node};
use super::path::PathElement;
use super::types::{Form, Relation, Type};
use serde_json::Value;

/// Every leaf of `value`, elements of keyed lists and members of maps themselves included.
pub(super) fn leaves<'a>(ty: Type<'a>, value: &'a Value) -> FieldSet<'a> {
    below(ty, value, &FieldSet::new()).children
}

/// The leaves that would be left if the paths of `gone` were removed ([`super::remove::remove`]).
pub(super) fn leaves_without<'a>(
    ty: Type<'a>,
    value: &'a Value,
    gone: &FieldSet<'_>,
) -> FieldSet<'a> {
    below(ty, value, gone).children
}

/// A value as its parent sees it.
#[derive(Default)]
struct Below<'a> {
    /// The value itself is a leaf.
    leaf: bool,
    /// It is `null` or an empty map, or a map that everything goes from.
    empty: bool,
    children: FieldSet<'a>,
}

fn below<'a>(ty: Type<'a>, value: &'a Value, gone: &FieldSet<'_>) -> Below<'a> {
    let leaf = || Below { leaf: true, empty: value.is_null(), children: FieldSet::new() };
    match (ty.form(Some(value)), value) {
        (Form::Scalar(_), _) => leaf(),
        (Form::Map, _) if ty.atomic_map() => leaf(),
        (Form::List, _) if matches!(ty.relation(), Relation::Atomic) => leaf(),
        (Form::Map, Value::Object(members)) => {
            let mut nodes = Vec::with_capacity(members.len());
            let mut empty = true;
            for (name, value) in members {
                let goes = gone.field(name);
                if goes.is_some_and(|node| node.member) {
                    continue;
                }
                empty = false;
                let Some((ty, declared)) = ty.member(name) else { continue };
                let below = below(ty, value, goes.map_or(&FieldSet::new(), |node| &node.children));
                let member = below.leaf || below.empty || !declared;
                let element = PathElement::field(name.as_str());
                nodes.push(Node { element, member, children: below.children });
            }
            Below { leaf: false, empty, children: FieldSet::from_nodes(nodes) }
        }
        // An empty list is no claim.
        (Form::List, Value::Array(items)) => {
            Below { children: elements(ty, items, gone), ..Below::default() }
        }
        _ => Below { empty: value.is_null(), ..Below::default() },
    }
}

fn elements<'a>(ty: Type<'a>, items: &'a [Value], gone: &FieldSet<'_>) -> FieldSet<'a> {
    let mut nodes: Vec<Node<'a>> = Vec::with_capacity(items.len());
    for item in items {
        let Ok(element) = path_element(ty, item) else { continue };
        let goes = gone.get(&element);
        if goes.is_some_and(|node| node.member) {
            continue;
        }
        let Below { children, .. } =
            below(ty.items(), item, goes.map_or(&FieldSet::new(), |node| &node.children));
        nodes.push(Node { element, member: true, children });
    }
    FieldSet::from_elements(nodes)
}
