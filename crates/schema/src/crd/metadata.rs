//! `ObjectMeta` as a schema, for custom resources and embedded resources.
use crate::node::{Document, ListType, Node, NodeId, Scalar, Shape};

/// Name of the definition.
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const OWNER_REFERENCE: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference";
const MANAGED_FIELDS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ManagedFieldsEntry";

fn scalar(document: &mut Document, shape: Shape, scalar: Scalar) -> NodeId {
    document.push(Node { shape, scalar, ..Node::default() })
}

fn object(
    document: &mut Document,
    name: &'static str,
    mut properties: Vec<(&'static str, NodeId)>,
    required: &[&'static str],
) -> NodeId {
    properties.sort_unstable();
    document.push(Node {
        properties: properties.into_iter().map(|(name, id)| (name.into(), id)).collect(),
        required: required.iter().map(|name| (*name).into()).collect(),
        type_name: Some(name.into()),
        ..Node::default()
    })
}

/// Adds the nodes of `ObjectMeta` and returns the root of them.
pub(crate) fn object_meta(document: &mut Document) -> NodeId {
    let string = scalar(document, Shape::String, Scalar::Plain);
    let boolean = scalar(document, Shape::Boolean, Scalar::Plain);
    let int64 = scalar(document, Shape::Integer, Scalar::Int64);
    let time = scalar(document, Shape::String, Scalar::Time);
    let strings = document.push(Node { additional: Some(string), ..Node::default() });
    let owner = object(
        document,
        OWNER_REFERENCE,
        vec![
            ("apiVersion", string),
            ("blockOwnerDeletion", boolean),
            ("controller", boolean),
            ("kind", string),
            ("name", string),
            ("uid", string),
        ],
        &["apiVersion", "kind", "name", "uid"],
    );
    document.nodes[owner.0 as usize].atomic_map = true;
    let owners = document.push(Node {
        shape: Shape::Array,
        items: Some(owner),
        list_type: ListType::Map(vec!["uid".into()]),
        ..Node::default()
    });
    let finalizers = document.push(Node {
        shape: Shape::Array,
        items: Some(string),
        list_type: ListType::Set,
        ..Node::default()
    });
    let fields = document.push(Node { preserve_unknown: true, ..Node::default() });
    let entry = object(
        document,
        MANAGED_FIELDS,
        vec![
            ("apiVersion", string),
            ("fieldsType", string),
            ("fieldsV1", fields),
            ("manager", string),
            ("operation", string),
            ("subresource", string),
            ("time", time),
        ],
        &[],
    );
    let managed_fields =
        document.push(Node { shape: Shape::Array, items: Some(entry), ..Node::default() });
    object(
        document,
        OBJECT_META,
        vec![
            ("annotations", strings),
            ("creationTimestamp", time),
            ("deletionGracePeriodSeconds", int64),
            ("deletionTimestamp", time),
            ("finalizers", finalizers),
            ("generateName", string),
            ("generation", int64),
            ("labels", strings),
            ("managedFields", managed_fields),
            ("name", string),
            ("namespace", string),
            ("ownerReferences", owners),
            ("resourceVersion", string),
            ("selfLink", string),
            ("uid", string),
        ],
        &[],
    )
}
