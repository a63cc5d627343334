//! Kinds that an embedder compiles in.
use super::Kind;
use crate::table::ColumnDefinition;
use serde_json::Value;
use setpoint_object::Scope;

/// A kind that an embedder compiles in: a row with its own rules, and how it is served.
///
/// It is served like a custom resource: discovery, OpenAPI, Tables, watch, patch and apply. Its
/// [`Kind`] can do in code what a definition cannot express: defaults, validation against the
/// stored object, immutable parts, cells.
///
/// ```
/// use serde_json::json;
/// use setpoint_registry::kind::{CompiledKind, Kind};
///
/// static ORDER: Kind = Kind::plain("shop.example.com", "Order");
/// let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
///     "pieces": {"type": "integer"},
/// }}}});
/// let order = CompiledKind::new(&ORDER, "v1", "orders", schema).short_names(["ord"]);
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct CompiledKind {
    pub(crate) kind: &'static Kind,
    pub(crate) version: String,
    pub(crate) resource: String,
    pub(crate) schema: Value,
    pub(crate) scope: Scope,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) headings: Vec<ColumnDefinition>,
}
impl CompiledKind {
    /// A kind that is served in one version under a plural name. `schema` is a structural OpenAPI
    /// v3 schema, as a definition's `openAPIV3Schema`: fields that it does not declare are pruned.
    /// Namespaced by default; see [`scope`](Self::scope).
    ///
    /// # Panics
    ///
    /// The group has no dot, or the plural is not a lower-case DNS label: its keys could be those
    /// of another resource.
    pub fn new(kind: &'static Kind, version: &str, resource: &str, schema: Value) -> Self {
        let group = kind.group;
        assert!(group.contains('.'), "the group {group:?} of a compiled-in kind needs a dot");
        let faults = setpoint_object::name::dns1123_label(resource);
        assert!(faults.is_empty(), "the plural {resource:?}: {}", faults.join(", "));
        Self {
            kind,
            version: version.to_owned(),
            resource: resource.to_owned(),
            schema,
            scope: Scope::Namespaced,
            short_names: Vec::new(),
            categories: Vec::new(),
            headings: Vec::new(),
        }
    }
    /// Namespaced or cluster-scoped.
    pub fn scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }
    /// Short names for command lines. Default: none.
    pub fn short_names<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.short_names = names.into_iter().map(str::to_owned).collect();
        self
    }
    /// Categories for command lines (`all`). Default: none.
    pub fn categories<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.categories = names.into_iter().map(str::to_owned).collect();
        self
    }
    /// The headings of its Tables as `(name, type)`, one for each cell of [`Kind::cells`]. The
    /// first is the object's name. Default: name and creation time.
    pub fn headings<'a>(mut self, headings: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let headings = headings.into_iter().enumerate().map(|(n, (name, ty))| {
            ColumnDefinition::new(name, ty, if n == 0 { "name" } else { "" })
        });
        self.headings = headings.collect();
        self
    }
}
