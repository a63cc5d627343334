//! The catalog and the backends combined: all groups and versions in discovery order.

use super::{Backend, GROUP_PRIORITY, Table, VERSION_PRIORITY};
use setpoint_object::GroupVersion;
use setpoint_registry::catalog::{Catalog, Group, Routes};
use setpoint_registry::compare_versions;
use std::cmp::Reverse;
use std::collections::BTreeMap;
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
    /// The groups of legacy discovery, if they differ.
    registered: Option<Vec<Group>>,
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
        let priorities = Priorities::of(&catalog.groups, &backends);
        let groups = merged(&catalog.groups, &backends, &priorities);
        let registered = registered(&groups, &backends, &priorities);
        Self { groups, registered, catalog, backends }
    }

    /// Two values with the same generation are equal.
    pub(crate) fn generation(&self) -> Generation {
        Generation::of(&self.catalog, &self.backends)
    }

    /// The groups of legacy discovery.
    pub(crate) fn registered(&self) -> &[Group] {
        self.registered.as_deref().unwrap_or(&self.groups)
    }

    /// A group, as legacy discovery shows it. A group that is served and not registered is as it is
    /// served.
    pub(crate) fn group(&self, name: &str) -> Option<&Group> {
        let find = |groups: &'_ [Group]| groups.iter().position(|group| &*group.name == name);
        let listed = find(self.registered()).and_then(|at| self.registered().get(at));
        listed.or_else(|| self.groups.get(find(&self.groups)?))
    }

    /// The backend of a group version, if it has one.
    pub(crate) fn backend(&self, group: &str, version: &str) -> Option<&Arc<Backend>> {
        self.backends.get(group, version)
    }
}

impl Backend {
    /// Whether `other` would be listed in the same way.
    pub(crate) fn is_listed_as(&self, other: &Self) -> bool {
        self.is_available == other.is_available
            && self.is_discovered() == other.is_discovered()
            && Arc::ptr_eq(&self.documents, &other.documents)
    }
}

/// The priorities of all versions of all groups, by group and version.
struct Priorities<'a>(BTreeMap<&'a str, BTreeMap<&'a str, (u32, u32)>>);

impl<'a> Priorities<'a> {
    /// Those of backends, then of registrations, then the defaults of served ones.
    fn of(local: &'a [Group], table: &'a Table) -> Self {
        let mut all: BTreeMap<&str, BTreeMap<&str, (u32, u32)>> = BTreeMap::new();
        for group in local {
            for version in &group.versions {
                let default = (group_priority(&group.name), version_priority(&group.name, version));
                all.entry(&group.name).or_default().insert(version, default);
            }
        }
        for registration in table.registrations.iter().flat_map(|all| all.iter()) {
            let GroupVersion { group, version } = &registration.group_version;
            let priorities = (registration.group_priority, registration.version_priority);
            all.entry(group).or_default().insert(version, priorities);
        }
        for backend in table.iter() {
            let GroupVersion { group, version } = &backend.group_version;
            let priorities = (backend.group_priority, backend.version_priority);
            all.entry(group).or_default().insert(version, priorities);
        }
        Self(all)
    }

    /// The priority of a group: the highest of its versions.
    fn group(&self, name: &str) -> u32 {
        // It has no APIService, and is always first.
        if name == FIRST_GROUP {
            return u32::MAX;
        }
        let versions = self.0.get(name).into_iter().flatten();
        versions.map(|(_, (group, _))| *group).max().unwrap_or_default()
    }

    fn sort(&self, groups: &mut [Group]) {
        for group in &mut *groups {
            let of = |version: &str| self.0.get(&*group.name).and_then(|known| known.get(version));
            let rank = |version: &str| Reverse(of(version).map_or(0, |(_, version)| *version));
            group.versions.sort_by(|a, b| rank(a).cmp(&rank(b)).then(compare_versions(a, b)));
        }
        let place = |group: &Group| {
            (!group.name.is_empty(), Reverse(self.group(&group.name)), group.name.clone())
        };
        groups.sort_by_cached_key(place);
    }
}

/// The groups of the catalog and of backends, ordered by priority.
fn merged(local: &[Group], table: &Table, priorities: &Priorities<'_>) -> Vec<Group> {
    let mut groups = local.to_vec();
    if table.is_empty() && table.registrations.is_none() {
        return groups;
    }
    for backend in table.iter() {
        add(&mut groups, &backend.group_version);
    }
    priorities.sort(&mut groups);
    groups
}

/// The groups of legacy discovery: those that are registered, and all that are not Kubernetes' own.
/// `None`: all that are served.
fn registered(served: &[Group], table: &Table, priorities: &Priorities<'_>) -> Option<Vec<Group>> {
    let registrations = table.registrations.as_ref()?;
    let is_shown = |group: &Group, version: &Arc<str>| {
        // Only Kubernetes' own groups have objects from the start.
        group_priority(&group.name) == GROUP_PRIORITY
            || table.get(&group.name, version).is_some()
            || registrations.iter().any(|registration| {
                let GroupVersion { group: known, version: of } = &registration.group_version;
                *known == group.name && of == version
            })
    };
    let mut groups: Vec<Group> = served.to_vec();
    for group in &mut groups {
        let all = std::mem::take(&mut group.versions);
        group.versions = all.into_iter().filter(|version| is_shown(group, version)).collect();
    }
    groups.retain(|group| !group.versions.is_empty());
    for registration in registrations.iter() {
        add(&mut groups, &registration.group_version);
    }
    priorities.sort(&mut groups);
    Some(groups)
}

/// Adds a group version, if it is missing.
fn add(groups: &mut Vec<Group>, group_version: &GroupVersion) {
    let GroupVersion { group: name, version } = group_version;
    match groups.iter_mut().find(|group| group.name == *name) {
        Some(group) if group.versions.contains(version) => {}
        Some(group) => group.versions.push(version.clone()),
        None => {
            let (name, versions) = (name.clone(), vec![version.clone()]);
            groups.push(Group { name, versions, routes: Routes::Dynamic });
        }
    }
}

/// The group of APIServices.
const FIRST_GROUP: &str = "apiregistration.k8s.io";

/// The priority of a group of this server (spec: extension §1.1).
pub(super) fn group_priority(group: &str) -> u32 {
    match group {
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
        "internal.apiserver.k8s.io" => 16_000,
        "storagemigration.k8s.io" => 15_800,
        _ => GROUP_PRIORITY,
    }
}

/// The priority of a version of this server (spec: extension §1.1).
fn version_priority(group: &str, version: &str) -> u32 {
    match (group, version) {
        ("autoscaling", "v2") => 30,
        ("resource.k8s.io" | "flowcontrol.apiserver.k8s.io", "v1") => 21,
        ("resource.k8s.io", "v1beta2") => 15,
        ("resource.k8s.io", "v1alpha3") | ("certificates.k8s.io", "v1alpha1") => 1,
        ("coordination.k8s.io", "v1beta1") => 13,
        ("admissionregistration.k8s.io", "v1beta1") | ("coordination.k8s.io", "v1alpha2") => 12,
        (_, "v1alpha1" | "v1beta1") if group_priority(group) > GROUP_PRIORITY => 9,
        (group, _) if group_priority(group) > GROUP_PRIORITY => 15,
        _ => VERSION_PRIORITY,
    }
}
