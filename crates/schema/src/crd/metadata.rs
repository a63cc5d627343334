//! `ObjectMeta` inside the document of a custom resource.
use crate::builtin;
use crate::node::{Document, NodeId, View};
use std::collections::HashMap;

/// Copies the nodes of `ObjectMeta` and returns the root of them.
pub(super) fn object_meta(document: &mut Document) -> NodeId {
    let schema = builtin::object_meta();
    copy(document, schema.view(), &mut HashMap::new())
}

/// Copies what a node reaches. `ObjectMeta` is not recursive; the map shares nodes.
fn copy(into: &mut Document, from: View<'_>, copied: &mut HashMap<NodeId, NodeId>) -> NodeId {
    if let Some(id) = copied.get(&from.id()) {
        return *id;
    }
    let mut node = from.node().clone();
    for (_, id) in &mut node.properties {
        *id = copy(into, from.at(*id), copied);
    }
    node.additional = node.additional.map(|id| copy(into, from.at(id), copied));
    node.items = node.items.map(|id| copy(into, from.at(id), copied));
    let id = into.push(node);
    copied.insert(from.id(), id);
    id
}
