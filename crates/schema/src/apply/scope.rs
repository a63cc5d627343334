//! The fields that an endpoint may own.

use super::fieldset::FieldSet;
use super::path::PathElement;
use std::collections::BTreeSet;

/// Members of an object that are never owned: identity and what the server sets.
const UNTRACKED: [&str; 2] = ["apiVersion", "kind"];
/// Members of `metadata` that are never owned.
const UNTRACKED_METADATA: [&str; 9] = [
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

/// One step of a path that an endpoint owns.
#[derive(Debug, Clone, Copy)]
enum Step {
    Field(&'static str),
    Any,
}
use Step::{Any, Field};

/// What `pods/ephemeralcontainers` owns.
const EPHEMERAL_CONTAINERS: &[&[Step]] = &[&[Field("spec"), Field("ephemeralContainers")]];
/// What `pods/resize` owns.
const RESIZE: &[&[Step]] = &[
    &[Field("spec"), Field("containers"), Any, Field("resizePolicy")],
    &[Field("spec"), Field("containers"), Any, Field("resources")],
    &[Field("spec"), Field("initContainers"), Any, Field("resizePolicy")],
    &[Field("spec"), Field("initContainers"), Any, Field("resources")],
    &[Field("spec"), Field("resources")],
];

/// Which part of an object a request through an endpoint can own.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scope<'a> {
    /// Members that are reset: `status`, `metadata/labels`.
    reset: &'a BTreeSet<&'a str>,
    /// Where set: nothing but these paths.
    only: Option<&'static [&'static [Step]]>,
}

impl<'a> Scope<'a> {
    /// Of an endpoint.
    pub(super) fn new(reset: &'a BTreeSet<&'a str>, kind: &str, subresource: &str) -> Self {
        let only = match (kind, subresource) {
            ("Pod", "ephemeralcontainers") => Some(EPHEMERAL_CONTAINERS),
            ("Pod", "resize") => Some(RESIZE),
            _ => None,
        };
        Self { reset, only }
    }

    /// Takes out what the endpoint cannot own.
    pub(super) fn apply(self, set: &mut FieldSet<'_>) {
        for reset in self.reset {
            lose(set, reset);
        }
        if let Some(only) = self.only {
            keep(set, only);
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

/// Keeps what lies at or below one of these ways.
fn keep(set: &mut FieldSet<'_>, ways: &[&[Step]]) {
    set.retain(|node| {
        let fits = |step: &Step| match step {
            Field(name) => matches!(&node.element, PathElement::Field(n) if n == name),
            Any => true,
        };
        let rest: Vec<&[Step]> = ways
            .iter()
            .filter_map(|way| way.split_first())
            .filter_map(|(first, rest)| fits(first).then_some(rest))
            .collect();
        if rest.iter().any(|way| way.is_empty()) {
            return;
        }
        node.member = false;
        if rest.is_empty() {
            node.children = FieldSet::new();
        } else {
            keep(&mut node.children, &rest);
        }
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
