//! What create, update and status writes may change, per kind: one static row each, so that a kind is data and the write path is one.
//!
//! A row says which names are allowed, who owns `status`, and carries two functions: `prepare` settles what clients may not
//! (defaults that depend on the stored object, status, immutable parts that are restored silently), `validate` reports what they may
//! not ask for. Both see the object in the stored version, before ([`None`]: it is being created) and after.
mod autoscaler;
mod budget;
mod certificate;
mod config;
mod definition;
mod event;
mod job;
mod lease;
mod namespace;
mod network;
pub(crate) mod pod;
mod pod_update;
mod priority;
mod rbac;
pub(crate) mod service;
mod storage;
mod table;
mod workload;

pub(crate) use definition::CLEANUP_FINALIZER;
pub(crate) use namespace::name_label;

use serde_json::Value;
use setpoint_object::field;
use setpoint_object::time::Timestamp;

/// Which names a kind accepts (spec: api-server §12).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameRule {
    /// RFC 1123 subdomain.
    Subdomain,
    /// RFC 1123 label.
    Label,
    /// RFC 1123 subdomain of at most 52 characters, so that the names of its Jobs are labels.
    CronJob,
    /// Anything that fits a path segment.
    Segment,
}

/// Which parts of the request a write through `/status` takes besides `status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StatusMeta {
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
pub(crate) struct StatusRule {
    /// What `/status` takes besides `status`.
    pub(crate) meta: StatusMeta,
    /// `status` of a new object, as JSON; empty: absent.
    pub(crate) initial: &'static str,
}

impl StatusRule {
    /// Custom resources: metadata is the main endpoint's, and a new object has no status.
    pub(crate) const CUSTOM: Self = Self { meta: StatusMeta::Nothing, initial: "" };
}

/// What a write step may look at.
#[derive(Debug)]

pub(crate) struct Context<'a> {
    /// Now.
    pub(crate) now: Timestamp,
    /// User name of the caller.
    pub(crate) user: &'a str,
    /// Groups of the caller.
    pub(crate) groups: &'a [String],
}

/// Settles what clients may not: (context, object, stored object).
pub(crate) type Prepare = fn(&Context<'_>, &mut Value, Option<&Value>);
/// Reports what clients may not ask for: (object, stored object, errors).
pub(crate) type Validate = fn(&Value, Option<&Value>, &mut Vec<field::Error>);

/// One kind's row.
#[derive(Debug)]
pub(crate) struct Strategy {
    /// Names.
    pub(crate) name: NameRule,
    /// PUT of an absent object creates it.
    pub(crate) create_on_update: bool,
    /// An update may leave the resourceVersion out.
    pub(crate) unconditional_update: bool,
    /// Kinds with a status subresource.
    pub(crate) status: Option<StatusRule>,
    /// DELETE answers with the last state instead of a Success Status.
    pub(crate) returns_deleted: bool,
    /// DELETE without a policy orphans.
    pub(crate) orphans_by_default: bool,
    /// Propagation policies mean something (not for Events).
    pub(crate) collected: bool,
    /// A change of annotations steps the generation.
    pub(crate) annotations_step_generation: bool,
    /// Deletion leaves time to end in peace (Pod).
    pub(crate) graceful: bool,
    /// The first DELETE only marks the object, in this way (Namespace, CustomResourceDefinition).
    pub(crate) first_delete: Option<fn(&Context<'_>, &mut Value)>,
    /// `spec.finalizers` keep an object as its own do (Namespace).
    pub(crate) finalizers_in_spec: bool,
    /// Settles a write through `/status`: (context, object, stored object).
    pub(crate) prepare_status: fn(&Context<'_>, &mut Value, &Value),
    /// See [`Prepare`].
    pub(crate) prepare: Prepare,
    /// See [`Validate`].
    pub(crate) validate: Validate,
    /// What a client is told about a valid new object, one text each.
    pub(crate) warnings: fn(&Value) -> Vec<String>,
}
fn no_warnings(_: &Value) -> Vec<String> {
    Vec::new()
}
fn prepare_nothing(_: &Context<'_>, _: &mut Value, _: Option<&Value>) {}
fn prepare_status_nothing(_: &Context<'_>, _: &mut Value, _: &Value) {}
fn validate_nothing(_: &Value, _: Option<&Value>, _: &mut Vec<field::Error>) {}

/// What most kinds do.
pub(crate) const PLAIN: Strategy = Strategy {
    name: NameRule::Subdomain,
    create_on_update: false,
    unconditional_update: true,
    status: None,
    returns_deleted: false,
    orphans_by_default: false,
    collected: true,
    annotations_step_generation: false,
    graceful: false,
    first_delete: None,
    finalizers_in_spec: false,
    prepare_status: prepare_status_nothing,
    prepare: prepare_nothing,
    validate: validate_nothing,
    warnings: no_warnings,
};
/// Custom resources: schema and status are the row's.
pub(crate) static CUSTOM: Strategy = Strategy { unconditional_update: false, ..PLAIN };
