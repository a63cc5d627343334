//! The built-in types' schema, made from the facts table once per process (immutable data).
//!
//! Every definition of [`setpoint_facts::DEFINITIONS`] becomes one node. So does every field,
//! because merge behaviour, defaults and what is written when absent belong to the field; fields of
//! which all this is alike share one. A field whose type is a definition is that definition's node
//! with the field's properties on top: it points at the same property nodes, so definitions are
//! shared and recursive types (`JSONSchemaProps`) are ordinary.
//!
//! One [`Document`] holds all of them; a [`TypeSchema`] is a pointer to it and a root. Building
//! takes less than a millisecond and happens at the first question.

mod build;
mod reviews;
#[cfg(test)]
mod tests;

pub use reviews::Review;

use crate::node::{Document, NodeId, TypeSchema, View};
use std::sync::{Arc, OnceLock};

/// Where meta/v1 types are, which belong to every group version (`DeleteOptions`, `Status`).
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

/// The document that holds every built-in type.
pub fn document() -> &'static Arc<Document> {
    static DOCUMENT: OnceLock<Arc<Document>> = OnceLock::new();
    DOCUMENT.get_or_init(|| Arc::new(build::document()))
}

/// The schema of a built-in kind, of its list (`PodList`) or of a subresource's body (`Scale`,
/// `Eviction`); `None` when the facts table has no such kind. Group `meta.k8s.io` has the types of
/// meta/v1.
pub fn type_schema(group: &str, version: &str, kind: &str) -> Option<TypeSchema> {
    if group == "meta.k8s.io" && version == "v1" {
        return definition(&format!("{META}{kind}"));
    }
    setpoint_facts::kind(group, version, kind).map(at)
}

/// The schema of a named definition (`io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta`).
pub fn definition(name: &str) -> Option<TypeSchema> {
    setpoint_facts::definition(name).map(at)
}

/// The schema inside a CustomResourceDefinition, which may hold others of its kind.
pub(crate) fn json_schema_props() -> Option<View<'static>> {
    let name = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
    setpoint_facts::definition(name).map(|index| document().view(NodeId(u32::from(index))))
}

/// The schema of `metadata`.
pub fn object_meta() -> TypeSchema {
    // The tables are generated together: an absent ObjectMeta would be caught by this module's
    // tests. An empty object says the least.
    definition("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta").unwrap_or_else(|| at(0))
}

/// A definition by its index in the facts table: its node has the same index.
fn at(index: u16) -> TypeSchema {
    TypeSchema { document: document().clone(), root: NodeId(u32::from(index)) }
}
