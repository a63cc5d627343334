//! Served resources as data: built-in rows and custom rows in one immutable table. A change of a
//! CRD makes a new table.
mod schema;

pub use schema::{Schema, SchemaLanguage};

pub(crate) use schema::{DefinitionSource, too_large};

use crate::features::Release;
use crate::foreign::{self, Former, Formers};
use crate::kind::{Kind, Selectable, StatusRule};
use crate::subresource::Subresource;
use crate::verb::Verb;
use base64::Engine;
use bytes::Bytes;
use setpoint_object::{
    ApiError, GroupKind, GroupResource, GroupVersion, GroupVersionKind, Scope, keys,
};
use setpoint_store::{Compare, Revision};
use sha2::{Digest, Sha256};
use std::borrow::{Borrow, Cow};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{self, AtomicBool};

/// All resources that are served at one moment. Immutable; cheap to share.
#[derive(Debug, Default)]
pub struct Catalog {
    /// Increases by one with every change.
    pub generation: u64,
    /// Groups in discovery order; each with its versions in priority order.
    pub groups: Vec<Group>,
    /// Rows by group, version, resource.
    pub rows: BTreeMap<RowKey, Arc<Resource>>,
}
/// Group, version and plural name of a row.
pub type RowKey = (Arc<str>, Arc<str>, Arc<str>);
/// The name of a row, borrowed, so that a catalog lookup (one per request) does not allocate.
trait RowName {
    fn parts(&self) -> (&str, &str, &str);
}
impl RowName for RowKey {
    fn parts(&self) -> (&str, &str, &str) {
        (&self.0, &self.1, &self.2)
    }
}
impl RowName for (&str, &str, &str) {
    fn parts(&self) -> (&str, &str, &str) {
        *self
    }
}
impl<'a> Borrow<dyn RowName + 'a> for RowKey {
    fn borrow(&self) -> &(dyn RowName + 'a) {
        self
    }
}
impl PartialEq for dyn RowName + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}
impl Eq for dyn RowName + '_ {}
impl PartialOrd for dyn RowName + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for dyn RowName + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        self.parts().cmp(&other.parts())
    }
}
/// A served group.
#[derive(Debug, Clone)]
pub struct Group {
    /// Name; empty for the core group.
    pub name: Arc<str>,
    /// Versions, preferred first.
    pub versions: Vec<Arc<str>>,
    /// The routes of its paths. [`Routes::Dynamic`] if it contains custom resources only.
    pub routes: Routes,
}
/// How kube-apiserver routes a resource. It decides the answers to paths and methods that are not
/// served.
///
/// | request                                  | `Installed`         | `Dynamic`                 |
/// |------------------------------------------|---------------------|---------------------------|
/// | unknown version, resource or scope       | 404 `Status`        | 404 in plain text         |
/// | unknown subresource                      | 404 of the path     | 404 of the object         |
/// | verb that is not served                  | 405                 | 405 that names the verb   |
/// | HEAD                                     | 405                 | as GET                    |
/// | the deprecated prefix `watch/`           | documented          | not documented            |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Routes {
    /// One route for each path and method: built-in kinds.
    Installed,
    /// One handler of all paths, which looks up the resource: custom resources, and kinds that an
    /// embedder compiled in.
    Dynamic,
}
impl Catalog {
    /// The versions that a kube-apiserver stores although they are not served here, and which of
    /// them it stores where the oldest of the servers is of this release.
    pub(crate) fn formers(&self, oldest: Release) -> Formers {
        let of_row = |row: &Arc<Resource>| {
            let row = row.clone();
            let formers = row.kind.formers.iter();
            formers.map(move |former| Former {
                prefix: row.storage_prefix.clone(),
                api_version: GroupVersion::new(row.storage_group.clone(), former.version)
                    .to_string(),
                present: row.storage_group_version().to_string(),
                same_messages: former.same_messages,
                restore: former.restore.filter(|_| former.is_stored(oldest)),
                convert: former.convert,
            })
        };
        foreign::sorted(self.rows.values().flat_map(of_row).collect())
    }
    /// The row of a resource.
    pub fn get(&self, group: &str, version: &str, resource: &str) -> Option<&Arc<Resource>> {
        self.rows.get(&(group, version, resource) as &dyn RowName)
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
        let first: RowKey = (group.clone(), version.clone(), "".into());
        let rows = self.rows.range(first..);
        rows.take_while(move |((g, v, _), _)| *g == group && *v == version).map(|(_, row)| row)
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
    pub short_names: Arc<[Arc<str>]>,
    /// Categories.
    pub categories: Arc<[Arc<str>]>,
    /// Subresources.
    pub subresources: Vec<SubresourceRow>,
    /// The schema of this version.
    pub schema: Schema,
    /// The group objects are stored in.
    pub storage_group: Arc<str>,
    /// The version objects are stored in.
    pub storage_version: Arc<str>,
    /// The version that a kube-apiserver stores, if it is one of the kind's former ones.
    pub(crate) stored_former: Option<&'static str>,
    /// Key prefix in the store, with a trailing slash: `/registry/configmaps/`.
    pub storage_prefix: Arc<str>,
    /// Served versions of the kind, as `apiVersion`s: `apps/v1`.
    pub versions: Arc<[String]>,
    /// Versions that the kind has but that are not served. Entries of managedFields may have them.
    pub unserved_versions: Arc<[String]>,
    /// How its paths are routed.
    pub routes: Routes,
    /// Which endpoint writes `status`; `None` without a status subresource.
    pub status: Option<StatusRule>,
    /// The definition that the row was made from (custom resources).
    pub(crate) source: Option<Arc<DefinitionSource>>,
    /// Table columns.
    pub columns: crate::table::Columns,
    /// Fields to select by, besides name and namespace.
    pub selectable: Vec<SelectableField>,
    /// Warning in every answer (deprecated versions).
    pub deprecation: Option<String>,
    /// Whether the server maintains `metadata.generation`.
    pub tracks_generation: bool,
    /// base64 hash of the storage version (discovery); empty for a resource that is not stored.
    pub storage_version_hash: String,
    /// Its CustomResourceDefinition is being deleted: creates are refused.
    pub terminating: bool,
    /// How its stored objects are read; `None` for built-in kinds, whose types never change.
    pub(crate) stored: Option<Stored>,
    /// The kind's strategy: its defaults, validation and other code.
    pub kind: &'static Kind,
}
impl Resource {
    /// The release that does not have this version of a built-in kind any more, if the warning of
    /// its deprecation names one.
    pub fn removed_release(&self) -> Option<&str> {
        let text = self.deprecation.as_deref().filter(|_| self.source.is_none())?;
        let (_, rest) = text.split_once("unavailable in v")?;
        rest.split_once('+').map(|(release, _)| release)
    }
    /// The versions of the kind, served or not.
    pub(crate) fn all_versions(&self) -> Cow<'_, [String]> {
        match self.unserved_versions.is_empty() {
            true => Cow::Borrowed(&self.versions),
            false => {
                let all = self.versions.iter().chain(&*self.unserved_versions);
                Cow::Owned(all.cloned().collect())
            }
        }
    }
    /// Group and resource, as messages name them.
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
    /// Group and version that a kube-apiserver stores, as discovery and StorageVersions tell. If it
    /// is another one than [`storage_group_version`](Self::storage_group_version), only a shared
    /// store has it.
    pub fn encoding(&self) -> GroupVersion {
        let version = self.stored_former.unwrap_or(&self.storage_version);
        GroupVersion::new(self.storage_group.clone(), version)
    }
    /// Whether it is a built-in kind that is stored.
    pub fn is_stored_built_in(&self) -> bool {
        self.source.is_none() && !self.storage_version_hash.is_empty()
    }
    /// `openAPIV3Schema` of this version as it was written, in JSON. `None` for built-in kinds, for
    /// definitions without one, and if it has no structure, which another program has accepted.
    pub fn open_api(&self) -> Option<Bytes> {
        self.source.as_ref()?.structural_open_api(&self.gvk.version)
    }
    /// Whether its definition has `preserveUnknownFields`, which only another program accepts.
    pub fn keeps_unknown_fields(&self) -> bool {
        self.source.as_ref().is_some_and(|source| source.keeps_all())
    }
    /// Identifies the definition that the row was made from and its generation:
    /// `<uid>/<generation>`. Two rows of the same name with the same identity and the same accepted
    /// names have the same schema. Empty for built-in kinds.
    pub fn definition_identity(&self) -> String {
        self.source.as_ref().map(|source| source.identity()).unwrap_or_default()
    }
    /// Whether a newer row has replaced it, so that no new watch may use it.
    pub(crate) fn is_retired(&self) -> bool {
        // Relaxed: the lock of the resource's cache is taken between the store and the load.
        self.stored.as_ref().is_some_and(|stored| stored.retired.load(atomic::Ordering::Relaxed))
    }
    /// Its schemas: that of this version, and that of the storage version if it is another one.
    pub(crate) fn schemas(&self) -> impl Iterator<Item = &Schema> {
        [&self.schema].into_iter().chain(self.stored.as_ref().map(|stored| &stored.schema))
    }
    /// Whether its type is one of kube-apiserver's Go types. Only these have protobuf and strategic
    /// merge patches, refuse values of another type, and have zero values for missing fields. Other
    /// objects are trees that say themselves what they are, and that an OpenAPI schema validates.
    pub fn has_go_type(&self) -> bool {
        self.schema.language() == SchemaLanguage::GoTypes
    }
    /// The error for a subresource that the row does not have.
    pub fn no_subresource(&self, name: &str) -> ApiError {
        match self.routes {
            Routes::Installed => ApiError::no_route(),
            Routes::Dynamic => ApiError::not_found(&self.group_resource(), name),
        }
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
    /// The fallback path if the value is missing at `path`.
    pub or_path: Option<Arc<[Box<str>]>>,
    /// The text used for a missing value.
    pub absent: &'static str,
}
impl SelectableField {
    /// A field whose label is its path.
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
/// How the stored objects of a custom resource are read and written.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    /// The schema of the storage version.
    pub(crate) schema: Schema,
    /// Objects written after this revision were written under this schema and are served unchanged.
    /// Older ones are pruned and defaulted on every read. `u64::MAX`: all objects are.
    pub(crate) since: u64,
    /// The conversion webhook that makes the other versions.
    pub(crate) webhook: Option<Arc<crate::conversion::Webhook>>,
    /// Compared by every write of an object.
    pub(crate) fence: Fence,
    /// Set when rows with another schema replace these.
    pub(crate) retired: Arc<AtomicBool>,
}
/// The store key that orders writes of custom objects with changes of their definition.
///
/// It is written before rows of a new generation are served. A write that was prepared with an
/// older row compares an older revision, so the store refuses it. Therefore every object with a
/// revision after the fence's was written under the fence's schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fence {
    /// Its key.
    pub(crate) key: Bytes,
    /// The revision it was written at.
    pub(crate) revision: Revision,
}
impl Fence {
    /// True while the rows with this fence are the newest.
    pub(crate) fn compare(&self) -> Compare {
        Compare::Modified(self.key.clone(), self.revision)
    }
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
    /// The paths of a `scale` subresource.
    pub scale: Option<ScalePaths>,
}
/// The paths of a `scale` subresource, as a definition writes them: `.spec.replicas`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScalePaths {
    /// Desired replicas, under `.spec`.
    pub spec_replicas: Arc<str>,
    /// Observed replicas, under `.status`.
    pub status_replicas: Arc<str>,
    /// The source of the selector in its text form.
    pub selector: ScaleSelector,
}
/// The source of the selector of a `scale` subresource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScaleSelector {
    /// The Scale has none.
    None,
    /// A text at a path under `.spec` or `.status`.
    Text(Arc<str>),
    /// The label selector at `.spec.selector`, which is rendered.
    Rendered,
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
    fn storage_version_hashes_are_those_of_kubernetes() {
        assert_eq!(storage_version_hash("", "v1", "Pod"), "xPOwRZ+Yhw8=");
        assert_eq!(storage_version_hash("apps", "v1", "Deployment"), "8aSe+NMegvE=");
    }
}
