//! The rows of the built-in resources, and the objects a fresh control plane holds.
//!
//! Rows are made once per process from the facts table and shared by every registry: they never change. What changes (custom
//! resources) is a new [`Catalog`] that holds the same rows and some more.
use crate::catalog::{Catalog, Group, Resource, ScalePaths, SelectableField, SubresourceRow};
use crate::kind::{self, Kind};
use crate::subresource::Subresource;
use crate::table::Columns;
use crate::verb::Verb;
use base64::Engine;
use setpoint_object::{GroupVersion, GroupVersionKind, Scope, keys};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

pub(crate) mod objects;

/// The catalog of a registry without custom resources.
pub(crate) fn catalog() -> Arc<Catalog> {
    static BUILT_IN: LazyLock<Arc<Catalog>> = LazyLock::new(|| Arc::new(built_in()));
    BUILT_IN.clone()
}

fn built_in() -> Catalog {
    let mut groups: Vec<Group> = Vec::new();
    let mut rows = BTreeMap::new();
    for fact in setpoint_facts::RESOURCES {
        // A kind whose schema the facts do not carry is not served.
        let schema = setpoint_schema::builtin::type_schema(fact.group, fact.version, fact.kind);
        let (Some(schema), Some(kind)) = (schema, kind::of(fact.group, fact.kind)) else {
            continue;
        };
        let version: Arc<str> = fact.version.into();
        match groups.iter_mut().find(|g| &*g.name == fact.group) {
            Some(group) if group.versions.contains(&version) => {}
            Some(group) => group.versions.push(version),
            None => groups.push(Group {
                name: fact.group.into(),
                versions: vec![version],
                custom: false,
            }),
        }
        let row = row(fact, kind, schema);
        rows.insert(
            (row.gvk.group.clone(), row.gvk.version.clone(), row.resource.clone()),
            Arc::new(row),
        );
    }
    Catalog { generation: 0, groups, rows }
}

fn row(
    fact: &setpoint_facts::Resource,
    kind: &'static Kind,
    schema: setpoint_schema::node::TypeSchema,
) -> Resource {
    let gvk = GroupVersionKind::new(fact.group, fact.version, fact.kind);
    let (storage_group, storage_version) = kind.storage.unwrap_or((fact.group, fact.version));
    // Component statuses can be read and are stored nowhere.
    let stored = fact.serves("get") && fact.serves("watch");
    let words = |words: &[&str]| words.iter().map(|w| Arc::from(*w)).collect::<Vec<Arc<str>>>();
    Resource {
        resource: fact.resource.into(),
        singular: fact.singular.into(),
        list_kind: format!("{}List", fact.kind).into(),
        scope: Scope::of(fact.namespaced),
        verbs: fact.verbs.iter().copied().map(Verb::from).collect(),
        short_names: words(fact.short_names),
        categories: words(fact.categories),
        subresources: fact.subresources.iter().map(subresource).collect(),
        schema,
        storage_group: storage_group.into(),
        storage_version: storage_version.into(),
        storage_prefix: keys::built_in_prefix(fact.group, fact.resource).into(),
        versions: served_versions(fact),
        custom: false,
        open_api: None,
        columns: Columns::built_in(fact.columns, kind.cells),
        selectable: kind.selectable.iter().map(SelectableField::from).collect(),
        deprecation: (!kind.deprecation.is_empty()).then(|| kind.deprecation.to_owned()),
        tracks_generation: fact.generation,
        storage_version_hash: if stored {
            storage_version_hash(storage_group, storage_version, fact.kind)
        } else {
            String::new()
        },
        terminating: false,
        stored: None,
        kind,
        gvk,
    }
}

fn subresource(fact: &setpoint_facts::Subresource) -> SubresourceRow {
    let (group, version, kind) = fact.kind;
    SubresourceRow {
        name: Subresource::from(fact.name),
        gvk: GroupVersionKind::new(group, version, kind),
        verbs: fact.verbs.iter().copied().map(Verb::from).collect(),
        scale: (fact.name == "scale").then(|| ScalePaths {
            spec_replicas: ".spec.replicas".into(),
            status_replicas: ".status.replicas".into(),
            label_selector: None,
        }),
    }
}

/// Served versions of a kind as `apiVersion`s, one object's other faces included (Events are served by two groups).
fn served_versions(fact: &setpoint_facts::Resource) -> Vec<String> {
    let prefix = keys::built_in_prefix(fact.group, fact.resource);
    setpoint_facts::RESOURCES
        .iter()
        .filter(|r| r.kind == fact.kind && keys::built_in_prefix(r.group, r.resource) == prefix)
        .map(|r| GroupVersion::new(r.group, r.version).to_string())
        .collect()
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
