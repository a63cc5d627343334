//! The schema of a type as an arena of nodes, so that recursive types are ordinary, with a borrowed
//! cursor to walk it.
mod growth;

use crate::pattern::Pattern;
use crate::rules::Rules;
use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

/// A string that is `'static` for built-in types and owned for custom ones.
pub type Str = Cow<'static, str>;
/// Index of a node in its [`Document`], or in the one that it borrows nodes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);
impl NodeId {
    /// Marks the index of a borrowed node. No document comes near two billion nodes.
    const BORROWED: u32 = 1 << 31;

    /// The same node, seen from a document that borrows from this one.
    pub(crate) fn borrowed(self) -> Self {
        Self(self.0 | Self::BORROWED)
    }
}

/// The members of every resource.
pub(crate) const TYPE_AND_METADATA: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// A declared property of an object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Property {
    /// Its name.
    pub name: Str,
    /// The node of its value.
    pub id: NodeId,
    /// The first bytes of the name, in order. Most names differ in them, so that a search seldom
    /// follows the pointer to a name.
    prefix: u64,
}
impl Property {
    /// A property with this name, and the node of its value.
    pub fn new(name: impl Into<Str>, id: NodeId) -> Self {
        let name = name.into();
        Self { prefix: Self::prefix(&name), name, id }
    }
    /// Finds a property in a list sorted by name: its place, or where it would be.
    ///
    /// # Errors
    /// The place where a property of the name belongs.
    pub(crate) fn search(sorted: &[Self], name: &str) -> Result<usize, usize> {
        let prefix = Self::prefix(name);
        sorted.binary_search_by(|property| {
            property.prefix.cmp(&prefix).then_with(|| (*property.name).cmp(name))
        })
    }
    /// The first eight bytes of a name. A shorter one is filled up with zeros, so that it comes
    /// before the longer ones that begin with it.
    fn prefix(name: &str) -> u64 {
        let name = name.as_bytes();
        if let Some(first) = name.first_chunk() {
            return u64::from_be_bytes(*first);
        }
        name.iter().rev().fold(0, |prefix, byte| (prefix >> 8) | (u64::from(*byte) << 56))
    }
}

/// The JSON shape of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Shape {
    /// `type: object` (with properties, additionalProperties or both absent).
    #[default]
    Object,
    /// `type: array`.
    Array,
    /// `type: string`.
    String,
    /// `type: integer`.
    Integer,
    /// `type: number`.
    Number,
    /// `type: boolean`.
    Boolean,
    /// `x-kubernetes-int-or-string`.
    IntOrString,
    /// No type (preserve-unknown-fields, RawExtension, JSON).
    Any,
}
/// The format of a built-in type's string, which decoding makes canonical.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Scalar {
    /// Nothing special.
    #[default]
    Plain,
    /// `resource.Quantity`: string or number on input, canonical string when stored.
    Quantity,
    /// `metav1.Time`.
    Time,
    /// `metav1.MicroTime`.
    MicroTime,
    /// `[]byte`: base64.
    Bytes,
    /// `metav1.Duration`.
    Duration,
    /// `int32`.
    Int32,
    /// `int64`.
    Int64,
}
/// How a list merges under server-side apply (`x-kubernetes-list-type`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub enum ListType {
    /// Replaced whole.
    #[default]
    Atomic,
    /// Scalars, each once.
    Set,
    /// Objects identified by these keys.
    Map(Vec<Str>),
}
/// How a field merges under strategic merge patch.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub struct PatchStrategy {
    /// `merge` is among the strategies.
    pub merge: bool,
    /// `retainKeys` is among the strategies.
    pub retain_keys: bool,
    /// `replace` is among the strategies.
    pub replace: bool,
    /// The merge key of a list of maps.
    pub merge_key: Option<Str>,
}

