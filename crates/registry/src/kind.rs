//! Kinds: everything the server knows about one kind is one row, in one file.
//!
//! # Theory
//!
//! A [`Kind`] is data: its name rule, the owner of `status`, where its objects are stored, its
//! field labels. It has functions for decisions: defaults, `prepare` (restores or sets fields that
//! clients may not change: status, immutable parts that are restored silently, numbers that depend
//! on the stored object), `validate` (reports invalid requests), the cells of a Table. It
//! corresponds to a `RESTStrategy` in kube-apiserver. `write`, `read` and `table` run the same code
//! for every kind and call the functions of its row.
//!
//! | kind                        | its row                                                                        |
//! |-----------------------------|--------------------------------------------------------------------------------|
//! | built in                    | a static in its module, `kind/<group>/<kind>.rs`, and in the list in `rows`    |
//! | custom                      | `CUSTOM`: names, schema and columns come from the definition                 |
//! | compiled in by an embedder  | a static of the embedder, passed with [`CompiledKind`]                         |
//!
//! Functions get the object in the stored version, except `default` and `cells`, which get the
//! version of the request. They are pure: they have no clock, no store and no other object.
//!
//! Shared code is below the kind modules: `at` (a place in an object, and the usual rules of one),
//! `check` (members), `format` and `resources` (texts, quantities), `template` and `pod_default`
//! (pod templates), `workload` (controllers of pods), `fill` (defaults), `versions` (conversions).
//! A kind module never imports another one, except for the same object under another name.
mod address;
pub(crate) mod admissionregistration;
pub(crate) mod annotated;
mod apiextensions;
mod apiregistration;
mod apiserverinternal;
mod apps;
mod at;
pub(crate) mod authentication;
mod authorization;
mod autoscaling;
mod batch;
pub(crate) mod certificates;
mod charged;
pub(crate) mod check;
mod compiled;
mod condition;
mod coordination;
pub(crate) mod core;
mod counted;
mod data;
pub(crate) mod disabled;
mod discovery;
mod fill;
mod flowcontrol;
mod format;
mod former_version;
mod load_balancer;
mod metadata_checks;
mod name_rule;
mod needs;
pub(crate) mod networking;
mod node;
mod node_label;
mod pod_default;
pub(crate) mod policy;
mod rbac;
pub(crate) mod registered;
mod report;
mod resource;
mod resources;
mod rows;
mod scheduling;
mod status_rule;
mod storage;
mod storagemigration;
pub(crate) mod template;
#[cfg(test)]
mod tests;
mod versions;
mod volume;
mod workload;

pub use crate::table::cell;
pub use charged::Charged;
pub use check::*;
pub use compiled::CompiledKind;
pub use counted::{Counter, Counts};
pub use disabled::Disabled;
pub use fill::Fill;
pub use former_version::FormerVersion;
pub use metadata_checks::{MetadataCheck, MetadataChecks};
pub use name_rule::NameRule;
pub use needs::*;
pub use report::Report;
pub use rows::of;
pub use status_rule::{StatusMeta, StatusRule};
pub(crate) use template::toleration_errors;

pub(crate) use apiextensions::custom_resource_definition::CLEANUP_FINALIZER;

use crate::features::{Feature, FeatureGates, Release};
use crate::table::Printer;
use serde_json::{Map, Value};
use setpoint_object::cidr::Families;
use setpoint_object::time::Timestamp;
use setpoint_object::{GroupVersionKind, field};
use setpoint_schema::node::TypeSchema;
use std::collections::BTreeMap;

/// The inputs of a write step besides the object.
#[derive(Debug)]
pub struct Context<'a> {
    /// The present time.
    pub now: Timestamp,
    /// User name of the caller.
    pub user: &'a str,
    /// Uid of the caller; empty if it has none.
    pub uid: &'a str,
    /// Groups of the caller.
    pub groups: &'a [std::sync::Arc<str>],
    /// Further facts about the caller.
    pub extra: &'a BTreeMap<String, Vec<String>>,
    /// The families that Services may have addresses of.
    pub families: Families,
    /// Which features are on.
    pub features: FeatureGates,
    /// Whether the labels of the object, which has a name and had none, are a default.
    pub has_default_labels: bool,
}

