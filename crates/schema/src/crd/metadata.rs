//! `ObjectMeta` inside the document of a custom resource.
use crate::builtin;
use crate::node::{Document, Node, NodeId};

/// The node of `ObjectMeta`. It is borrowed: every custom resource has it.
pub(super) fn object_meta(document: &mut Document) -> NodeId {
    let schema = builtin::object_meta();
    document.borrow_from(&schema.document);
    schema.root.borrowed()
}

/// A node of `ObjectMeta` to be changed. Its properties are borrowed.
pub(super) fn own_object_meta(document: &mut Document) -> Node {
    let schema = builtin::object_meta();
    document.borrow_from(&schema.document);
    let mut node = schema.view().node().clone();
    for property in node.properties.iter_mut().chain(&mut node.filled) {
        property.id = property.id.borrowed();
    }
    node
}
