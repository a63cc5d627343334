//! Kinds: everything the server knows about one kind is one row, in one file.
//!
//! # Theory
//!
//! A [`Kind`] is data: which names are allowed, who owns `status`, where the objects are stored,
//! which fields can be selected by, and functions for what is a decision: defaults, `prepare`
//! (settles what clients may not: status, immutable parts that are restored silently, numbers that
//! depend on the stored object), `validate` (reports what they may not ask for), the cells of a
//! Table. `write`, `read` and `table` run the same code for every kind and ask the row.
//!
//! | kind                        | its row                                                                        |
//! |-----------------------------|--------------------------------------------------------------------------------|
//! | built in                    | a static in its room, `kind/<group>/<kind>.rs`, named in the one list, `rows`  |
//! | custom                      | `CUSTOM`: names, schema and columns come from the definition                 |
//! | compiled in by an embedder  | a static of the embedder's, given with [`CompiledKind`]                        |
//!
//! Functions see the object in the stored version, but for `default` and `cells`, which see the
//! version of the request. They are pure: they have no clock, no store and no other object.
//!
//! What several rooms share is below them: `check` (members and their usual faults), `template`
//! and `pod_default` (pod templates), `workload` (what keeps pods running), `fill` (defaults). A
//! room never imports another one, but for the same object under another name.
mod admissionregistration;
mod apiextensions;
mod apiregistration;
mod apps;
mod authentication;
mod authorization;
mod autoscaling;
mod batch;
mod certificates;
pub(crate) mod check;
mod compiled;
mod coordination;
pub(crate) mod core;
mod data;
mod discovery;
mod fill;
mod flowcontrol;
mod load_balancer;
mod networking;
mod node;
mod pod_default;
pub(crate) mod policy;
mod rbac;
mod resource;
mod rows;
mod scheduling;
mod storage;
mod template;
#[cfg(test)]
mod tests;
mod volume;
mod workload;

pub use crate::table::cell;
pub use check::*;
pub use compiled::CompiledKind;
pub use fill::Fill;
pub(crate) use rows::of;

pub(crate) use apiextensions::custom_resource_definition::CLEANUP_FINALIZER;

use crate::table::Printer;
use serde_json::{Map, Value};
use setpoint_object::time::Timestamp;
use setpoint_object::{GroupVersionKind, field};
use setpoint_schema::node::TypeSchema;

/// Which names a kind accepts (spec: api-server §12).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NameRule {
    /// RFC 1123 subdomain.
    Subdomain,
    /// RFC 1123 label.
    Label,
    /// RFC 1123 subdomain of at most so many characters.
    ShortSubdomain(usize),
    /// Anything that fits a path segment.
    Segment,
}

/// Which parts of a request the write through `/status` takes besides `status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StatusMeta {
    /// Everything but `spec`.
    All,
    /// All metadata but the labels.
    ButLabels,
    /// All metadata but owner references and the deletion time stamp.
    Pod,
    /// Nothing: metadata stays as stored, managedFields aside.
    Nothing,
}

/// A kind with a status subresource.
#[derive(Debug, Clone, Copy)]
pub struct StatusRule {
    /// What `/status` takes besides `status`.
    pub meta: StatusMeta,
    /// `status` of a new object, as JSON; empty: absent, whatever the client sent.
    pub initial: &'static str,
    /// Members that nobody comes to own through `/status`.
    pub resets: &'static [&'static str],
}
impl StatusRule {
    /// Custom resources: metadata is the main endpoint's, and a new object has no status.
    pub const CUSTOM: Self =
        Self { meta: StatusMeta::Nothing, initial: "", resets: &["metadata", "spec"] };
    /// A rule of a built-in kind.
    pub const fn new(meta: StatusMeta, initial: &'static str) -> Self {
        Self { meta, initial, resets: &["spec"] }
    }
}

/// What a write step may look at beside the object.
#[derive(Debug)]
pub struct Context<'a> {
    /// Now.
    pub now: Timestamp,
    /// User name of the caller.
    pub user: &'a str,
    /// Groups of the caller.
    pub groups: &'a [std::sync::Arc<str>],
}