/// One node of a schema.
#[derive(Debug, Clone, Default)]
pub struct Node {
    /// JSON shape.
    pub shape: Shape,
    /// Meaning of a scalar.
    pub scalar: Scalar,
    /// Properties of an object, sorted by name.
    pub properties: Vec<Property>,
    /// Those of a custom resource's properties that have a default, so that an object is filled
    /// without looking at the others.
    pub defaulted: Vec<Property>,
    /// The same of a built-in type, and its [always present](Self::always_present) properties.
    pub filled: Box<[Property]>,
    /// `additionalProperties: {schema}`.
    pub additional: Option<NodeId>,
    /// `additionalProperties: true`: direct keys are not pruned.
    pub additional_any: bool,
    /// Items of an array.
    pub items: Option<NodeId>,
    /// Required properties.
    pub required: Vec<Str>,
    /// `nullable`.
    pub nullable: bool,
    /// `x-kubernetes-preserve-unknown-fields`.
    pub preserve_unknown: bool,
    /// `x-kubernetes-embedded-resource`.
    pub embedded_resource: bool,
    /// List type for apply.
    pub list_type: ListType,
    /// `x-kubernetes-map-type: atomic` (also atomic structs of built-ins).
    pub atomic_map: bool,
    /// Strategic merge metadata of the field this node is the value of.
    pub patch: PatchStrategy,
    /// Default value, applied when the property is absent.
    pub default: Option<serde_json::Value>,
    /// Built-in struct field without `omitempty`: the zero value is always present when stored
    /// (`spec: {}`, `status: {}`).
    pub always_present: bool,
    /// With `always_present`: the zero value is `null` (lists, maps, pointers, times); otherwise it
    /// is that of the shape (`""`, `0`, `false`, quantity `"0"`, struct `{}` with its own
    /// always-present members).
    pub zero_null: bool,
    /// Built-in struct field that is left out when it has its zero value (`""`, `0`, `false`, empty
    /// list or map), given or not. Neither this nor `always_present`: a pointer, left out when
    /// absent, kept when given (`replicas: 0`, `securityContext: {}`).
    pub omit_empty: bool,
    /// Place in the declared order of a built-in struct's fields, in which they are written (255:
    /// unknown).
    pub order: u8,
    /// Value validations (`None` when there are none, as for most built-ins).
    pub validation: Option<Box<Validation>>,
    /// Reverse-domain name of the definition this node is, for named types
    /// (`io.k8s.api.core.v1.PodSpec`); used by OpenAPI and messages.
    pub type_name: Option<Str>,
    /// `format`.
    pub format: Option<Str>,
}
/// Value validations of structural schemas (spec: crd §5). Absent ones do not restrict.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Validation {
    /// Smallest number.
    pub minimum: Option<serde_json::Number>,
    /// Largest number.
    pub maximum: Option<serde_json::Number>,
    /// The minimum itself is excluded.
    pub exclusive_minimum: bool,
    /// The maximum itself is excluded.
    pub exclusive_maximum: bool,
    /// The number is a multiple of this.
    pub multiple_of: Option<serde_json::Number>,
    /// Fewest characters of a string.
    pub min_length: Option<u64>,
    /// Most characters of a string.
    pub max_length: Option<u64>,
    /// The pattern, with the meaning it has in Go.
    pub pattern: Option<Arc<Pattern>>,
    /// Fewest items of a list.
    pub min_items: Option<u64>,
    /// Most items of a list.
    pub max_items: Option<u64>,
    /// Fewest members of an object.
    pub min_properties: Option<u64>,
    /// Most members of an object.
    pub max_properties: Option<u64>,
    /// Allowed values; empty: all.
    pub enumeration: Vec<serde_json::Value>,
    /// `additionalProperties: false`.
    pub additional_forbidden: bool,
    /// Each of these holds.
    pub all_of: Vec<NodeId>,
    /// At least one of these holds, when there are any.
    pub any_of: Vec<NodeId>,
    /// Exactly one of these holds, when there are any.
    pub one_of: Vec<NodeId>,
    /// This does not hold.
    pub not: Option<NodeId>,
    /// `x-kubernetes-validations` as written, in CEL.
    pub rules: Vec<serde_json::Value>,
    /// Of a custom resource and of an embedded one: `apiVersion`, `kind` and `metadata` as far as
    /// the definition declares them. The node's own properties are what every object has.
    pub type_and_metadata: Option<Vec<Property>>,
}

impl Validation {
    /// Enums up to this length are compared in no time worth mentioning.
    const SHORT_ENUM: usize = 64;

    fn is_costly(&self) -> bool {
        let branches = [&self.all_of, &self.any_of, &self.one_of];
        self.pattern.is_some()
            || !self.rules.is_empty()
            || self.not.is_some()
            || branches.iter().any(|list| !list.is_empty())
            || self.enumeration.len() > Self::SHORT_ENUM
    }
}

