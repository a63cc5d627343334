//! Generated data about the built-in Kubernetes types.
//!
//! Two tables of plain data: [`DEFINITIONS`], the fields of types, and [`RESOURCES`], the served
//! resources. Both are `static`: nothing is read, parsed or allocated at start, and this crate has
//! no logic but the look-up of fields and kinds by their names. `cargo xtask facts` generates them
//! from the published schemas of one Kubernetes release, from the Go declarations of the fields and
//! from the release's discovery. To change the tables, change the generator.
//!
//! Definitions refer to one another by index ([`Type::Ref`]), so recursive types
//! (`JSONSchemaProps`) need no special case.
//!
//! This crate knows nothing of schemas, HTTP or objects, and has no dependencies.

mod build;
mod lookup;
#[rustfmt::skip]
mod generated;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::LazyLock;

pub use generated::{DEFINITIONS, RESOURCES};
pub use lookup::{FIELDS_MAX, Lookup};

/// One named definition of the published schemas.
#[derive(Debug)]
pub struct Definition {
    /// Reverse-domain name, such as `io.k8s.api.core.v1.PodSpec`.
    pub name: &'static str,
    /// Its shape: [`Type::Object`] for a struct, the scalar for `Quantity`, `Time` and similar
    /// types, [`Type::Any`] for free-form JSON.
    pub ty: Type,
    /// Fields, sorted by name.
    pub fields: &'static [Field],
    /// Required fields.
    pub required: &'static [&'static str],
    /// `x-kubernetes-map-type: atomic`: apply treats the struct as one value.
    pub atomic: bool,
    /// The kinds that this is the body of: (group, version, kind), in served group versions only.
    pub kinds: &'static [(&'static str, &'static str, &'static str)],
    /// `format` (`date-time` for the times).
    pub format: &'static str,
    /// Indices of the fields that exist in protobuf, sorted by `Facts::protobuf`, so that fields of
    /// one message are adjacent.
    pub protobuf: &'static [u8],
    /// The fields by name: see [`Definition::position`].
    pub lookup: Lookup,
}
impl Definition {
    /// The position of a field in [`Definition::fields`], by its name on the wire.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.lookup.position(self.fields, name)
    }

    /// A field by its name on the wire.
    pub fn field(&self, name: &str) -> Option<&'static Field> {
        let fields: &'static [Field] = self.fields;
        self.position(name).and_then(|at| fields.get(at))
    }
}

/// One field: its name, and its facts.
#[derive(Debug)]
pub struct Field {
    /// Name on the wire.
    pub name: &'static str,
    /// The rest, which is one value for the fields that are alike: there are 3,124 fields, and
    /// 1,314 such values.
    pub facts: &'static Facts,
}
impl Deref for Field {
    type Target = Facts;
    fn deref(&self) -> &Facts {
        self.facts
    }
}

/// What is known of a field, apart from its name.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Facts {
    /// Type.
    pub ty: Type,
    /// `x-kubernetes-list-type`; empty if not given, which means `atomic`.
    pub list_type: &'static str,
    /// `x-kubernetes-list-map-keys`.
    pub list_map_keys: &'static [&'static str],
    /// `x-kubernetes-map-type: atomic` on the field itself.
    pub atomic: bool,
    /// `x-kubernetes-map-type: granular` on the field itself: merges member by member even if its
    /// type's definition is atomic.
    pub granular: bool,
    /// `x-kubernetes-patch-strategy`, comma separated.
    pub patch_strategy: &'static str,
    /// `x-kubernetes-patch-merge-key`.
    pub merge_key: &'static str,
    /// Declared default as JSON text; empty if none.
    pub default: &'static str,
    /// `format` of the field, or of its items if it is a list of scalars.
    pub format: &'static str,
    /// How the field is encoded if no value was given.
    pub presence: Presence,
    /// Position in the declared order of the struct, in which the API writes built-in types (255:
    /// unknown).
    pub order: u8,
    /// Number in the protobuf message, preceded by the numbers of the enclosing messages: JSON
    /// inlines the members of some messages (`Volume.hostPath` is `volumeSource.hostPath`, `[2,
    /// 1]`). Empty: not in protobuf, or unknown.
    pub protobuf: &'static [u8],
}

/// How a field is encoded if no value, or the zero value of its type, was given.
///
/// Zero values: `""`, `0`, `false`, `"0"` (quantity), `{}` with its own always-written fields
/// (struct), `null` (list, map, time, any).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Presence {
    /// Omitted if it has its zero value, given or not. Empty lists and maps are omitted too.
    Omitted,
    /// Omitted if absent. A given zero value is written (`replicas: 0`, `securityContext: {}`).
    Pointer,
    /// Always written, with its zero value if absent (`status: {}`, `resources: {}`,
    /// `lastTransitionTime: ""`).
    Always,
    /// Always written, as `null` if absent (`containers: null`, `eventTime: null`).
    Null,
}

