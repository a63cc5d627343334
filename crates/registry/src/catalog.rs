//! Served resources as data: built-in rows and custom rows in one immutable table; a change of a CRD makes a new table.
use crate::kind::{Kind, Selectable, StatusRule};
use crate::subresource::Subresource;
use crate::verb::Verb;
use base64::Engine;
use bytes::Bytes;
use setpoint_object::{GroupKind, GroupResource, GroupVersion, GroupVersionKind, Scope, keys};
use setpoint_schema::node::TypeSchema;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Everything that is served at one moment. Immutable; cheap to share.
#[derive(Debug, Default)]
pub struct Catalog {
    /// Grows by one with every change.
    pub generation: u64,
    /// Groups in discovery order; each with its versions in priority order.
    pub groups: Vec<Group>,
    /// Rows by group, version, resource.
    pub rows: BTreeMap<RowKey, Arc<Resource>>,
}
/// Group, version and plural name of a row.
pub type RowKey = (Arc<str>, Arc<str>, Arc<str>);
/// A served group.
#[derive(Debug, Clone)]
pub struct Group {
    /// Name; empty for the core group.
    pub name: Arc<str>,
    /// Versions, preferred first.
    pub versions: Vec<Arc<str>>,
    /// Whether it is made of custom resources only.
    pub custom: bool,
}
impl Catalog {
    /// The row of a resource.
    pub fn get(&self, group: &str, version: &str, resource: &str) -> Option<&Arc<Resource>> {
        self.rows.get(&(group.into(), version.into(), resource.into()))
    }
    /// A group.
    pub fn group(&self, group: &str) -> Option<&Group> {
        self.groups.iter().find(|g| &*g.name == group)
    }
    /// The rows of a group version, in name order.
    pub fn group_version<'a>(
        &'a self,
        group: &str,
        version: &str,
    ) -> impl Iterator<Item = &'a Arc<Resource>> + 'a {
        let (group, version): (Arc<str>, Arc<str>) = (group.into(), version.into());
        self.rows.values().filter(move |r| r.gvk.group == group && r.gvk.version == version)
    }
}

