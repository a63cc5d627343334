//! The facts about a served resource that OpenAPI needs, custom or built in.

use super::{Dialect, schema};
use bytes::Bytes;
use setpoint_registry::{Catalog, Resource, Routes, SchemaLanguage, Verb};

/// A group, version and kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Kind<'a> {
    pub(super) group: &'a str,
    pub(super) version: &'a str,
    pub(super) kind: &'a str,
}

/// One served resource.
#[derive(Debug, Clone)]
pub(super) struct Row<'a> {
    pub(super) kind: Kind<'a>,
    pub(super) list_kind: String,
    pub(super) resource: &'a str,
    pub(super) namespaced: bool,
    pub(super) verbs: Vec<&'a str>,
    pub(super) subresources: Vec<Sub<'a>>,
    /// The language of its schema: built-in definitions describe Go types.
    pub(super) language: SchemaLanguage,
    /// It has paths with the deprecated prefix `watch/`.
    pub(super) has_watch_paths: bool,
    /// DELETE returns the last state of the object, not a Status.
    pub(super) returns_deleted: bool,
    /// Its documents name CBOR among the media types.
    pub(super) cbor: bool,
    /// `openAPIV3Schema` as written, in JSON. Parsed when its document is built: all of them as
    /// trees would be large.
    pub(super) open_api: Option<Bytes>,
    /// Its definition has `preserveUnknownFields`.
    pub(super) keeps_unknown_fields: bool,
    /// Field paths that are valid in field selectors (custom resources).
    pub(super) selectable: Vec<&'a str>,
}
/// One subresource.
#[derive(Debug, Clone)]
pub(super) struct Sub<'a> {
    pub(super) name: &'a str,
    pub(super) kind: Kind<'a>,
    pub(super) verbs: Vec<&'a str>,
}

impl<'a> Row<'a> {
    fn of(row: &'a Resource) -> Self {
        Self {
            kind: Kind { group: &row.gvk.group, version: &row.gvk.version, kind: &row.gvk.kind },
            list_kind: row.list_kind.to_string(),
            resource: &row.resource,
            namespaced: row.scope.is_namespaced(),
            verbs: row.verbs.iter().map(|verb| verb.as_str()).collect(),
            subresources: row
                .subresources
                .iter()
                .map(|sub| Sub {
                    name: sub.name.as_str(),
                    kind: Kind {
                        group: &sub.gvk.group,
                        version: &sub.gvk.version,
                        kind: &sub.gvk.kind,
                    },
                    verbs: sub.verbs.iter().map(|verb| verb.as_str()).collect(),
                })
                .collect(),
            language: row.schema.language(),
            has_watch_paths: row.routes == Routes::Installed && row.serves(&Verb::Watch),
            returns_deleted: row.kind.publishes_deleted(),
            cbor: false,
            open_api: row.open_api(),
            keeps_unknown_fields: row.keeps_unknown_fields(),
            selectable: match row.schema.language() {
                SchemaLanguage::GoTypes => Vec::new(),
                SchemaLanguage::OpenApi => row.selectable.iter().map(|f| &*f.label).collect(),
            },
        }
    }
    /// Whether its type is published from its own OpenAPI schema.
    pub(super) fn has_own_schema(&self) -> bool {
        self.language == SchemaLanguage::OpenApi
    }
    pub(super) fn serves(&self, verb: &str) -> bool {
        self.verbs.contains(&verb)
    }
    /// Whether its list is published as a watch, too: those of custom resources are not.
    pub(super) fn watches(&self) -> bool {
        !self.has_own_schema() && self.serves("watch")
    }
    /// The built-in definition of the kind.
    pub(super) fn definition(&self) -> Option<&'static str> {
        schema::of_kind(&self.kind)
    }
    /// The built-in definition of its list.
    pub(super) fn list_definition(&self) -> Option<&'static str> {
        schema::of_kind(&Kind { kind: &self.list_kind, ..self.kind })
    }
    /// The schema name of one of its kinds: its own, its list's or a subresource's.
    pub(super) fn schema_name(&self, kind: &Kind<'_>, dialect: Dialect) -> Option<String> {
        if self.has_own_schema()
            && (kind.group, kind.version) == (self.kind.group, self.kind.version)
        {
            return Some(super::name::reversed(kind, dialect));
        }
        schema::of_kind(kind).map(str::to_owned)
    }
}

/// The served resources of one group version.
pub(super) fn of_group_version<'a>(
    catalog: &'a Catalog,
    group: &'a str,
    version: &'a str,
) -> Vec<Row<'a>> {
    catalog.group_version(group, version).map(|row| Row::of(row)).collect()
}

/// Built-in definitions of a group version that are not a resource's kind: bodies of other groups'
/// subresources (autoscaling's `Scale`, policy's `Eviction`), which `kubectl explain` looks up in
/// their own group.
pub(super) fn used_kinds(group: &str, version: &str) -> Vec<&'static str> {
    setpoint_facts::DEFINITIONS
        .iter()
        .filter(|definition| !definition.name.starts_with(schema::META))
        .filter(|definition| definition.kinds.iter().any(|&(g, v, _)| (g, v) == (group, version)))
        .map(|definition| definition.name)
        .collect()
}