/// The type of a field, list item or map value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Type {
    /// A string.
    Str,
    /// An integer; `Facts::format` is `int32` or `int64`.
    Int,
    /// A number.
    Num,
    /// A boolean.
    Bool,
    /// An integer or a string (`io.k8s.apimachinery.pkg.util.intstr.IntOrString`).
    IntOrString,
    /// A quantity (`io.k8s.apimachinery.pkg.api.resource.Quantity`).
    Quantity,
    /// RFC 3339, seconds (`io.k8s.apimachinery.pkg.apis.meta.v1.Time`).
    Time,
    /// RFC 3339, microseconds (`io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime`).
    MicroTime,
    /// Base64.
    Bytes,
    /// Untyped JSON.
    Any,
    /// An object without declared fields.
    Object,
    /// Index into [`DEFINITIONS`].
    Ref(u16),
    /// A list of this.
    List(&'static Type),
    /// A map from strings to this.
    Map(&'static Type),
}

/// One built-in resource in one version.
#[derive(Debug)]
pub struct Resource {
    /// API group, empty for the core group.
    pub group: &'static str,
    /// Served version.
    pub version: &'static str,
    /// Plural name.
    pub resource: &'static str,
    /// Singular name.
    pub singular: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Whether it is namespaced; otherwise it is cluster-scoped.
    pub namespaced: bool,
    /// The warning of a deprecated version; empty: none.
    pub deprecation: &'static str,
    /// The feature gate that it needs; empty: none.
    pub gate: &'static str,
    /// Verbs of the main endpoint, alphabetical as discovery lists them.
    pub verbs: &'static [&'static str],
    /// Short names.
    pub short_names: &'static [&'static str],
    /// Categories.
    pub categories: &'static [&'static str],
    /// Subresources, alphabetical.
    pub subresources: &'static [Subresource],
    /// Whether the kind tracks `metadata.generation`.
    pub generation: bool,
    /// Table columns; empty for kinds that are never printed, such as reviews.
    pub columns: &'static [Column],
}
impl Resource {
    /// Whether it has a stable version: kube-apiserver serves alpha and beta versions only if it is
    /// told to.
    pub fn is_stable(&self) -> bool {
        !self.version.contains("alpha") && !self.version.contains("beta")
    }
    /// Whether the main endpoint serves a verb.
    pub fn serves(&self, verb: &str) -> bool {
        self.verbs.contains(&verb)
    }
}

/// One subresource.
#[derive(Debug)]
pub struct Subresource {
    /// Name: `status`, `scale`, …
    pub name: &'static str,
    /// (group, version, kind) of its body.
    pub kind: (&'static str, &'static str, &'static str),
    /// Verbs, alphabetical.
    pub verbs: &'static [&'static str],
}

/// One Table column.
#[derive(Debug)]
pub struct Column {
    /// Heading.
    pub name: &'static str,
    /// `string`, `integer`, `boolean` or `date`.
    pub ty: &'static str,
    /// `name` for the column with the object's name, otherwise empty.
    pub format: &'static str,
    /// 0: always shown; 1: shown with `-o wide`.
    pub priority: u8,
}

/// Index of a definition in [`DEFINITIONS`], by its reverse-domain name.
pub fn definition(name: &str) -> Option<u16> {
    let at = DEFINITIONS.binary_search_by(|definition| definition.name.cmp(name)).ok()?;
    u16::try_from(at).ok()
}

/// Index in [`DEFINITIONS`] of the body of a kind (objects and their lists; for meta/v1 types use
/// [`definition`]).
///
/// Every write of an object asks for it, so it is found by its hash: a search of the sorted table
/// compares some twenty texts.
pub fn kind(group: &str, version: &str, kind: &str) -> Option<u16> {
    static BY_NAME: LazyLock<HashMap<(&str, &str, &str), u16>> = LazyLock::new(|| {
        generated::KINDS
            .iter()
            .map(|&(group, version, kind, at)| ((group, version, kind), at))
            .collect()
    });
    BY_NAME.get(&(group, version, kind)).copied()
}

/// A served resource by group, version and plural name.
pub fn resource(group: &str, version: &str, resource: &str) -> Option<&'static Resource> {
    RESOURCES
        .iter()
        .find(|row| row.resource == resource && row.group == group && row.version == version)
}

/// A served resource by group, version and kind.
pub fn resource_of_kind(group: &str, version: &str, kind: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|row| row.kind == kind && row.group == group && row.version == version)
}