/// A JSON object.
pub type Members = Map<String, Value>;
/// Sets defaults for missing fields: (object, version of the request).
pub type Default = fn(&mut Members, &str);
/// Restores or sets fields that clients may not change: (context, object, stored object or `None`).
pub type Prepare = fn(&Context<'_>, &mut Value, Option<&Value>);
/// Reports invalid fields and changes: (object, stored object, errors).
pub type Validate = fn(&Value, Option<&Value>, &mut Report);
/// Completes an object, or reports why it cannot be completed: (context, object, stored object,
/// errors).
pub type Begin = fn(&Context<'_>, &mut Value, Option<&Value>, &mut Report);
/// Converts an object from one served `apiVersion` to another; `false`: not supported.
pub type Convert = fn(&mut Value, from: &str, to: &str) -> bool;
/// The error message for a field label that the kind does not have.
pub type UnknownLabel = fn(&GroupVersionKind, &str) -> String;

/// A field that lists and watches can select by, besides `metadata.name` and `metadata.namespace`.
#[derive(Debug, Clone, Copy)]
pub struct Selectable {
    /// The label in a field selector: `spec.nodeName`.
    pub label: &'static str,
    /// The path of the value, of plain names.
    pub path: &'static str,
    /// The fallback path if the value is missing; empty: none.
    pub or_path: &'static str,
    /// The text for a missing value.
    pub absent: &'static str,
}
impl Selectable {
    /// A field whose label is its path; a missing value is the empty text.
    pub const fn new(label: &'static str) -> Self {
        Self { label, path: label, or_path: "", absent: "" }
    }
}

/// A subresource that changes one part of an object and leaves the rest as stored (`finalize`,
/// `resize`, `approval`).
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// Its name.
    pub subresource: &'static str,
    /// The object's metadata is taken, too. If `false`, it stays as stored.
    pub takes_metadata: bool,
    /// Copies the part: (stored object, which becomes the new one, object as it was sent).
    pub take: fn(&mut Value, &mut Value),
    /// Restores or sets fields that clients may not change.
    pub prepare: Prepare,
    /// Reports invalid fields and changes.
    pub validate: Validate,
    /// Whether a change increments the generation.
    pub steps_generation: bool,
    /// Members that are not owned through this subresource.
    pub resets: &'static [&'static str],
    /// How the metadata is checked, besides once as that of any object. Each check reports.
    pub checks: MetadataChecks,
}
impl Part {
    /// A part without validation.
    pub const fn new(subresource: &'static str, take: fn(&mut Value, &mut Value)) -> Self {
        Self {
            subresource,
            takes_metadata: false,
            take,
            prepare: prepare_nothing,
            validate: validate_nothing,
            steps_generation: false,
            resets: &[],
            checks: MetadataChecks::before(&[MetadataCheck::Change]),
        }
    }
}

/// The action of a POST that acts on an object instead of creating one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// A Binding assigns a pod to a node.
    Bind,
    /// An Eviction deletes a pod, unless a disruption budget forbids it.
    Evict,
    /// A review is answered and not stored.
    Review(Reviewed),
    /// A TokenRequest is answered with a token of a service account.
    IssueToken,
}

/// Where the proxy of an object leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxiedTo {
    /// Nowhere.
    Nothing,
    /// To the address of the object (Pod).
    Address,
    /// To one of its endpoints, by which it is found unless the port is a number: it need not exist
    /// (Service).
    Endpoints,
    /// To its kubelet, or another port beside it (Node).
    Kubelet,
}

/// The question of a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reviewed {
    /// Who sends the request (SelfSubjectReview).
    User,
    /// Whose token it is (TokenReview).
    Token,
    /// Whether a user may do something (SubjectAccessReview).
    Access,
    /// The same in the review's namespace (LocalSubjectAccessReview).
    LocalAccess,
    /// Whether the sender may do something (SelfSubjectAccessReview).
    OwnAccess,
    /// The rules of the sender in a namespace (SelfSubjectRulesReview).
    OwnRules,
}

