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
    versions(definition)
        .iter()
        .filter(|version| version["served"] == true)
        .map(|version| Arc::new(row(definition, version, source, stored.clone())))
        .collect()
}

/// The row of the storage version, served or not.
pub(super) fn storage_row(
    definition: &Value,
    source: &Arc<DefinitionSource>,
    stored: Stored,
) -> Arc<Resource> {
    Arc::new(row(definition, storage_version(definition), source, stored))
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

fn words(value: &Value) -> Vec<Arc<str>> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(Arc::from).collect()
}

fn row(
    definition: &Value,
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
    let storage_version = text(storage_version(definition), "name");
    let (served, unserved): (Vec<&Value>, Vec<&Value>) =
        versions(definition).iter().partition(|version| version["served"] == true);
    let api_versions = |versions: Vec<&Value>| {
        versions.into_iter().map(|version| format!("{group}/{}", text(version, "name"))).collect()
    };
    Resource {
        resource: text(names, "plural").into(),
        singular: text(names, "singular").into(),
        list_kind: text(names, "listKind").into(),
        scope: Scope::of(text(spec, "scope") == "Namespaced"),
        verbs: VERBS.to_vec(),
        short_names: words(&names["shortNames"]),
        categories: words(&names["categories"]),
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
        versions: api_versions(served),
        unserved_versions: api_versions(unserved),
        routes: Routes::Dynamic,
        status: (!version["subresources"]["status"].is_null()).then_some(StatusRule::CUSTOM),
        source: Some(source.clone()),
        columns: Columns::custom(&version["additionalPrinterColumns"]),
        selectable: selectable(&version["selectableFields"]),
        deprecation: deprecation(definition, version, kind),
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
fn deprecation(definition: &Value, version: &Value, kind: &str) -> Option<String> {
    if version["deprecated"] != true {
        return None;
    }
    if let Some(own) = version["deprecationWarning"].as_str() {
        return Some(own.to_owned());
    }
    let (group, name) = (text(&definition["spec"], "group"), text(version, "name"));
    let mut newer: Vec<&str> = versions(definition)
        .iter()
        .filter(|other| other["served"] == true && other["deprecated"] != true)
        .map(|other| text(other, "name"))
        .filter(|other| compare_versions(other, name) == Ordering::Less)
        .collect();
    newer.sort_by(|a, b| compare_versions(a, b));
    let hint = newer.first().map(|newer| format!("; use {group}/{newer} {kind}"));
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
