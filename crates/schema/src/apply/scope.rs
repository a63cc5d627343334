//! The fields that an endpoint may own.

use super::fieldset::FieldSet;
use super::path::PathElement;
use std::collections::BTreeSet;

/// Members of an object that are never owned: identity and what the server sets.
pub(super) const UNTRACKED: [&str; 2] = ["apiVersion", "kind"];
/// Members of `metadata` that are never owned.
pub(super) const UNTRACKED_METADATA: [&str; 9] = [
    "clusterName",
    "creationTimestamp",
    "generation",
    "managedFields",
    "name",
    "namespace",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// Which part of an object a request through an endpoint can own.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scope<'a> {
    /// Members that are reset: `status`, `metadata/labels`.
    reset: &'a BTreeSet<&'a str>,
}

impl<'a> Scope<'a> {
    /// Of an endpoint.
    pub(super) fn new(reset: &'a BTreeSet<&'a str>) -> Self {
        Self { reset }
    }

    /// Takes out what the endpoint cannot own.
    pub(super) fn apply(self, set: &mut FieldSet<'_>) {
        for reset in self.reset {
            lose(set, reset);
        }
    }
}

/// Takes out the member that a path of names leads to, and what is below it.
fn lose(set: &mut FieldSet<'_>, path: &str) {
    let (first, rest) = match path.split_once('/') {
        Some((first, rest)) => (first, Some(rest)),
        None => (path, None),
    };
    set.retain(|node| match (&node.element, rest) {
        (PathElement::Field(name), None) if name == first => {
            node.member = false;
            node.children = FieldSet::new();
        }
        (PathElement::Field(name), Some(rest)) if name == first => lose(&mut node.children, rest),
        _ => {}
    });
}

/// Takes identity and server-set members out of a set.
pub(super) fn strip(set: &mut FieldSet<'_>) {
    set.retain(|node| match &node.element {
        PathElement::Field(name) if name == "metadata" => {
            node.member = false;
            node.children.retain(|node| {
                if matches!(&node.element, PathElement::Field(name) if UNTRACKED_METADATA.contains(&name.as_ref()))
                {
                    node.member = false;
                }
            });
        }
        PathElement::Field(name) if UNTRACKED.contains(&name.as_ref()) => node.member = false,
        _ => {}
    });
}
