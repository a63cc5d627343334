//! Bodies, options and answers of requests, without HTTP types.
use crate::shard_selector::ShardSelector;
use bytes::Bytes;
use serde_json::json;
use setpoint_object::field;
use setpoint_object::field_selector::FieldSelector;
use setpoint_object::label::Selector;

mod delete_options;

pub use delete_options::{IGNORE_READ_ERROR, RawDeleteOptions};
pub(crate) use delete_options::{ignore_refused, invalid};
pub use setpoint_schema::decode::Format;

/// Maximum length of a field manager in bytes; longer ones are refused with 422.
const FIELD_MANAGER_BYTES_MAX: usize = 128;

/// Checks the name of a field manager: of an option, or of an entry of `managedFields`.
pub fn check_field_manager(
    manager: &str,
    path: impl Fn() -> field::Path,
    errors: &mut field::Errors,
) {
    if manager.len() > FIELD_MANAGER_BYTES_MAX {
        errors.push(field::Error::too_long(path(), FIELD_MANAGER_BYTES_MAX));
    }
    for (at, c) in manager.char_indices() {
        // Each error repeats the name, so that the errors of a long one are quadratic.
        if errors.is_full() {
            break;
        }
        if !field::is_printable(c) {
            errors.push(field::Error {
                kind: field::ErrorKind::Invalid,
                path: path(),
                shown: Some(field::quote(manager)),
                detail: format!("invalid character U+{:04X} (at position {at})", c as u32),
            });
        }
    }
}

/// A request body.
#[derive(Debug, Clone)]
pub struct Body {
    /// As received; the API server limits its size.
    pub bytes: Bytes,
    /// Its encoding.
    pub format: Format,
}

/// `fieldValidation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FieldValidation {
    /// Drops unknown and repeated fields.
    Ignore,
    /// Drops them with a warning.
    #[default]
    Warn,
    /// Refuses them.
    Strict,
}
/// Checks the values of `dryRun`, of every kind of options. Any value means a dry run; the only one
/// that is valid is `All`.
pub fn check_dry_run<T: AsRef<str>>(values: &[T], errors: &mut field::Errors) {
    let values: Vec<&str> = values.iter().map(AsRef::as_ref).collect();
    if values.iter().any(|value| *value != "All") {
        let path = field::Path::new("dryRun");
        errors.push(field::Error::not_supported(path, &json!(values), &["All"]));
    }
}
/// Options of create, update and patch.
#[derive(Debug, Clone, Default)]
pub struct WriteOptions {
    /// Does everything but the commit.
    pub dry_run: bool,
    /// The manager that owns the written fields; if empty, derived from the user agent. Required
    /// for apply.
    pub field_manager: String,
    /// How unknown and repeated fields are handled.
    pub field_validation: FieldValidation,
    /// Apply only: takes over conflicting fields.
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
    /// Dependents are orphaned.
    Orphan,
    /// Dependents are garbage-collected after the object is deleted.
    Background,
    /// Dependents are deleted first.
    Foreground,
}
/// Options of delete and deletecollection, validated.
#[derive(Debug, Clone, Default)]
pub struct DeleteOptions {
    /// Does everything but the commit.
    pub dry_run: bool,
    /// Grace period of a pod in seconds; negative counts as one second.
    pub grace_period_seconds: Option<i64>,
    /// How dependents are handled; `None`: by the object's finalizers, or its kind's default.
    pub propagation: Option<PropagationPolicy>,
    /// The old form of `propagation`: `true` orphans dependents, `false` garbage-collects them (and
    /// answers 202 if the object remains).
    pub orphan_dependents: Option<bool>,
    /// Precondition: the object's uid.
    pub uid: Option<String>,
    /// Precondition: the object's resourceVersion.
    pub resource_version: Option<String>,
    /// `ignoreStoreReadErrorWithClusterBreakingPotential`: removes an object that cannot be read,
    /// whatever waits for it. Only with the feature gate `AllowUnsafeMalformedObjectDeletion`;
    /// ignored without it. Only for who has the verb `unsafe-delete-ignore-read-errors`.
    pub ignore_store_read_error: bool,
}
/// `resourceVersionMatch`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VersionMatch {
    /// The state at exactly this version.
    Exact,
    /// The state at this version or a later one.
    NotOlderThan,
    /// Any other word: it is refused, together with what else is wrong with the options.
    Other(Box<str>),
}
impl VersionMatch {
    /// The word in the query.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Exact => "Exact",
            Self::NotOlderThan => "NotOlderThan",
            Self::Other(word) => word,
        }
    }
}
impl From<&str> for VersionMatch {
    fn from(word: &str) -> Self {
        match word {
            "Exact" => Self::Exact,
            "NotOlderThan" => Self::NotOlderThan,
            other => Self::Other(other.into()),
        }
    }
}
/// Options of list and watch. The API server parses the query; the registry checks the combinations
/// (spec: api-server §6, §7).
#[derive(Debug, Clone, Default)]
pub struct ListOptions {
    /// `labelSelector`.
    pub labels: Selector,
    /// `fieldSelector`.
    pub fields: FieldSelector,
    /// `shardSelector`.
    pub shard: Option<ShardSelector>,
    /// Maximum objects of a page; 0 or less: all.
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

/// An object as served: encoded in the requested version with its resourceVersion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Canonical JSON.
    pub bytes: Bytes,
}
/// The answer to a write.
#[derive(Debug, Clone)]
pub struct Written {
    /// The written object, or the Status or Scale that the endpoint returns.
    pub object: Object,
    /// Answers 201 instead of 200.
    pub created: bool,
    /// The object is a Status of success: a pod is bound or evicted.
    pub status: bool,
}
/// The answer to a delete.
#[derive(Debug, Clone)]
pub enum Deleted {
    /// The object: it still exists, or its kind returns the last state.
    Object {
        /// The object.
        object: Object,
        /// It still exists, because of finalizers or its grace period.
        remains: bool,
    },
    /// Removed; answers with a Success Status.
    Gone {
        /// Its uid.
        uid: String,
    },
    /// Removed without being read; answers with a Success Status.
    Unread,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_a_field_manager_end_where_further_ones_would_be_dropped() {
        let mut errors = field::Errors::new();
        check_field_manager("a\u{1}b\n", || field::Path::new("fieldManager"), &mut errors);
        let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
        let expected = [
            r#"fieldManager: Invalid value: "a\x01b\n": invalid character U+0001 (at position 1)"#,
            r#"fieldManager: Invalid value: "a\x01b\n": invalid character U+000A (at position 3)"#,
        ];
        assert_eq!(texts, expected);
        // Half a million errors of two million bytes each would take an hour.
        let mut errors = field::Errors::new();
        let long = "\u{1}".repeat(500_000);
        check_field_manager(&long, || field::Path::new("fieldManager"), &mut errors);
        assert!(errors.is_full() && errors.len() < 10, "{}", errors.len());
    }
}
