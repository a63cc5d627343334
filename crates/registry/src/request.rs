//! One request, with no HTTP types in it.
use crate::catalog::Resource;
use bytes::Bytes;
use parking_lot::Mutex;
use setpoint_object::field_selector::FieldSelector;
use setpoint_object::label::Selector;
use std::sync::Arc;

pub use setpoint_schema::decode::Format;

/// Who asks, and what is said back beside the answer.
#[derive(Debug, Default)]
pub struct Caller {
    /// User name (`system:admin`).
    pub user: String,
    /// Groups.
    pub groups: Vec<String>,
    /// The `User-Agent` header: default field manager.
    pub user_agent: String,
    /// Controller, key and reconcile id of a write that comes from a reconciler (request extensions in process, headers on the wire).
    pub origin: Option<Arc<str>>,
    /// Texts of `Warning` headers, in order, once each.
    pub warnings: Mutex<Vec<String>>,
}
impl Caller {
    /// Adds a warning, once.
    pub fn warn(&self, text: impl Into<String>) {
        let text = text.into();
        let mut warnings = self.warnings.lock();
        if !warnings.contains(&text) {
            warnings.push(text)
        }
    }
}

/// What a request is about. `name` empty: the collection; `namespace` empty: cluster scope or all namespaces.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct Target {
    pub resource: Arc<Resource>,
    pub namespace: String,
    pub name: String,
    pub subresource: String,
}

/// A request body.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct Body {
    pub bytes: Bytes,
    pub format: Format,
}

/// `fieldValidation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub enum FieldValidation {
    Ignore,
    #[default]
    Warn,
    Strict,
}
/// Options of create, update and patch.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs)]
pub struct WriteOptions {
    pub dry_run: bool,
    /** Empty: from the user agent. */
    pub field_manager: String,
    pub field_validation: FieldValidation,
    /** Apply only. */
    pub force: Option<bool>,
}
/// Patch types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum PatchType {
    Json,
    Merge,
    StrategicMerge,
    Apply,
}
/// `propagationPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Propagation {
    Orphan,
    Background,
    Foreground,
}
/// Options of delete and deletecollection, validated.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs)]
pub struct DeleteOptions {
    pub dry_run: bool,
    pub grace_period_seconds: Option<i64>,
    pub propagation: Option<Propagation>,
    /** `orphanDependents: false` was sent explicitly (answers 202). */
    pub orphan_dependents: Option<bool>,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
}
/// `resourceVersionMatch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum VersionMatch {
    Exact,
    NotOlderThan,
}
/// Options of list and watch. The apiserver parses the query; the registry checks the combinations (spec: api-server §6, §7).
#[derive(Debug, Clone, Default)]
#[allow(missing_docs)]
pub struct ListOptions {
    pub labels: Selector,
    pub fields: FieldSelector,
    pub limit: i64,
    pub continue_token: String,
    pub resource_version: String,
    pub resource_version_match: Option<VersionMatch>,
    pub allow_bookmarks: bool,
    pub send_initial_events: Option<bool>,
    pub timeout: Option<std::time::Duration>,
}

/// One object as served: encoded in the requested version with its resourceVersion.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Object {
    pub bytes: Bytes,
}
/// The answer to a write.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct Written {
    pub object: Object,
    /** 201 instead of 200. */
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
/// One page of a list.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct List {
    pub revision: u64,
    pub items: Vec<Object>,
    pub continue_token: String,
    pub remaining: Option<i64>,
}
