//! The versions of a definition as rows.
use crate::catalog::{
    DefinitionSource, Fence, Resource, Routes, ScalePaths, ScaleSelector, Schema, SelectableField,
    Stored, SubresourceRow, storage_version_hash,
};
use crate::conversion::Webhook;
use crate::kind::{self, StatusRule};
use crate::subresource::Subresource;
use crate::table::Columns;
use crate::verb::Verb;
use serde_json::Value;
use setpoint_object::meta::ObjectExt;
use setpoint_object::{GroupVersionKind, Scope, keys};
use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Verbs of a custom resource, in discovery's order.
const VERBS: [Verb; 8] = [
    Verb::Delete,
    Verb::DeleteCollection,
    Verb::Get,
    Verb::List,
    Verb::Patch,
    Verb::Create,
    Verb::Update,
    Verb::Watch,
];
/// Verbs of its subresources.
const SUBRESOURCE_VERBS: [Verb; 3] = [Verb::Get, Verb::Patch, Verb::Update];

/// The rows of the served versions.
pub(super) fn rows(
    definition: &Value,
    source: &Arc<DefinitionSource>,
    stored: &Stored,
) -> Vec<Arc<Resource>> {
    let shared = Shared::of(definition);
    versions(definition)
        .iter()
        .filter(|version| version["served"] == true)
        .map(|version| Arc::new(row(definition, &shared, version, source, stored.clone())))
        .collect()
}

/// The row of the storage version, served or not.
pub(super) fn storage_row(
    definition: &Value,
    source: &Arc<DefinitionSource>,
    stored: Stored,
) -> Arc<Resource> {
    let shared = Shared::of(definition);
    Arc::new(row(definition, &shared, storage_version(definition), source, stored))
}

/// Whether objects of the storage version without `status` are served with a default one.
pub(super) fn has_status_default(definition: &Value) -> bool {
    let version = storage_version(definition);
    let default = version.pointer("/schema/openAPIV3Schema/properties/status/default");
    default.is_some_and(|default| !default.is_null())
}

fn storage_version(definition: &Value) -> &Value {
    let stored = versions(definition).iter().find(|version| version["storage"] == true);
    stored.unwrap_or(&Value::Null)
}

/// How stored objects are read and written.
pub(super) fn stored(
    definition: &Value,
    source: &Arc<DefinitionSource>,
    since: u64,
    fence: Fence,
    retired: Arc<AtomicBool>,
) -> Stored {
    let version = text(storage_version(definition), "name");
    Stored {
        schema: Schema::of_definition(source.clone(), version),
        since,
        webhook: Webhook::of(definition),
        fence,
        retired,
    }
}

/// The key prefix of a definition's objects.
pub(super) fn storage_prefix(definition: &Value) -> Arc<str> {
    let spec = &definition["spec"];
    keys::custom_prefix(text(spec, "group"), text(&spec["names"], "plural")).into()
}

fn versions(definition: &Value) -> &[Value] {
    definition["spec"]["versions"].as_array().map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or("")
}

fn words(value: &Value) -> Arc<[Arc<str>]> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(Arc::from).collect()
}

/// What the rows of a definition have in common: there may be many.
struct Shared<'d> {
    storage_version: &'d str,
    short_names: Arc<[Arc<str>]>,
    categories: Arc<[Arc<str>]>,
    /// Served versions and others, as `apiVersion`s.
    served: Arc<[String]>,
    unserved: Arc<[String]>,
    /// The served version that is preferred to all others that are not deprecated.
    preferred: Option<&'d str>,
}

impl<'d> Shared<'d> {
    fn of(definition: &'d Value) -> Self {
        let (group, names) =
            (text(&definition["spec"], "group"), &definition["status"]["acceptedNames"]);
        let all = versions(definition);
        let api_versions = |is_served: bool| {
            let of = all.iter().filter(|version| (version["served"] == true) == is_served);
            of.map(|version| format!("{group}/{}", text(version, "name"))).collect()
        };
        let current = all.iter().filter(|v| v["served"] == true && v["deprecated"] != true);
        let current = current.map(|version| text(version, "name"));
        Self {
            storage_version: text(storage_version(definition), "name"),
            short_names: words(&names["shortNames"]),
            categories: words(&names["categories"]),
            served: api_versions(true),
            unserved: api_versions(false),
            preferred: current.min_by(|a, b| compare_versions(a, b)),
        }
    }
}

