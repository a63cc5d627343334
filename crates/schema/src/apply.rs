//! Server-side apply and managedFields (spec: patch §5).
use crate::node::TypeSchema;
use serde_json::Value;
use setpoint_object::ApiError;
use setpoint_object::time::Timestamp;
use std::collections::BTreeSet;

/// Who writes, through what.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct Manager<'a> {
    pub name: &'a str,
    /** `apiVersion` of the request. */
    pub api_version: &'a str,
    /** Empty for the main endpoint. */
    pub subresource: &'a str,
    pub now: Timestamp,
}
/// What the type looks like for field ownership.
#[derive(Debug, Clone)]
pub struct Typing<'a> {
    /// Schema of the request's version.
    pub schema: &'a TypeSchema,
    /// `group/version, Kind=X` parts for messages.
    pub kind: &'a str,
    /// Top-level members this endpoint resets (`status` on the main endpoint, `spec` on `/status`; `metadata` on `/status` of custom resources): never owned.
    pub reset: &'a BTreeSet<&'a str>,
    /// The object is a custom resource (structs carry `.` when created).
    pub custom: bool,
    /// The served versions of this kind; entries of other versions are dropped.
    pub versions: &'a [String],
}
/// After an update, create or non-apply patch: recomputes `new.metadata.managedFields` from `old` (`None` on create) (spec 5.3). Never fails.
pub fn update(
    _typing: &Typing<'_>,
    _old: Option<&Value>,
    _new: &mut Value,
    _manager: &Manager<'_>,
) {
    todo!()
}
/// Server-side apply of `config` onto `live` (`None`: create). Returns the merged object with its managedFields, not yet defaulted by built-in
/// defaulting nor validated; the caller runs the ordinary update path, then [`finish_apply`] (spec 5.4).
pub fn apply(
    _typing: &Typing<'_>,
    _live: Option<&Value>,
    _config: &Value,
    _manager: &Manager<'_>,
    _force: bool,
) -> Result<Value, ApiError> {
    todo!()
}
/// Settles timestamps: when nothing but managedFields' times would change, the old entries (and so the old bytes) stay.
pub fn settle_times(_old: Option<&Value>, _new: &mut Value) {
    todo!()
}
