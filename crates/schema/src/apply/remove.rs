//! Removing a set of paths from an object, and the pruning of what an applier no longer claims
//! (spec: patch §5.4, step 4).

use super::element::path_element;
use super::fieldset::{FieldSet, Node};
use super::leaves::{leaves, leaves_without};
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

/// Removes from `merged` what the applier owned (`last`) and no manager owns any more: `managed` is
/// what all managers own now, the applier's new set included. Unowned fields stay, unless they
/// lie in something that is removed.
pub(super) fn prune(ty: Type<'_>, merged: &mut Value, last: &FieldSet<'_>, managed: &FieldSet<'_>) {
    let last = with_named_fields(ty, last);
    let managed = with_named_fields(ty, managed);
    let mut given_up = last.clone();
    given_up.subtract(&managed);
    if given_up.is_empty() {
        return;
    }
    let present = with_named_fields(ty, &leaves(ty, merged));
    // First without everything the applier had, then with what somebody owns put back, last with
    // what the applier never had.
    let kept = |gone: &FieldSet<'_>| with_named_fields(ty, &leaves_without(ty, merged, gone));
    let mut unowned = present.clone();
    unowned.subtract(&kept(&last));
    unowned.subtract(&managed);
    let kept = kept(&unowned);
    let mut gone = present;
    gone.subtract(&kept);
    let gone = gone.intersection(&last).into_owned();
    if !gone.is_empty() {
        remove(ty, merged, &gone);
    }
}