/// An arena of nodes and its named roots. Cheap to share: `Arc<Document>`.
#[derive(Debug, Default)]
pub struct Document {
    /// The nodes.
    pub nodes: Vec<Node>,
    /// The document that nodes are borrowed from instead of copied.
    lender: Option<Arc<Document>>,
    /// Properties of all nodes together, computed once.
    traits: OnceLock<Traits>,
    /// Whether a few bytes of an object may grow by a lot, computed once.
    grows: OnceLock<bool>,
    /// The rules, compiled when an object is first validated.
    rules: OnceLock<Rules>,
}
/// The properties of a whole document.
#[derive(Debug, Clone, Copy)]
struct Traits {
    embedded_resources: bool,
    costly_validation: bool,
    rules: bool,
}
impl Document {
    /// A cursor at a node.
    pub fn view(&self, id: NodeId) -> View<'_> {
        match &self.lender {
            Some(lender) if id.0 & NodeId::BORROWED != 0 => {
                View { document: lender, id: NodeId(id.0 & !NodeId::BORROWED) }
            }
            _ => View { document: self, id },
        }
    }
    /// Lends this document the nodes of another, as [`NodeId::borrowed`].
    pub(crate) fn borrow_from(&mut self, lender: &Arc<Document>) {
        self.lender = Some(lender.clone());
    }
    fn traits(&self) -> Traits {
        *self.traits.get_or_init(|| Traits {
            embedded_resources: self.nodes.iter().any(|node| node.embedded_resource),
            costly_validation: self
                .nodes
                .iter()
                .any(|node| node.validation.as_deref().is_some_and(Validation::is_costly)),
            rules: self
                .nodes
                .iter()
                .any(|node| node.validation.as_deref().is_some_and(|v| !v.rules.is_empty())),
        })
    }
    /// Adds a node.
    pub fn push(&mut self, node: Node) -> NodeId {
        self.nodes.push(node);
        NodeId(u32::try_from(self.nodes.len() - 1).unwrap_or(u32::MAX))
    }
}
/// A cursor into a document. `Deref`s to its [`Node`].
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    document: &'a Document,
    id: NodeId,
}
impl<'a> View<'a> {
    /// The node's id.
    pub fn id(&self) -> NodeId {
        self.id
    }
    /// The node, with the document's lifetime.
    pub fn node(&self) -> &'a Node {
        &self.document.nodes[self.id.0 as usize]
    }
    /// The schema of a declared property.
    pub fn property(&self, name: &str) -> Option<View<'a>> {
        let node = self.node();
        let place = Property::search(&node.properties, name).ok()?;
        node.properties.get(place).map(|property| self.at(property.id))
    }
    /// The schema of a member: declared property, else additionalProperties.
    pub fn member(&self, name: &str) -> Option<View<'a>> {
        self.property(name).or_else(|| self.node().additional.map(|id| self.at(id)))
    }
    /// The properties that the definition declares. The node of a resource has more.
    pub(crate) fn declared(&self) -> impl Iterator<Item = &'a Property> + use<'a> {
        let node = self.node();
        let own = self.type_and_metadata();
        let rest = node
            .properties
            .iter()
            .filter(move |property| own.is_none() || !TYPE_AND_METADATA.contains(&&*property.name));
        own.into_iter().flatten().chain(rest)
    }
    /// The schema of a property that the definition declares.
    pub(crate) fn declared_property(&self, name: &str) -> Option<View<'a>> {
        match self.type_and_metadata() {
            Some(own) if TYPE_AND_METADATA.contains(&name) => {
                own.iter().find(|property| property.name == name).map(|found| self.at(found.id))
            }
            _ => self.property(name),
        }
    }
    /// [`Validation::type_and_metadata`].
    fn type_and_metadata(&self) -> Option<&'a [Property]> {
        self.node().validation.as_deref()?.type_and_metadata.as_deref()
    }
    /// The schema of list items.
    pub fn items(&self) -> Option<View<'a>> {
        self.node().items.map(|id| self.at(id))
    }
    /// Another node of the same document.
    pub fn at(&self, id: NodeId) -> View<'a> {
        self.document.view(id)
    }
}
impl std::ops::Deref for View<'_> {
    type Target = Node;
    fn deref(&self) -> &Node {
        &self.document.nodes[self.id.0 as usize]
    }
}

/// A type: a document and its root node. Every operation on schemas takes one.
#[derive(Debug, Clone)]
pub struct TypeSchema {
    /// The arena.
    pub document: Arc<Document>,
    /// The root.
    pub root: NodeId,
}
impl TypeSchema {
    /// A cursor at the root.
    pub fn view(&self) -> View<'_> {
        self.document.view(self.root)
    }
    /// Whether any node of the document is an embedded resource: what is only about them can be
    /// left out otherwise.
    pub fn has_embedded_resources(&self) -> bool {
        self.document.traits().embedded_resources
    }
    /// Whether there are rules in CEL.
    pub fn has_rules(&self) -> bool {
        self.document.traits().rules
    }
    /// The rules in CEL of a resource of this type. The first call compiles them.
    pub(crate) fn rules(&self) -> &Rules {
        self.document.rules.get_or_init(|| Rules::new(self.view(), true))
    }
    /// Compiles the rules in CEL, unless they are compiled. Returns whether this call did.
    pub fn compile_rules(&self) -> bool {
        let is_new = self.document.rules.get().is_none();
        _ = self.rules();
        is_new
    }
    /// Whether validation may take far longer than the size of an object suggests, up to
    /// [`crate::validate::STEPS_MAX`]: there are patterns, combinators, long enums or rules in CEL,
    /// or a few bytes get many defaults or lack many required members.
    pub fn has_costly_validation(&self) -> bool {
        let Self { document, .. } = self;
        document.traits().costly_validation
            || *document.grows.get_or_init(|| growth::is_large(&document.nodes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_are_found_by_names_that_begin_alike() {
        let mut names = ["", "a", "a\0", "ab", "abcd", "abcde", "abcdf", "abd", "é", "éa", "name"];
        names.sort_unstable();
        let sorted: Vec<Property> =
            names.iter().map(|name| Property::new(*name, NodeId(0))).collect();
        for name in names.into_iter().chain(["abc", "abcdd", "abcdg", "b", "z", "\0"]) {
            let expected = names.binary_search(&name);
            assert_eq!(Property::search(&sorted, name), expected, "{name:?}");
        }
    }
}
