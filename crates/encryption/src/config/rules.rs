//! Rules for names of resources.

use super::error::{Violation, shown};
use crate::resource::GroupResource;
use std::collections::BTreeSet;

/// The problem with a name by itself.
pub(super) fn name_fault(name: &str) -> Option<Violation> {
    let text = || name.to_owned();
    let GroupResource { group, resource } = GroupResource::parse(name);
    if name.to_lowercase() != name {
        Some(Violation::Capital(text()))
    } else if name == "*" {
        Some(Violation::Star)
    } else if matches!(
        name,
        "apiserveripinfo" | "serviceipallocations" | "servicenodeportallocations"
    ) {
        Some(Violation::NoApi(text()))
    } else if group == "events.k8s.io" {
        Some(Violation::Events(text()))
    } else if group == "extensions" {
        Some(Violation::Extensions(text()))
    } else if group == "*" && resource != "*" {
        Some(Violation::AcrossGroups(text()))
    } else {
        None
    }
}

/// The problems of the names of one list: at most one of each kind, as in Kubernetes.
pub(super) fn list_faults(texts: &[&str]) -> impl Iterator<Item = Violation> {
    let names: Vec<_> = texts.iter().map(|name| GroupResource::parse(name)).collect();
    let distinct: BTreeSet<_> = names.iter().collect();
    let is_all = |name: &GroupResource| name.group == "*" && name.resource == "*";
    let covers = |one: &GroupResource, other: &GroupResource| {
        one != other && (is_all(one) || one.group == other.group && one.resource == "*")
    };
    let overlaps = distinct.iter().any(|one| distinct.iter().any(|other| covers(one, other)));
    let texts = || texts.iter().map(|text| shown(text).to_owned()).collect();
    let duplicates = (distinct.len() < names.len()).then(|| Violation::Duplicate(texts()));
    duplicates.into_iter().chain(overlaps.then(|| Violation::Overlap(texts())))
}

/// What earlier entries cover.
#[derive(Debug, Default)]
pub(super) struct Masks {
    wildcards: BTreeSet<GroupResource>,
}

impl Masks {
    /// Adds a name, in the order of the file. Returns the problem if it is covered.
    pub(super) fn take(&mut self, name: &GroupResource) -> Option<Violation> {
        let all_of =
            |group: &str| GroupResource { group: group.to_owned(), resource: "*".to_owned() };
        for rule in [all_of(&name.group), all_of("*")] {
            if self.wildcards.contains(&rule) {
                return Some(Violation::Masked {
                    resource: name.to_string(),
                    rule: rule.to_string(),
                });
            }
        }
        if name.resource == "*" {
            self.wildcards.insert(name.clone());
        }
        None
    }
}
