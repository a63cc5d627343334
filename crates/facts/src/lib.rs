//! Generated data about the built-in Kubernetes types.

/// One named definition of the published schemas.
#[derive(Debug)]
pub struct Definition {
    /// Reverse-domain name, such as `io.k8s.api.core.v1.PodSpec`.
    pub name: &'static str,
    /// Its shape.
    pub ty: Type,
    /// Fields, sorted by name.
    pub fields: &'static [Field],
    /// Required fields.
    pub required: &'static [&'static str],
    /// `x-kubernetes-map-type: atomic`.
    pub atomic: bool,
    /// Kinds it is the body of: (group, version, kind).
    pub kinds: &'static [(&'static str, &'static str, &'static str)],
    /// `x-kubernetes-unions` etc. are left out.
    pub format: &'static str,
}
/// One field.
#[derive(Debug)]
pub struct Field {
    /// Name on the wire.
    pub name: &'static str,
    /// Type.
    pub ty: Type,
    /// `x-kubernetes-list-type` (empty: not given).
    pub list_type: &'static str,
    /// `x-kubernetes-list-map-keys`.
    pub list_map_keys: &'static [&'static str],
    /// `x-kubernetes-map-type: atomic`.
    pub atomic: bool,
    /// `x-kubernetes-patch-strategy`, comma separated.
    pub patch_strategy: &'static str,
    /// `x-kubernetes-patch-merge-key`.
    pub merge_key: &'static str,
    /// Default as JSON text (empty: none).
    pub default: &'static str,
    /// `format`.
    pub format: &'static str,
}
/// The type of a field, list item or map value.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub enum Type {
    Str,
    Int,
    Num,
    Bool,
    IntOrString,
    Quantity,
    Time,
    MicroTime,
    Bytes,
    /** Untyped JSON. */
    Any,
    /** `object` without fields. */
    Object,
    /** Index into [`DEFINITIONS`]. */
    Ref(u16),
    List(&'static Type),
    Map(&'static Type),
}
/// One served built-in resource.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Resource {
    pub group: &'static str,
    pub version: &'static str,
    pub resource: &'static str,
    pub singular: &'static str,
    pub kind: &'static str,
    pub namespaced: bool,
    pub verbs: &'static [&'static str],
    pub short_names: &'static [&'static str],
    pub categories: &'static [&'static str],
    pub subresources: &'static [Subresource],
    /** Whether the kind tracks `metadata.generation`. */
    pub generation: bool,
    /** Table columns. */
    pub columns: &'static [Column],
}
/// One subresource.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Subresource {
    pub name: &'static str,
    /** (group, version, kind) of its body. */
    pub kind: (&'static str, &'static str, &'static str),
    pub verbs: &'static [&'static str],
}
/// One Table column.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Column {
    pub name: &'static str,
    pub ty: &'static str,
    pub format: &'static str,
    pub priority: u8,
}
/// Every definition, sorted by name.
pub static DEFINITIONS: &[Definition] = &[];
/// Every built-in resource, in discovery order (groups by descending priority, versions by priority).
pub static RESOURCES: &[Resource] = &[];