/// One served resource in one version: a row of data.
#[derive(Debug)]
pub struct Resource {
    /// Kind, in the served version.
    pub gvk: GroupVersionKind,
    /// Plural name.
    pub resource: Arc<str>,
    /// Singular name.
    pub singular: Arc<str>,
    /// Kind of its lists.
    pub list_kind: Arc<str>,
    /// Namespaced or cluster-scoped.
    pub scope: Scope,
    /// Verbs, in discovery's order.
    pub verbs: Vec<Verb>,
    /// Short names.
    pub short_names: Vec<Arc<str>>,
    /// Categories.
    pub categories: Vec<Arc<str>>,
    /// Subresources.
    pub subresources: Vec<SubresourceRow>,
    /// The schema of this version.
    pub schema: TypeSchema,
    /// The group objects are stored in.
    pub storage_group: Arc<str>,
    /// The version objects are stored in.
    pub storage_version: Arc<str>,
    /// Key prefix in the store, with a trailing slash: `/registry/configmaps/`.
    pub storage_prefix: Arc<str>,
    /// Served versions of the kind, as `apiVersion`s: `apps/v1`.
    pub versions: Vec<String>,
    /// Its type is an OpenAPI schema, not one of the built-in types: a custom resource, or a kind
    /// that an embedder compiled in.
    pub custom: bool,
    /// Who owns `status`; `None`: it has no status subresource.
    pub status: Option<StatusRule>,
    /// `openAPIV3Schema` as written, for OpenAPI publishing (custom resources).
    pub open_api: Option<Arc<serde_json::Value>>,
    /// Table columns.
    pub columns: crate::table::Columns,
    /// Fields to select by, beside name and namespace.
    pub selectable: Vec<SelectableField>,
    /// Warning sent with every answer (deprecated versions).
    pub deprecation: Option<String>,
    /// Whether it tracks `metadata.generation`.
    pub tracks_generation: bool,
    /// base64 hash of the storage version (discovery), empty when it has no storage.
    pub storage_version_hash: String,
    /// Its CustomResourceDefinition is being deleted: nothing new may be created.
    pub terminating: bool,
    /// How its stored objects are read; `None` for built-in kinds, whose types never change.
    pub(crate) stored: Option<Stored>,
    /// What the server knows about its kind.
    pub kind: &'static Kind,
}
impl Resource {
    /// Group and resource, as messages name it.
    pub fn group_resource(&self) -> GroupResource {
        GroupResource { group: self.gvk.group.clone(), resource: self.resource.clone() }
    }
    /// Group and kind.
    pub fn group_kind(&self) -> GroupKind {
        self.gvk.group_kind()
    }
    /// Group and version.
    pub fn group_version(&self) -> GroupVersion {
        self.gvk.group_version()
    }
    /// The key of an object.
    pub fn key(&self, namespace: &str, name: &str) -> Bytes {
        keys::key(&self.storage_prefix, self.scope, namespace, name)
    }
    /// Namespace and name in a key of this resource.
    pub fn names<'k>(&self, key: &'k [u8]) -> (&'k str, &'k str) {
        keys::names(self.storage_prefix.len(), self.scope, key)
    }
    /// Group and version that objects are stored in.
    pub fn storage_group_version(&self) -> GroupVersion {
        GroupVersion::new(self.storage_group.clone(), self.storage_version.clone())
    }
    /// A subresource by name.
    pub fn subresource(&self, name: &Subresource) -> Option<&SubresourceRow> {
        self.subresources.iter().find(|s| s.name == *name)
    }
    /// Whether a verb is served on the main endpoint.
    pub fn serves(&self, verb: &Verb) -> bool {
        self.verbs.contains(verb)
    }
}
/// A field that lists and watches can select by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectableField {
    /// The label in a field selector: `spec.nodeName`.
    pub label: Arc<str>,
    /// Where the value is: member names, outermost first.
    pub path: Arc<[Box<str>]>,
    /// Where it is when it is not there.
    pub or_path: Option<Arc<[Box<str>]>>,
    /// The text that stands for an absent value.
    pub absent: &'static str,
}
impl SelectableField {
    /// One whose label is its path.
    pub fn new(label: &str) -> Self {
        Self { label: label.into(), path: names(label), or_path: None, absent: "" }
    }
}
impl From<&Selectable> for SelectableField {
    fn from(field: &Selectable) -> Self {
        Self {
            label: field.label.into(),
            path: names(field.path),
            or_path: (!field.or_path.is_empty()).then(|| names(field.or_path)),
            absent: field.absent,
        }
    }
}
fn names(path: &str) -> Arc<[Box<str>]> {
    path.split('.').map(Box::from).collect()
}
/// What a stored custom object is held to when it is read.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    /// The schema of the storage version.
    pub(crate) schema: TypeSchema,
    /// What was written after this revision was written under this schema, and needs nothing done to it. `u64::MAX` until that
    /// revision is known. Older objects are pruned and defaulted whenever they are read.
    pub(crate) since: Arc<AtomicU64>,
    /// Other versions are made by a conversion webhook, which this registry does not call.
    pub(crate) by_webhook: bool,
}

/// One subresource of a row.
#[derive(Debug, Clone)]
pub struct SubresourceRow {
    /// Its name.
    pub name: Subresource,
    /// Kind of its body.
    pub gvk: GroupVersionKind,
    /// Verbs, in discovery's order.
    pub verbs: Vec<Verb>,
    /// Where a `scale` subresource finds its numbers.
    pub scale: Option<ScalePaths>,
}
/// The paths of a `scale` subresource, as a definition writes them: `.spec.replicas`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScalePaths {
    /// Desired replicas, under `.spec`.
    pub spec_replicas: Arc<str>,
    /// Observed replicas, under `.status`.
    pub status_replicas: Arc<str>,
    /// The selector in its text form, under `.spec` or `.status`. Built-in kinds have none: their `spec.selector` is rendered.
    pub label_selector: Option<Arc<str>>,
}

/// base64 of the first eight bytes of SHA-256 over `group/version/kind` (spec: api-server §1.2).
pub(crate) fn storage_version_hash(group: &str, version: &str, kind: &str) -> String {
    let digest = Sha256::digest(format!("{group}/{version}/{kind}"));
    base64::engine::general_purpose::STANDARD.encode(&digest[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_that_clients_know() {
        assert_eq!(storage_version_hash("", "v1", "Pod"), "xPOwRZ+Yhw8=");
        assert_eq!(storage_version_hash("apps", "v1", "Deployment"), "8aSe+NMegvE=");
    }
}
