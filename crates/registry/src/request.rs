//! Bodies, options and answers of requests, with no HTTP types in them.
use crate::cache::Item;
use crate::catalog::Resource;
use crate::convert;
use bytes::Bytes;
use setpoint_object::field_selector::FieldSelector;
use setpoint_object::label::Selector;
use setpoint_object::{ApiError, encode};
use std::sync::Arc;

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
    /// The old form of `propagation`: `true` orphans, `false` collects (and answers 202 when the object remains).
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
/// Options of list and watch. The apiserver parses the query; the registry checks the combinations (spec: api-server §6, §7).
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
/// One object of a list. It is written out where it is needed: until then it shares the bytes as they are stored.
#[derive(Debug, Clone)]
pub struct Listed(Shown);
#[derive(Debug, Clone)]
enum Shown {
    /// As stored, without its resourceVersion.
    Stored(Arc<Item>),
    /// Converted, at this revision.
    Made(Bytes, u64),
}
impl Listed {
    /// A stored object as a row lists it.
    pub(crate) fn new(resource: &Resource, item: &Arc<Item>) -> Result<Self, ApiError> {
        if item.is_converted() || convert::is_served_as_stored(resource, &item.value, item.revision)
        {
            return Ok(Self(Shown::Stored(item.clone())));
        }
        let bytes = convert::serve(resource, &item.value, item.revision)?;
        Ok(Self(Shown::Made(bytes, item.revision)))
    }
    /// Appends the object as served: canonical JSON. Nothing is kept of it.
    pub fn push_to(&self, out: &mut Vec<u8>) {
        match &self.0 {
            Shown::Stored(item) => item.push_spliced(out),
            Shown::Made(bytes, _) => out.extend_from_slice(bytes),
        }
    }
    /// Appends the object as an item of a list of a built-in kind: without `apiVersion` and `kind`, which the list tells.
    pub fn push_item_to(&self, out: &mut Vec<u8>) {
        match &self.0 {
            Shown::Stored(item) => item.push_list_item(out),
            // Its resourceVersion is exchanged for itself.
            Shown::Made(bytes, revision) => encode::push_list_item(out, bytes, *revision),
        }
    }
    /// The object as served, for whoever keeps it: shared by those in this process who do.
    pub fn bytes(&self) -> Bytes {
        match &self.0 {
            Shown::Stored(item) => item.spliced(),
            Shown::Made(bytes, _) => bytes.clone(),
        }
    }
    /// How many bytes were made for it alone.
    pub(crate) fn bytes_made(&self) -> usize {
        match &self.0 {
            Shown::Stored(_) => 0,
            Shown::Made(bytes, _) => bytes.len(),
        }
    }
    /// How many bytes [`Listed::push_to`] appends at most.
    pub fn room(&self) -> usize {
        match &self.0 {
            Shown::Stored(item) => item.value.len() + encode::RESOURCE_VERSION_BYTES,
            Shown::Made(bytes, _) => bytes.len(),
        }
    }
}
/// One page of a list.
#[derive(Debug, Clone)]
pub struct List {
    /// The list's resourceVersion: the revision of the snapshot.
    pub revision: u64,
    /// In key order.
    pub items: Vec<Listed>,
    /// Names the next page; empty on the last.
    pub continue_token: String,
    /// Objects after this page, where that is known.
    pub remaining: Option<i64>,
}