/// A JSON object.
pub type Members = Map<String, Value>;
/// Fills what is absent: (object, version of the request).
pub type Default = fn(&mut Members, &str);
/// Settles what clients may not: (context, object, stored object, which a create has none of).
pub type Prepare = fn(&Context<'_>, &mut Value, Option<&Value>);
/// Reports what clients may not ask for: (object, stored object, errors).
pub type Validate = fn(&Value, Option<&Value>, &mut field::Errors);
/// Changes an object from one served `apiVersion` to another; `false`: there is no way.
pub type Convert = fn(&mut Value, from: &str, to: &str) -> bool;
/// The text of the refusal of a field label that the kind does not have.
pub type UnknownLabel = fn(&GroupVersionKind, &str) -> String;

/// A field that lists and watches can select by, beside `metadata.name` and `metadata.namespace`.
#[derive(Debug, Clone, Copy)]
pub struct Selectable {
    /// The label in a field selector: `spec.nodeName`.
    pub label: &'static str,
    /// Where the value is, as a path of plain names.
    pub path: &'static str,
    /// Where it is when it is not there; empty: nowhere else.
    pub or_path: &'static str,
    /// The text that stands for an absent value.
    pub absent: &'static str,
}
impl Selectable {
    /// One whose label is its path; an absent value is the empty text.
    pub const fn new(label: &'static str) -> Self {
        Self { label, path: label, or_path: "", absent: "" }
    }
}

/// A subresource that takes one part of a whole object and leaves the rest as stored (`finalize`,
/// `resize`, `approval`).
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// Its name.
    pub subresource: &'static str,
    /// Moves the part: (stored object, which becomes the new one, object as it was sent).
    pub take: fn(&mut Value, &mut Value),
    /// Settles what clients may not.
    pub prepare: Prepare,
    /// Reports what they may not ask for.
    pub validate: Validate,
    /// A change of it steps the generation.
    pub steps_generation: bool,
    /// Members that nobody comes to own through it.
    pub resets: &'static [&'static str],
}
impl Part {
    /// One that takes a part and asks nothing.
    pub const fn new(subresource: &'static str, take: fn(&mut Value, &mut Value)) -> Self {
        Self {
            subresource,
            take,
            prepare: prepare_nothing,
            validate: validate_nothing,
            steps_generation: false,
            resets: &[],
        }
    }
}

/// What a POST does that acts on an object of the resource, or of another one, instead of creating
/// one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// A Binding places a pod on a node.
    Bind,
    /// An Eviction deletes a pod, unless a disruption budget forbids it.
    Evict,
}

/// One kind. Made with [`Kind::plain`] and what differs:
///
/// ```
/// use setpoint_registry::kind::{Kind, NameRule};
///
/// static ORDER: Kind =
///     Kind { names: NameRule::Label, ..Kind::plain("shop.example.com", "Order") };
/// assert!(ORDER.unconditional_update);
/// ```
#[derive(Debug)]
pub struct Kind {
    /// Group; empty for the core group.
    pub group: &'static str,
    /// Kind.
    pub kind: &'static str,

    // What is stored.
    /// Group and version it is stored in; `None`: the one that is served.
    pub storage: Option<(&'static str, &'static str)>,
    /// Between its served versions; `None`: it has one.
    pub convert: Option<Convert>,
    /// It goes some time after it was written last: the registry's `event_ttl`.
    pub expires: bool,

    // What is written.
    /// Names.
    pub names: NameRule,
    /// Finalizers must be qualified names or standard ones. Else that is only warned of.
    pub qualified_finalizers: bool,
    /// It may be named as an owner, in version `v1`.
    pub may_own: bool,
    /// PUT of an absent object creates it.
    pub create_on_update: bool,
    /// An update may leave the resourceVersion out.
    pub unconditional_update: bool,
    /// A change of annotations steps the generation.
    pub annotations_step_generation: bool,
    /// Cluster addresses and node ports are given to it (Service).
    pub takes_numbers: bool,
    /// Kinds with a status subresource.
    pub status: Option<StatusRule>,
    /// See [`Default`](type@Default).
    pub default: Default,
    /// See [`Prepare`].
    pub prepare: Prepare,
    /// Settles a write through `/status`: (context, object, stored object).
    pub prepare_status: fn(&Context<'_>, &mut Value, &Value),
    /// See [`Validate`].
    pub validate: Validate,
    /// Validating a small object may take long as well: it is done on a thread that may be held up.
    pub validates_slowly: bool,
    /// What a client is told about a valid new object, one text each.
    pub warnings: fn(&Value) -> Vec<String>,
    /// POSTs that act: the subresource, empty for the main endpoint, and what it does.
    pub actions: &'static [(&'static str, Action)],
    /// Subresources that take a part of the object.
    pub parts: &'static [Part],

    // What is deleted.
    /// DELETE answers with the last state instead of a Success Status.
    pub returns_deleted: bool,
    /// DELETE without a policy orphans.
    pub orphans_by_default: bool,
    /// The warning of a DELETE without a policy; empty: none.
    pub orphan_warning: &'static str,
    /// Propagation policies mean something (not for Events).
    pub propagates: bool,
    /// Deletion leaves time to end in peace (Pod).
    pub graceful: bool,
    /// The first DELETE only marks the object, in this way (Namespace, CustomResourceDefinition).
    pub first_delete: Option<fn(&Context<'_>, &mut Value)>,
    /// `spec.finalizers` keep an object as its own do (Namespace).
    pub finalizers_in_spec: bool,

    // What is read.
    /// Fields to select by.
    pub selectable: &'static [Selectable],
    /// `metadata.namespace` can be selected by.
    pub selects_namespace: bool,
    /// See [`UnknownLabel`].
    pub unknown_label: UnknownLabel,
    /// The cells of its Tables, whose headings are published facts; `None`: name and creation time.
    pub cells: Option<Printer>,
    /// The warning that goes with every answer; empty: none.
    pub deprecation: &'static str,
}