/// A kind. Made with [`Kind::plain`] and the fields that differ:
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

    // Storage.
    /// Group and version of the stored form; `None`: the served one.
    pub storage: Option<(&'static str, &'static str)>,
    /// Converts between its served versions; `None`: it has one.
    pub convert: Option<Convert>,
    /// The versions in which other servers store it, or once stored it, that are not served here.
    pub formers: &'static [FormerVersion],
    /// Objects expire after their last write: the registry's `event_ttl`.
    pub expires: bool,

    // Writes.
    /// The name rule.
    pub names: NameRule,
    /// What else is wrong with a name or a `generateName`: (object, the name).
    pub name_fault: fn(&Value, &str) -> Option<String>,
    /// The rule is also for `generateName`. If `false`, messages count the bytes of a name.
    pub checks_prefix: bool,
    /// Finalizers must be qualified names or standard ones. If `false`, others cause a warning.
    pub qualified_finalizers: bool,
    /// It may be an owner in owner references, in version `v1`.
    pub may_own: bool,
    /// PUT of an absent object creates it.
    pub create_on_update: bool,
    /// An update may omit the resourceVersion.
    pub unconditional_update: bool,
    /// A change of annotations increments the generation.
    pub annotations_step_generation: bool,
    /// A change increments the generation, if the kind has one.
    pub steps_generation: bool,
    /// A change of members that are then dropped ([`disabled`](Self::disabled), `prepare`)
    /// increments the generation, too.
    pub counts_disabled: bool,
    /// The server allocates cluster addresses and node ports for it (Service).
    pub takes_numbers: bool,
    /// The status rule of kinds with a status subresource.
    pub status: Option<StatusRule>,
    /// Members besides `status` that are not owned through the main endpoint.
    pub resets: &'static [&'static str],
    /// See [`Default`](type@Default).
    pub default: Default,
    /// Sets defaults that depend on features, after [`default`](Self::default).
    pub default_of: fn(&mut Members, FeatureGates),
    /// Why the body of a request cannot be converted to the stored form, although each member has
    /// its type; `None`: it can.
    pub unreadable: fn(&Value) -> Option<String>,
    /// See [`Prepare`].
    pub prepare: Prepare,
    /// Restores fields on a write through `/status`: (context, object, stored object).
    pub prepare_status: fn(&Context<'_>, &mut Value, &Value),
    /// See [`Validate`].
    pub validate: Validate,
    /// Reports changes that are not allowed, after the metadata was checked against the stored
    /// one; [`validate`](Self::validate) may report some, too. See [`Validate`].
    pub validate_change: Validate,
    /// Completes an object after [`prepare`](Self::prepare). Its faults hide all others, also those
    /// of the metadata. See [`Begin`].
    pub begin: Begin,
    /// Reports what comes before the faults that the metadata has by the rules of the kind. See
    /// [`Validate`].
    pub validate_before: Validate,
    /// What [`validate`](Self::validate) and [`validate_status`](Self::validate_status) check,
    /// for `docs/compatibility.md`; empty: not described there.
    pub rules: &'static str,
    /// Reports invalid fields and changes of a write through `/status`. See [`Validate`].
    pub validate_status: Validate,
    /// Reports what of a write through `/status` is invalid at the time, after
    /// [`validate_status`](Self::validate_status): (context, object, stored object, errors).
    pub validate_status_in: fn(&Context<'_>, &Value, &Value, &mut Report),
    /// Validation of a small object may take long, too: it runs on a thread that may be blocked.
    pub validates_slowly: bool,
    /// Warnings for a new object before [`prepare`](Self::prepare), one text each; valid or not.
    pub prepare_warnings: fn(&Value) -> Vec<String>,
    /// Warnings for a valid new object, one text each.
    pub warnings: fn(&Value) -> Vec<String>,
    /// Warnings for a valid update: (new object, stored object).
    pub update_warnings: fn(&Value, &Value) -> Vec<String>,
    /// Warnings for a valid write through `/status`.
    pub status_warnings: fn(&Value) -> Vec<String>,
    /// The feature that these warnings, but those before `prepare`, are about. `None`: no feature.
    pub warns_with: Option<Feature>,
    /// How the metadata of an update is checked, besides once as that of any object; each reports.
    pub changed_metadata: MetadataChecks,
    /// The rules of the kind leave out metadata: that of a new object has to follow the rules of
    /// any object only, which are checked if the others are met.
    pub metadata_last: bool,
    /// What its writes require besides the right to write the object.
    pub needs: Needs,
    /// Members of features that may be off: they are dropped unless the stored object has them.
    pub disabled: &'static [Disabled],
    /// Where the spec of its pods is, as `spec.template.spec`; empty: it has no pods. Its members
    /// may be disabled, too, its containers may have to be unprivileged, and the Pod Security
    /// Standards apply to it.
    pub pod_spec: &'static str,
    /// POSTs with an action: the subresource, empty for the main endpoint, and its action.
    pub actions: &'static [(&'static str, Action)],
    /// Subresources that change a part of the object.
    pub parts: &'static [Part],

    // Deletion.
    /// DELETE returns the last state instead of a Success Status.
    pub returns_deleted: bool,
    /// DELETE without a propagation policy orphans dependents.
    pub orphans_by_default: bool,
    /// The warning for a DELETE without a propagation policy; empty: none.
    pub orphan_warning: &'static str,
    /// Propagation policies apply (not for Events).
    pub propagates: bool,
    /// Deletion is graceful: it has a grace period (Pod).
    pub graceful: bool,
    /// The first DELETE only marks the object as terminating, with this function (Namespace,
    /// CustomResourceDefinition). Admission sees its uid in the options of a DELETE.
    pub begin_termination: Option<fn(&Context<'_>, &mut Value)>,
    /// `spec.finalizers` keep an object, as `metadata.finalizers` do (Namespace).
    pub finalizers_in_spec: bool,

    /// See [`Charged`].
    pub charged: Charged,

    // Reads.
    /// Its subresources that connect are streams of the node in `spec.nodeName` (Pod).
    pub has_node_streams: bool,
    /// Where the proxies of its objects lead.
    pub proxied_to: ProxiedTo,
    /// Fields to select by.
    pub selectable: &'static [Selectable],
    /// `metadata.namespace` is a valid field label.
    pub selects_namespace: bool,
    /// See [`UnknownLabel`].
    pub unknown_label: UnknownLabel,
    /// The cells of its Tables, whose headings come from the facts; `None`: name and creation time.
    pub cells: Option<Printer>,
    /// The rows of a list's Table are sorted by this number of their objects; `None`: by name, as
    /// the list.
    pub row_order: Option<fn(&Value) -> i64>,
    /// Why an object is completed, which the rows of Tables say: reason and message. `None`: it is
    /// not.
    pub completion: fn(&Value) -> Option<(&'static str, &'static str)>,
    /// Annotations that metadata-only forms lack: fields of kube-apiserver's internal version, from
    /// which it makes these forms.
    pub hidden_annotations: &'static [&'static str],
    /// The warning in every answer; empty: none.
    pub deprecation: &'static str,
}

