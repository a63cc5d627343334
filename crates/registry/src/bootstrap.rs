//! The rows of the built-in resources, and the objects of a fresh control plane.
//!
//! Rows are made once per process from the facts table, never change, and are shared by every
//! registry. A change of custom resources makes a new [`Catalog`] that holds the same built-in rows
//! and more.
use crate::catalog::{
    Catalog, DefinitionSource, Group, Resource, Routes, ScalePaths, ScaleSelector, Schema,
    SelectableField, SubresourceRow, storage_version_hash,
};
use crate::features::{Emulation, Release};
use crate::kind::{self, CompiledKind, Kind};
use crate::subresource::Subresource;
use crate::table::Columns;
use crate::verb::Verb;
use setpoint_object::{GroupVersion, GroupVersionKind, Scope, keys};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

pub(crate) mod absent_roles;
pub(crate) mod objects;
pub(crate) mod template;

/// The catalog of a registry without custom resources: every built-in resource in its stable
/// versions.
pub(crate) fn catalog() -> Arc<Catalog> {
    static BUILT_IN: LazyLock<Arc<Catalog>> = LazyLock::new(|| {
        Arc::new(built_in(&setpoint_facts::Resource::is_stable, Emulation::PRESENT))
    });
    BUILT_IN.clone()
}

