//! The legacy documents: `APIVersions`, `APIGroupList`, `APIGroup`, `APIResourceList`.

use serde_json::{Map, Value, json};
use setpoint_object::{GroupVersion, GroupVersionKind};
use setpoint_registry::catalog::Group;
use setpoint_registry::{Catalog, Verb};

/// `/api`. `address` is the server's own `host:port`.
pub(crate) fn api_versions(catalog: &Catalog, address: &str) -> Value {
    let versions: Vec<&str> = catalog
        .group("")
        .map(|group| group.versions.iter().map(|version| &**version).collect())
        .unwrap_or_default();
    json!({
        "kind": "APIVersions",
        "versions": versions,
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    })
}

/// `/apis`: every group except the core group.
pub(crate) fn api_groups(groups: &[Group]) -> Value {
    let groups: Vec<Value> =
        groups.iter().filter(|group| !group.name.is_empty()).map(group_members).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/{group}`.
pub(crate) fn api_group(group: &Group) -> Value {
    let mut document = json!({"kind": "APIGroup", "apiVersion": "v1"});
    if let (Value::Object(document), Value::Object(members)) = (&mut document, group_members(group))
    {
        document.extend(members);
    }
    document
}

fn group_members(group: &Group) -> Value {
    let versions: Vec<Value> = group
        .versions
        .iter()
        .map(|version| {
            let group_version = GroupVersion::new(group.name.clone(), version.clone()).to_string();
            json!({"groupVersion": group_version, "version": &**version})
        })
        .collect();
    let preferred = versions.first().cloned().unwrap_or_default();
    json!({"name": &*group.name, "versions": versions, "preferredVersion": preferred})
}

/// `/api/v1`, `/apis/{group}/{version}`: one entry per resource and per subresource.
pub(crate) fn api_resources(catalog: &Catalog, group: &str, version: &str) -> Value {
    let group_version = GroupVersion::new(group, version);
    let mut resources = Vec::new();
    for row in catalog.group_version(group, version) {
        let mut entry =
            entry(&row.resource, &row.gvk, &group_version, row.scope.is_namespaced(), &row.verbs);
        entry.insert("singularName".into(), (&*row.singular).into());
        if !row.short_names.is_empty() {
            entry.insert("shortNames".into(), words(&row.short_names));
        }
        if !row.categories.is_empty() {
            entry.insert("categories".into(), words(&row.categories));
        }
        if !row.storage_version_hash.is_empty() {
            entry.insert("storageVersionHash".into(), row.storage_version_hash.as_str().into());
        }
        resources.push(Value::Object(entry));
        for sub in &row.subresources {
            let name = format!("{}/{}", row.resource, sub.name);
            let entry =
                self::entry(&name, &sub.gvk, &group_version, row.scope.is_namespaced(), &sub.verbs);
            resources.push(Value::Object(entry));
        }
    }
    let mut document = Map::new();
    document.insert("kind".into(), "APIResourceList".into());
    // The core group's list has no `apiVersion`.
    if !group.is_empty() {
        document.insert("apiVersion".into(), "v1".into());
    }
    document.insert("groupVersion".into(), group_version.to_string().into());
    document.insert("resources".into(), resources.into());
    Value::Object(document)
}

fn entry(
    name: &str,
    gvk: &GroupVersionKind,
    list: &GroupVersion,
    namespaced: bool,
    verbs: &[Verb],
) -> Map<String, Value> {
    let mut entry = Map::new();
    entry.insert("name".into(), name.into());
    entry.insert("singularName".into(), "".into());
    entry.insert("namespaced".into(), namespaced.into());
    if gvk.group != list.group || gvk.version != list.version {
        entry.insert("group".into(), (&*gvk.group).into());
        entry.insert("version".into(), (&*gvk.version).into());
    }
    entry.insert("kind".into(), (&*gvk.kind).into());
    entry.insert("verbs".into(), words(verbs));
    entry
}

/// Strings as a JSON list.
pub(super) fn words(words: &[impl AsRef<str>]) -> Value {
    words.iter().map(|word| Value::from(word.as_ref())).collect()
}