impl Kind {
    /// The version that Kubernetes stores, if it is one of the former ones, where the oldest of the
    /// servers is of this release.
    pub(crate) fn stored_former(&self, oldest: Release) -> Option<&'static str> {
        self.formers.iter().find(|former| former.is_stored(oldest)).map(|former| former.version)
    }

    /// The settings of most kinds.
    pub const fn plain(group: &'static str, kind: &'static str) -> Self {
        Self {
            group,
            kind,
            storage: None,
            convert: None,
            formers: &[],
            expires: false,
            names: NameRule::Subdomain,
            name_fault: |_, _| None,
            checks_prefix: true,
            qualified_finalizers: true,
            may_own: true,
            create_on_update: false,
            unconditional_update: true,
            annotations_step_generation: false,
            steps_generation: true,
            counts_disabled: false,
            takes_numbers: false,
            status: None,
            resets: &[],
            default: default_nothing,
            default_of: |_, _| {},
            unreadable: |_| None,
            prepare: prepare_nothing,
            prepare_status: prepare_status_nothing,
            validate: validate_nothing,
            validate_change: validate_nothing,
            begin: begin_nothing,
            validate_before: validate_nothing,
            rules: "",
            validate_status: validate_nothing,
            validate_status_in: |_, _, _, _| {},
            validates_slowly: false,
            prepare_warnings: no_warnings,
            warnings: no_warnings,
            update_warnings: no_update_warnings,
            status_warnings: no_warnings,
            warns_with: None,
            changed_metadata: MetadataChecks::before(&[MetadataCheck::Change]),
            metadata_last: false,
            needs: Needs::NONE,
            disabled: &[],
            pod_spec: "",
            actions: &[],
            parts: &[],
            returns_deleted: false,
            orphans_by_default: false,
            orphan_warning: "",
            propagates: true,
            graceful: false,
            begin_termination: None,
            finalizers_in_spec: false,
            charged: Charged::Creates,
            has_node_streams: false,
            proxied_to: ProxiedTo::Nothing,
            selectable: &[],
            selects_namespace: true,
            unknown_label: not_known,
            cells: None,
            row_order: None,
            completion: |_| None,
            hidden_annotations: &[],
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
    /// Whether the published API says that DELETE returns the last state. It says a Status of kinds
    /// whose first DELETE only marks the object (Namespace), as kube-apiserver's does.
    pub fn publishes_deleted(&self) -> bool {
        self.returns_deleted && self.begin_termination.is_none()
    }
    /// The action of a POST to a subresource, or to the main endpoint (empty).
    pub fn action(&self, subresource: &str) -> Option<Action> {
        let found = self.actions.iter().find(|(name, _)| *name == subresource);
        found.map(|(_, action)| *action)
    }
    /// The part that a subresource changes.
    pub fn part(&self, subresource: &str) -> Option<&'static Part> {
        let parts: &'static [Part] = self.parts;
        parts.iter().find(|part| part.subresource == subresource)
    }
}

