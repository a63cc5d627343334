//! The catalog and the backends combined: all groups and versions in discovery order.

use super::{Backend, GROUP_PRIORITY, Table, VERSION_PRIORITY};
use setpoint_registry::catalog::{Catalog, Group};
use setpoint_registry::compare_versions;
use std::cmp::Reverse;
use std::sync::Arc;

/// All group versions that are served at one moment, by this server and by backends.
#[derive(Debug, Default)]
pub(crate) struct Served {
    /// Served by this server.
    pub(crate) catalog: Arc<Catalog>,
    /// Served by backends.
    pub(crate) backends: Arc<Table>,
    /// The groups of both in discovery order, each with its versions in priority order.
    pub(crate) groups: Vec<Group>,
}

/// The generations of a catalog and of a table of backends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Generation(u64, u64);

impl Generation {
    pub(crate) fn of(catalog: &Catalog, backends: &Table) -> Self {
        Self(catalog.generation, backends.generation)
    }
}

impl Served {
    pub(crate) fn new(catalog: Arc<Catalog>, backends: Arc<Table>) -> Self {
        let groups = merged(&catalog.groups, &backends);
        Self { catalog, backends, groups }
    }

    /// Two values with the same generation are equal.
    pub(crate) fn generation(&self) -> Generation {
        Generation::of(&self.catalog, &self.backends)
    }

    /// A group.
    pub(crate) fn group(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|group| &*group.name == name)
    }

    /// The backend of a group version, if it has one.
    pub(crate) fn backend(&self, group: &str, version: &str) -> Option<&Arc<Backend>> {
        self.backends.get(group, version)
    }
}

impl Backend {
    /// Whether `other` would be listed in the same way.
    pub(crate) fn is_listed_as(&self, other: &Self) -> bool {
        self.is_available == other.is_available && Arc::ptr_eq(&self.documents, &other.documents)
    }
}

/// The groups of the catalog in their order, with those of backends inserted by priority.
fn merged(local: &[Group], backends: &Table) -> Vec<Group> {
    let mut groups = local.to_vec();
    for (name, versions) in &backends.groups {
        let at = groups.iter().position(|group| group.name == *name);
        let mut group = match at {
            Some(at) => groups.remove(at),
            None => Group { name: name.clone(), versions: Vec::new(), custom: true },
        };
        let own = at.map_or(0, |_| group_priority(name));
        group.versions.retain(|version| !versions.contains_key(version));
        let rank = |version: &str| match versions.get(version) {
            Some(backend) => backend.version_priority,
            None => version_priority(name, version),
        };
        for version in versions.keys() {
            let is_behind = |other: &Arc<str>| {
                let by_priority = rank(version).cmp(&rank(other));
                by_priority.then_with(|| compare_versions(other, version)).is_gt()
            };
            let behind = group.versions.iter().position(is_behind);
            group.versions.insert(behind.unwrap_or(group.versions.len()), version.clone());
        }
        let highest = versions.values().map(|backend| backend.group_priority).max();
        let priority = highest.unwrap_or_default().max(own);
        let place = match at {
            // It keeps its position.
            Some(at) if priority == own => at,
            _ => {
                let of = |other: &Group| {
                    let theirs = backends.groups.get(&other.name).into_iter().flatten();
                    let highest = theirs.map(|(_, backend)| backend.group_priority).max();
                    let own = local.iter().any(|group| group.name == other.name);
                    highest.unwrap_or_default().max(if own {
                        group_priority(&other.name)
                    } else {
                        0
                    })
                };
                let is_behind = |other: &Group| {
                    !other.name.is_empty()
                        && (Reverse(of(other)), &other.name) > (Reverse(priority), name)
                };
                groups.iter().position(is_behind).unwrap_or(groups.len())
            }
        };
        groups.insert(place, group);
    }
    groups
}

/// The priority of a group of this server (spec: extension §1.1).
fn group_priority(group: &str) -> u32 {
    match group {
        // It has no APIService, and is always first.
        "apiregistration.k8s.io" => u32::MAX,
        "" => 18_000,
        "apps" => 17_800,
        "events.k8s.io" => 17_750,
        "authentication.k8s.io" => 17_700,
        "authorization.k8s.io" => 17_600,
        "autoscaling" => 17_500,
        "batch" => 17_400,
        "certificates.k8s.io" => 17_300,
        "networking.k8s.io" => 17_200,
        "policy" => 17_100,
        "rbac.authorization.k8s.io" => 17_000,
        "storage.k8s.io" => 16_800,
        "admissionregistration.k8s.io" | "apiextensions.k8s.io" => 16_700,
        "scheduling.k8s.io" => 16_600,
        "coordination.k8s.io" => 16_500,
        "node.k8s.io" => 16_300,
        "discovery.k8s.io" | "resource.k8s.io" => 16_200,
        "flowcontrol.apiserver.k8s.io" => 16_100,
        _ => GROUP_PRIORITY,
    }
}

/// The priority of a version of this server (spec: extension §1.1).
fn version_priority(group: &str, version: &str) -> u32 {
    match (group, version) {
        ("autoscaling", "v2") => 30,
        ("resource.k8s.io" | "flowcontrol.apiserver.k8s.io", "v1") => 21,
        (group, _) if group_priority(group) > GROUP_PRIORITY => 15,
        _ => VERSION_PRIORITY,
    }
}
