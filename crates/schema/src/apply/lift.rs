//! Holding stored sets to the schema of today: what became atomic is owned as a whole.

use super::fieldset::FieldSet;
use super::path::PathElement;
use super::types::{Form, Relation, Type};

/// Lifts ownership of anything inside an atomic map or list to the map or list itself. Sets written
/// while a node was atomic stay as they are when it becomes granular. Whether anything was lifted.
pub(super) fn lift(ty: Type<'_>, set: &mut FieldSet<'_>) -> bool {
    if set.is_empty() || !matches!(ty, Type::Declared { .. }) {
        return false;
    }
    let mut lifted = false;
    set.retain(|node| {
        let below = match &node.element {
            PathElement::Field(name) => ty.member(name).map(|(member, _)| member),
            PathElement::Key(_) | PathElement::Value(_) | PathElement::Index(_) => Some(ty.items()),
        };
        let Some(below @ Type::Declared { .. }) = below else { return };
        if node.children.is_empty() {
            return;
        }
        let atomic = match below.form(None) {
            Form::Map => below.atomic_map(),
            Form::List => matches!(below.relation(), Relation::Atomic),
            Form::Scalar(_) => false,
        };
        if atomic {
            node.children = FieldSet::new();
            node.member = true;
            lifted = true;
        } else {
            lifted |= lift(below, &mut node.children);
        }
    });
    lifted
}