/// Sets the defaults of a built-in kind: those of its schema, then those of its row. The tree must
/// have passed [`setpoint_schema::decode::conform`].
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

/// Completes a built-in object that a kube-apiserver stored: [`fill_defaults`], and what its status
/// lacks of that of a new object. As [`fill_defaults`], it needs a conformed tree.
pub(crate) fn fill_stored(
    group: &str,
    version: &str,
    kind: &str,
    schema: &TypeSchema,
    object: &mut Value,
) {
    fill_defaults(group, version, kind, schema, object);
    let initial = of(group, kind).and_then(|row| row.status).map_or("", |rule| rule.initial);
    let Ok(Value::Object(initial)) = serde_json::from_str(initial) else { return };
    let Some(status) = object.as_object_mut().and_then(|object| object.object_or_new("status"))
    else {
        return;
    };
    for (name, value) in initial {
        status.entry(name).or_insert(value);
    }
}

/// Custom resources: names, schema, columns and the status rule come from the catalog row.
pub(crate) static CUSTOM: Kind = Kind {
    unconditional_update: false,
    qualified_finalizers: false,
    unknown_label: not_supported,
    ..Kind::plain("", "")
};

fn default_nothing(_: &mut Members, _: &str) {}
fn prepare_nothing(_: &Context<'_>, _: &mut Value, _: Option<&Value>) {}
fn prepare_status_nothing(_: &Context<'_>, _: &mut Value, _: &Value) {}
fn validate_nothing(_: &Value, _: Option<&Value>, _: &mut Report) {}
fn begin_nothing(_: &Context<'_>, _: &mut Value, _: Option<&Value>, _: &mut Report) {}
fn no_update_warnings(_: &Value, _: &Value) -> Vec<String> {
    Vec::new()
}
fn no_warnings(_: &Value) -> Vec<String> {
    Vec::new()
}
/// The message of kinds without field labels of their own.
fn not_known(_: &GroupVersionKind, label: &str) -> String {
    let label = field::quote(label);
    format!("{label} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
}
/// The message of kinds that have field labels.
pub fn not_supported(_: &GroupVersionKind, label: &str) -> String {
    format!("field label not supported: {label}")
}
