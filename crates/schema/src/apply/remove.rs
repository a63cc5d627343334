//! Removing a set of paths from an object.

use super::element::path_element;
use super::fieldset::{FieldSet, Node};
use super::path::PathElement;
use super::types::{Form, Relation, Type};
use serde_json::Value;

/// Removes the paths of `gone` with everything below them. A map or list that becomes empty by this
/// stays as an empty one.
pub(super) fn remove(ty: Type<'_>, value: &mut Value, gone: &FieldSet<'_>) {
    match (ty.form(Some(value)), &mut *value) {
        (Form::Map, Value::Object(members)) if !ty.atomic_map() => {
            members.retain(|name, value| {
                let Some(node) = gone.field(name) else { return true };
                if node.member {
                    return false;
                }
                if let Some((member, _)) = ty.member(name) {
                    remove(member, value, &node.children);
                }
                true
            });
        }
        (Form::List, Value::Array(items)) if !matches!(ty.relation(), Relation::Atomic) => {
            items.retain_mut(|item| {
                let node = path_element(ty, item).ok().and_then(|element| gone.get(&element));
                let Some(node) = node else { return true };
                if node.member {
                    return false;
                }
                remove(ty.items(), item, &node.children);
                true
            });
        }
        // A set that looks into an atomic value was written for another schema.
        (Form::Map, Value::Object(members)) => members.clear(),
        (Form::List, Value::Array(items)) => items.clear(),
        _ => {}
    }
}

/// The set with every declared field that has something below it as a member: owning a field of a
/// struct is owning the struct's presence, while a map stays when its last key goes.
pub(super) fn with_named_fields<'s>(ty: Type<'_>, set: &FieldSet<'s>) -> FieldSet<'s> {
    let nodes = set.nodes().iter().map(|node| {
        let (below, named) = match &node.element {
            PathElement::Field(name) => match ty.member(name) {
                Some((member, declared)) => (Some(member), declared),
                None => (None, false),
            },
            PathElement::Key(_) => (Some(ty.items()), false),
            PathElement::Value(_) | PathElement::Index(_) => (None, false),
        };
        Node {
            element: node.element.clone(),
            member: node.member || (named && !node.children.is_empty()),
            children: match below {
                Some(ty) => with_named_fields(ty, &node.children),
                None => node.children.clone(),
            },
        }
    });
    FieldSet::from_nodes(nodes.collect())
}
