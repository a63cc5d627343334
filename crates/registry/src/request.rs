//! Bodies, options and answers of requests, with no HTTP types in them.
use bytes::Bytes;
use setpoint_object::field_selector::FieldSelector;
use setpoint_object::label::Selector;

pub use setpoint_schema::decode::Format;

/// A request body.
#[derive(Debug, Clone)]
pub struct Body {
    /// As it came; the API server bounds its size.
    pub bytes: Bytes,
    /// How it is written.
    pub format: Format,
}

/// `fieldValidation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FieldValidation {
    /// Unknown and repeated fields are forgotten.
    Ignore,
    /// They are warned of.
    #[default]
    Warn,
    /// They are refused.
    Strict,
}
/// Options of create, update and patch.
#[derive(Debug, Clone, Default)]
pub struct WriteOptions {
    /// Everything but the commit happens.
    pub dry_run: bool,
    /// Who owns what is written; empty: made of the user agent. Required for apply.
    pub field_manager: String,
    /// What becomes of unknown and repeated fields.
    pub field_validation: FieldValidation,
    /// Apply only: conflicting fields change hands.
    pub force: Option<bool>,
}
/// Patch types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchType {
    /// `application/json-patch+json`.
    Json,
    /// `application/merge-patch+json`.
    Merge,
    /// `application/strategic-merge-patch+json`; built-in kinds only.
    StrategicMerge,
    /// `application/apply-patch+yaml`: server-side apply.
    Apply,
}
/// `propagationPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PropagationPolicy {
    /// Dependents are let go.
    Orphan,
    /// Dependents are collected after the object is gone.
    Background,
    /// Dependents go first.
    Foreground,
}
/// Options of delete and deletecollection, validated.
#[derive(Debug, Clone, Default)]
pub struct DeleteOptions {
    /// Everything but the commit happens.
    pub dry_run: bool,
    /// Time for a pod to end; negative counts as one second.
    pub grace_period_seconds: Option<i64>,
    /// What becomes of dependents; `None`: what the object's finalizers or its kind say.
    pub propagation: Option<PropagationPolicy>,
    /// The old form of `propagation`: `true` orphans, `false` collects (and answers 202 when the
    /// object remains).
    pub orphan_dependents: Option<bool>,
    /// Precondition: the object's uid.
    pub uid: Option<String>,
    /// Precondition: the object's resourceVersion.
    pub resource_version: Option<String>,
}
/// `resourceVersionMatch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionMatch {
    /// The state at this version.
    Exact,
    /// The state at this version or a later one.
    NotOlderThan,
}
/// Options of list and watch. The apiserver parses the query; the registry checks the combinations
/// (spec: api-server §6, §7).
#[derive(Debug, Clone, Default)]
pub struct ListOptions {
    /// `labelSelector`.
    pub labels: Selector,
    /// `fieldSelector`.
    pub fields: FieldSelector,
    /// Objects of a page; 0 or less: all.
    pub limit: i64,
    /// `continue`; empty on the first page.
    pub continue_token: String,
    /// `resourceVersion` as it was sent.
    pub resource_version: String,
    /// `resourceVersionMatch`.
    pub resource_version_match: Option<VersionMatch>,
    /// Watch: `allowWatchBookmarks`.
    pub allow_bookmarks: bool,
    /// Watch: `sendInitialEvents`.
    pub send_initial_events: Option<bool>,
    /// Watch: when it ends; `None`: the registry chooses.
    pub timeout: Option<std::time::Duration>,
}

/// One object as served: encoded in the requested version with its resourceVersion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Canonical JSON.
    pub bytes: Bytes,
}
/// The answer to a write.
#[derive(Debug, Clone)]
pub struct Written {
    /// What was written, or the Status or Scale that the endpoint answers with.
    pub object: Object,
    /// 201 instead of 200.
    pub created: bool,
}
/// The answer to a delete.
#[derive(Debug, Clone)]
pub enum Deleted {
    /// The object (still there, or a kind that returns its last state).
    Object {
        /// The object.
        object: Object,
        /// It remains, waiting for finalizers or grace.
        remains: bool,
    },
    /// Gone; answered with a Success Status.
    Gone {
        /// Its uid.
        uid: String,
    },
}