fn row(
    definition: &Value,
    shared: &Shared<'_>,
    version: &Value,
    source: &Arc<DefinitionSource>,
    stored: Stored,
) -> Resource {
    let spec = &definition["spec"];
    // Only accepted names are served: the others keep working if one clashes.
    let names = &definition["status"]["acceptedNames"];
    let group = text(spec, "group");
    let kind = text(names, "kind");
    let gvk = GroupVersionKind::new(group, text(version, "name"), kind);
    let storage_version = shared.storage_version;
    Resource {
        resource: text(names, "plural").into(),
        singular: text(names, "singular").into(),
        list_kind: text(names, "listKind").into(),
        scope: Scope::of(text(spec, "scope") == "Namespaced"),
        verbs: VERBS.to_vec(),
        short_names: shared.short_names.clone(),
        categories: shared.categories.clone(),
        subresources: subresources(&gvk, &version["subresources"]),
        // One schema for both uses, because a version's schema may be large.
        schema: match version["storage"] == true {
            true => stored.schema.clone(),
            false => Schema::of_definition(source.clone(), &gvk.version),
        },
        storage_group: group.into(),
        storage_version: storage_version.into(),
        stored_former: None,
        storage_prefix: storage_prefix(definition),
        versions: shared.served.clone(),
        unserved_versions: shared.unserved.clone(),
        routes: Routes::Dynamic,
        status: (!version["subresources"]["status"].is_null()).then_some(StatusRule::CUSTOM),
        source: Some(source.clone()),
        columns: Columns::custom(&version["additionalPrinterColumns"]),
        selectable: selectable(&version["selectableFields"]),
        deprecation: deprecation(group, shared, version, kind),
        tracks_generation: true,
        storage_version_hash: storage_version_hash(group, storage_version, kind),
        terminating: !definition.deletion_timestamp().is_empty(),
        stored: Some(stored),
        kind: &kind::CUSTOM,
        gvk,
    }
}

fn subresources(gvk: &GroupVersionKind, declared: &Value) -> Vec<SubresourceRow> {
    let verbs = || SUBRESOURCE_VERBS.to_vec();
    let mut list = Vec::new();
    if !declared["status"].is_null() {
        list.push(SubresourceRow {
            name: Subresource::Status,
            gvk: gvk.clone(),
            verbs: verbs(),
            scale: None,
        });
    }
    let scale = &declared["scale"];
    if !scale.is_null() {
        list.push(SubresourceRow {
            name: Subresource::Scale,
            gvk: GroupVersionKind::new("autoscaling", "v1", "Scale"),
            verbs: verbs(),
            scale: Some(ScalePaths {
                spec_replicas: text(scale, "specReplicasPath").into(),
                status_replicas: text(scale, "statusReplicasPath").into(),
                selector: match text(scale, "labelSelectorPath") {
                    "" => ScaleSelector::None,
                    path => ScaleSelector::Text(path.into()),
                },
            }),
        });
    }
    list
}

/// Field-selector labels: paths without the leading dot.
fn selectable(fields: &Value) -> Vec<SelectableField> {
    let paths = fields.as_array().into_iter().flatten().filter_map(|f| f["jsonPath"].as_str());
    paths.map(|path| SelectableField::new(path.strip_prefix('.').unwrap_or(path))).collect()
}

/// The warning of a deprecated version, with a hint to the first newer version that is not
/// deprecated.
fn deprecation(group: &str, shared: &Shared<'_>, version: &Value, kind: &str) -> Option<String> {
    if version["deprecated"] != true {
        return None;
    }
    if let Some(own) = version["deprecationWarning"].as_str() {
        return Some(own.to_owned());
    }
    let name = text(version, "name");
    let newer = shared.preferred.filter(|other| compare_versions(other, name) == Ordering::Less);
    let hint = newer.map(|newer| format!("; use {group}/{newer} {kind}"));
    Some(format!("{group}/{name} {kind} is deprecated{}", hint.unwrap_or_default()))
}

/// Orders versions by Kubernetes' preference: `v2, v1, v1beta1, v3alpha1`, then other names in
/// alphabetical order.
pub fn compare_versions(a: &str, b: &str) -> Ordering {
    match (parse_version(a), parse_version(b)) {
        (Some(a), Some(b)) => b.cmp(&a),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

/// (stability, major, minor): larger values are preferred.
fn parse_version(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (major, rest) = rest.split_at(digits);
    let number = |text: &str| text.parse().ok().filter(|_| !text.starts_with('0'));
    let major = number(major)?;
    if rest.is_empty() {
        return Some((2, major, 0));
    }
    let (stability, minor) = match (rest.strip_prefix("beta"), rest.strip_prefix("alpha")) {
        (Some(minor), _) => (1, minor),
        (None, Some(minor)) => (0, minor),
        (None, None) => return None,
    };
    Some((stability, major, number(minor)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_as_kubernetes_prefers_them() {
        let mut versions =
            ["v3alpha1", "foo1", "v1", "v1beta2", "v10", "v2", "v1beta10", "v11alpha2", "v0"];
        versions.sort_by(|a, b| compare_versions(a, b));
        assert_eq!(
            versions,
            ["v10", "v2", "v1", "v1beta10", "v1beta2", "v11alpha2", "v3alpha1", "foo1", "v0"]
        );
    }
}
