//! The table of backends and registrations, and what paths name in it.

use super::{Backend, Registration};
use crate::query::decode_path;
use crate::route;
use setpoint_object::GroupVersion;
use setpoint_registry::{Catalog, ResourcePath, Verb};
use std::collections::BTreeMap;
use std::sync::Arc;

/// All backends at one moment, by group and version.
#[derive(Debug, Clone, Default)]
pub(crate) struct Table {
    /// Increases by one with every change.
    pub(crate) generation: u64,
    pub(super) groups: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Arc<Backend>>>,
    /// Total length of all documents.
    pub(super) bytes: usize,
    /// Group versions that are listed; `None`: all that are served.
    pub(super) registrations: Option<Arc<Vec<Registration>>>,
}

impl Table {
    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.groups.values().map(BTreeMap::len).sum()
    }

    pub(crate) fn get(&self, group: &str, version: &str) -> Option<&Arc<Backend>> {
        self.groups.get(group)?.get(version)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Backend>> {
        self.groups.values().flat_map(BTreeMap::values)
    }

    /// A copy to change.
    pub(super) fn next(&self) -> Self {
        Self { generation: self.generation + 1, ..self.clone() }
    }

    pub(super) fn insert(&mut self, backend: Backend) {
        let GroupVersion { group, version } = backend.group_version.clone();
        self.bytes += backend.documents.len();
        let versions = self.groups.entry(group).or_default();
        if let Some(former) = versions.insert(version, Arc::new(backend)) {
            self.bytes -= former.documents.len();
        }
    }

    pub(super) fn remove(&mut self, group: &str, version: &str) {
        let Some(versions) = self.groups.get_mut(group) else { return };
        if let Some(former) = versions.remove(version) {
            self.bytes -= former.documents.len();
        }
        if versions.is_empty() {
            self.groups.remove(group);
        }
    }

    /// What a path (without its query, still percent-encoded) names in this table.
    pub(crate) fn find(&self, path: &str) -> Option<Found> {
        if self.is_empty() {
            return None;
        }
        let decoded = decode_path(path)?;
        let below = decoded.strip_prefix("/apis/")?;
        let (group, below) = below.split_once('/').unwrap_or((below, ""));
        let (name, versions) = self.groups.get_key_value(group)?;
        if below.is_empty() {
            return Some(Found::Group(name.clone()));
        }
        let version = below.split('/').next()?;
        let backend = versions.get(version)?.clone();
        Some(match route::unserved(path) {
            Some(named) => Found::Resource { backend, path: named.path, verb: named.verb },
            None => Found::Version(backend),
        })
    }

    /// The backend whose handler has the OpenAPI v3 document with this key. The document of a
    /// backend's group version is its own, and what the catalog serves is documented here.
    pub(crate) fn document(&self, catalog: &Catalog, key: &str) -> Option<&Arc<Backend>> {
        let has = |backend: &&Arc<Backend>| backend.documents.v3_index.contains_key(key);
        match key.split('/').collect::<Vec<_>>()[..] {
            ["apis", group, version] => {
                if let Some(owner) = self.get(group, version) {
                    return Some(owner).filter(has);
                }
                let known = catalog.group(group);
                if known.is_some_and(|known| known.versions.iter().any(|v| **v == *version)) {
                    return None;
                }
            }
            ["apis", group]
                if catalog.group(group).is_some() || self.groups.contains_key(group) =>
            {
                return None;
            }
            ["api" | "apis" | "version"] | ["api", "v1"] => return None,
            _ => {}
        }
        self.iter().find(has)
    }

    /// The registered group with this path, if nothing serves it.
    pub(crate) fn registered_group(&self, path: &str) -> Option<Arc<str>> {
        let registrations = self.registrations.as_ref()?;
        let decoded = decode_path(path)?;
        let group = decoded.strip_prefix("/apis/")?;
        let group = group.strip_suffix('/').unwrap_or(group);
        let found = registrations.iter().find(|known| *known.group_version.group == *group)?;
        Some(found.group_version.group.clone()).filter(|group| !group.is_empty())
    }
}

/// What a path names in a [`Table`].
#[derive(Debug)]
pub(crate) enum Found {
    /// `/apis/{group}`, with some versions in this table.
    Group(Arc<str>),
    /// `/apis/{group}/{version}`.
    Version(Arc<Backend>),
    /// A path below a version.
    Resource {
        backend: Arc<Backend>,
        path: ResourcePath,
        /// The verb of every method, if the path has a deprecated prefix.
        verb: Option<Verb>,
    },
}