impl Kind {
    /// What most kinds do.
    pub const fn plain(group: &'static str, kind: &'static str) -> Self {
        Self {
            group,
            kind,
            storage: None,
            convert: None,
            expires: false,
            names: NameRule::Subdomain,
            qualified_finalizers: true,
            may_own: true,
            create_on_update: false,
            unconditional_update: true,
            annotations_step_generation: false,
            takes_numbers: false,
            status: None,
            default: default_nothing,
            prepare: prepare_nothing,
            prepare_status: prepare_status_nothing,
            validate: validate_nothing,
            validates_slowly: false,
            warnings: no_warnings,
            actions: &[],
            parts: &[],
            returns_deleted: false,
            orphans_by_default: false,
            orphan_warning: "",
            propagates: true,
            graceful: false,
            first_delete: None,
            finalizers_in_spec: false,
            selectable: &[],
            selects_namespace: true,
            unknown_label: not_known,
            cells: None,
            deprecation: "",
        }
    }
    /// The same with a status subresource.
    pub const fn with_status(
        group: &'static str,
        kind: &'static str,
        meta: StatusMeta,
        initial: &'static str,
    ) -> Self {
        Self { status: Some(StatusRule::new(meta, initial)), ..Self::plain(group, kind) }
    }
    /// What a POST to a subresource, or to the main endpoint, does.
    pub fn action(&self, subresource: &str) -> Option<Action> {
        let found = self.actions.iter().find(|(name, _)| *name == subresource);
        found.map(|(_, action)| *action)
    }
    /// The subresource that takes a part.
    pub fn part(&self, subresource: &str) -> Option<&'static Part> {
        let parts: &'static [Part] = self.parts;
        parts.iter().find(|part| part.subresource == subresource)
    }
}

/// Fills the defaults of a built-in kind: those its schema declares, then those of its row. The
/// tree must have been put in order by [`setpoint_schema::decode::conform`].
pub fn fill_defaults(
    group: &str,
    version: &str,
    kind: &str,
    schema: &TypeSchema,
    object: &mut Value,
) {
    setpoint_schema::default::declared(schema, object);
    if let (Some(row), Some(members)) = (of(group, kind), object.as_object_mut()) {
        (row.default)(members, version);
    }
}

/// Custom resources: names, schema, columns and who owns `status` are their row's.
pub(crate) static CUSTOM: Kind = Kind {
    unconditional_update: false,
    qualified_finalizers: false,
    unknown_label: not_supported,
    ..Kind::plain("", "")
};

fn default_nothing(_: &mut Members, _: &str) {}
fn prepare_nothing(_: &Context<'_>, _: &mut Value, _: Option<&Value>) {}
fn prepare_status_nothing(_: &Context<'_>, _: &mut Value, _: &Value) {}
fn validate_nothing(_: &Value, _: Option<&Value>, _: &mut field::Errors) {}
fn no_warnings(_: &Value) -> Vec<String> {
    Vec::new()
}
/// What kinds without labels of their own answer.
fn not_known(_: &GroupVersionKind, label: &str) -> String {
    let label = field::quote(label);
    format!("{label} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
}
/// What kinds that list their labels answer.
pub fn not_supported(_: &GroupVersionKind, label: &str) -> String {
    format!("field label not supported: {label}")
}