/// The catalog of the built-in resources that `serves` chooses, as a release has them, or of
/// [`catalog`] without it, with kinds that an embedder compiled in.
///
/// # Panics
///
/// Two kinds would be served under the same group, version and resource.
pub(crate) fn catalog_with(
    kinds: &[CompiledKind],
    serves: Option<(&Serves<'_>, Emulation)>,
) -> Arc<Catalog> {
    let built_in = serves.map_or_else(catalog, |(serves, of)| Arc::new(built_in(serves, of)));
    if kinds.is_empty() {
        return built_in;
    }
    let mut groups = built_in.groups.clone();
    let mut rows = built_in.rows.clone();
    for compiled in kinds {
        let row = compiled_row(compiled);
        let (group, version) = (row.gvk.group.clone(), row.gvk.version.clone());
        match groups.iter_mut().find(|known| known.name == group) {
            Some(known) if known.versions.contains(&version) => {}
            Some(known) => known.versions.push(version.clone()),
            None => groups.push(Group {
                name: group.clone(),
                versions: vec![version.clone()],
                routes: Routes::Dynamic,
            }),
        }
        let former = rows.insert((group, version, row.resource.clone()), Arc::new(row));
        assert!(former.is_none(), "{} is served twice", compiled.resource);
    }
    Arc::new(Catalog { generation: 0, groups, rows })
}

/// Verbs of a compiled-in kind, in discovery's order.
const VERBS: [&str; 8] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

fn compiled_row(compiled: &CompiledKind) -> Resource {
    let CompiledKind { kind, version, resource, schema, .. } = compiled;
    let gvk = GroupVersionKind::new(kind.group, version.as_str(), kind.kind);
    let words = |words: &[String]| words.iter().map(|w| Arc::from(w.as_str())).collect();
    let subresource = |name: &str| SubresourceRow {
        name: Subresource::from(name),
        gvk: gvk.clone(),
        verbs: ["get", "patch", "update"].map(Verb::from).to_vec(),
        scale: None,
    };
    let parts = kind.parts.iter().map(|part| subresource(part.subresource));
    let subresources = parts.chain(kind.status.map(|_| subresource("status"))).collect();
    Resource {
        resource: resource.as_str().into(),
        singular: kind.kind.to_lowercase().into(),
        list_kind: format!("{}List", kind.kind).into(),
        scope: compiled.scope,
        verbs: VERBS.map(Verb::from).to_vec(),
        short_names: words(&compiled.short_names),
        categories: words(&compiled.categories),
        subresources,
        schema: Schema::open_api(setpoint_schema::crd::type_schema(schema)),
        storage_group: kind.group.into(),
        storage_version: version.as_str().into(),
        stored_former: None,
        storage_prefix: keys::custom_prefix(kind.group, resource).into(),
        versions: [gvk.group_version().to_string()].into(),
        unserved_versions: Arc::default(),
        routes: Routes::Dynamic,
        status: kind.status,
        source: Some(DefinitionSource::compiled(version, schema).into()),
        columns: Columns::printed(compiled.headings.clone(), kind.cells),
        selectable: kind.selectable.iter().map(SelectableField::from).collect(),
        deprecation: (!kind.deprecation.is_empty()).then(|| kind.deprecation.to_owned()),
        tracks_generation: true,
        storage_version_hash: storage_version_hash(kind.group, version, kind.kind),
        terminating: false,
        stored: None,
        kind,
        gvk,
    }
}

/// Whether a built-in resource is served.
pub(crate) type Serves<'a> = dyn Fn(&setpoint_facts::Resource) -> bool + 'a;

fn built_in(serves: &Serves<'_>, emulation: Emulation) -> Catalog {
    let mut groups: Vec<Group> = Vec::new();
    let mut rows = BTreeMap::new();
    for fact in setpoint_facts::RESOURCES.iter().filter(|fact| serves(fact)) {
        // Kinds without a schema in the facts are not served.
        let schema = setpoint_schema::builtin::type_schema(fact.group, fact.version, fact.kind);
        let (Some(schema), Some(kind)) = (schema, kind::of(fact.group, fact.kind)) else {
            continue;
        };
        // Kinds that are not stored (reviews) are served only if the kind has an action for them.
        if !fact.serves("get") && kind.actions.is_empty() {
            continue;
        }
        let version: Arc<str> = fact.version.into();
        match groups.iter_mut().find(|g| &*g.name == fact.group) {
            Some(group) if group.versions.contains(&version) => {}
            Some(group) => group.versions.push(version),
            None => groups.push(Group {
                name: fact.group.into(),
                versions: vec![version],
                routes: Routes::Installed,
            }),
        }
        let row = row(fact, (kind, emulation), schema, versions(fact, serves));
        rows.insert(
            (row.gvk.group.clone(), row.gvk.version.clone(), row.resource.clone()),
            Arc::new(row),
        );
    }
    Catalog { generation: 0, groups, rows }
}

/// Whether a release warns of a deprecation, whose text says since when it should.
fn has_begun(warning: &str, release: Release) -> bool {
    let since = warning.split_once("deprecated in v1.").and_then(|(_, rest)| rest.split_once('+'));
    since.and_then(|(minor, _)| minor.parse().ok()).is_none_or(|minor: u8| minor <= release.minor())
}

fn row(
    fact: &setpoint_facts::Resource,
    (kind, emulation): (&'static Kind, Emulation),
    schema: setpoint_schema::node::TypeSchema,
    (versions, unserved_versions): (Vec<String>, Vec<String>),
) -> Resource {
    let gvk = GroupVersionKind::new(fact.group, fact.version, fact.kind);
    let (storage_group, storage_version) = kind.storage.unwrap_or((fact.group, fact.version));
    let stored_former = kind.stored_former(emulation.min_compatibility());
    // Component statuses are readable but not stored.
    let stored = fact.serves("get") && fact.serves("watch");
    let words = |words: &[&str]| words.iter().map(|w| Arc::from(*w)).collect::<Arc<[Arc<str>]>>();
    Resource {
        resource: fact.resource.into(),
        singular: fact.singular.into(),
        list_kind: format!("{}List", fact.kind).into(),
        scope: Scope::of(fact.namespaced),
        verbs: fact.verbs.iter().copied().map(Verb::from).collect(),
        short_names: words(fact.short_names),
        categories: words(fact.categories),
        subresources: fact
            .subresources
            .iter()
            .filter(|fact| is_answered(fact, kind))
            .map(subresource)
            .collect(),
        schema: schema.into(),
        storage_group: storage_group.into(),
        storage_version: storage_version.into(),
        stored_former,
        storage_prefix: keys::built_in_prefix(fact.group, fact.resource).into(),
        versions: versions.into(),
        unserved_versions: unserved_versions.into(),
        routes: Routes::Installed,
        status: kind.status,
        source: None,
        columns: Columns::built_in(fact.columns, kind.cells),
        selectable: kind.selectable.iter().map(SelectableField::from).collect(),
        deprecation: [fact.deprecation, kind.deprecation]
            .into_iter()
            .find(|warning| !warning.is_empty())
            .filter(|warning| has_begun(warning, emulation.release()))
            .map(str::to_owned),
        tracks_generation: fact.generation,
        storage_version_hash: if stored {
            let version = stored_former.unwrap_or(storage_version);
            storage_version_hash(storage_group, version, fact.kind)
        } else {
            String::new()
        },
        terminating: false,
        stored: None,
        kind,
        gvk,
    }
}

/// Whether a subresource is served. A subresource with create only is an action of its kind, or a
/// stream to a node, a Service or a pod.
fn is_answered(fact: &setpoint_facts::Subresource, kind: &Kind) -> bool {
    fact.verbs.iter().any(|verb| *verb != "create")
        || kind.actions.iter().any(|(name, _)| *name == fact.name)
        || Subresource::from(fact.name).is_connect()
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
            selector: ScaleSelector::Rendered,
        }),
    }
}

/// The served versions of a kind and the others, as `apiVersion`s, including those of other groups
/// (two groups serve Events).
fn versions(fact: &setpoint_facts::Resource, serves: &Serves<'_>) -> (Vec<String>, Vec<String>) {
    let prefix = keys::built_in_prefix(fact.group, fact.resource);
    let (served, unserved): (Vec<_>, Vec<_>) = setpoint_facts::RESOURCES
        .iter()
        .filter(|r| r.kind == fact.kind && keys::built_in_prefix(r.group, r.resource) == prefix)
        .partition(|r| serves(r));
    let api_versions = |rows: Vec<&setpoint_facts::Resource>| {
        rows.into_iter().map(|r| GroupVersion::new(r.group, r.version).to_string()).collect()
    };
    (api_versions(served), api_versions(unserved))
}
