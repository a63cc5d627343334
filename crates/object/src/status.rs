//! `Status` and the errors that become one (spec: api-server §4).
use crate::field;
use crate::gvk::{GroupKind, GroupResource};
use serde::{Deserialize, Serialize};

/// A machine-readable reason of a `Status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Reason {
    BadRequest,
    Unauthorized,
    Forbidden,
    NotFound,
    AlreadyExists,
    Conflict,
    Gone,
    Invalid,
    Expired,
    TooManyRequests,
    InternalError,
    ServerTimeout,
    Timeout,
    MethodNotAllowed,
    NotAcceptable,
    RequestEntityTooLarge,
    UnsupportedMediaType,
    ServiceUnavailable,
    /** The member is absent. */
    Unknown,
}

/// The wire object `kind: Status`, `apiVersion: v1`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)]
pub struct Status {
    #[serde(default)]
    pub metadata: ListMeta,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub status: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Details>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u16>,
}
/// `metadata` of lists and of `Status`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)]
pub struct ListMeta {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    #[serde(default, rename = "continue", skip_serializing_if = "String::is_empty")]
    pub continue_token: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining_item_count: Option<i64>,
}
/// `details` of a `Status`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)]
pub struct Details {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retry_after_seconds: u32,
}
fn is_zero(n: &u32) -> bool {
    *n == 0
}
/// One cause of a failure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[allow(missing_docs)]
pub struct Cause {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub field: String,
}

/// A failure as clients see it: a `Status` with `status: Failure` and an HTTP code.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{}", .0.message)]
pub struct ApiError(pub Box<Status>);
impl ApiError {
    /// Any failure: `details` absent.
    pub fn new(_code: u16, _reason: Reason, _message: impl Into<String>) -> Self {
        todo!()
    }
    /// 400 `BadRequest`, no details.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, Reason::BadRequest, message)
    }
    /// 401.
    pub fn unauthorized() -> Self {
        Self::new(401, Reason::Unauthorized, "Unauthorized")
    }
    /// 403 `<resource> "<name>" is forbidden: <why>`.
    pub fn forbidden(_resource: &GroupResource, _name: &str, _why: &str) -> Self {
        todo!()
    }
    /// 404 `<resource> "<name>" not found`.
    pub fn not_found(_resource: &GroupResource, _name: &str) -> Self {
        todo!()
    }
    /// 404 `the server could not find the requested resource`, `details: {}`.
    pub fn no_route() -> Self {
        todo!()
    }
    /// 405 `the server does not allow this method on the requested resource`, `details: {}`.
    pub fn method_not_allowed() -> Self {
        todo!()
    }
    /// 409 `<resource> "<name>" already exists`.
    pub fn already_exists(_resource: &GroupResource, _name: &str) -> Self {
        todo!()
    }
    /// 409 `Operation cannot be fulfilled on <resource> "<name>": <why>`.
    pub fn conflict(_resource: &GroupResource, _name: &str, _why: &str) -> Self {
        todo!()
    }
    /// 409 with the text of a stale write.
    pub fn stale(resource: &GroupResource, name: &str) -> Self {
        Self::conflict(
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }
    /// 410 `Expired`, no details.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, Reason::Expired, message)
    }
    /// 413.
    pub fn too_large(limit: usize) -> Self {
        Self::new(
            413,
            Reason::RequestEntityTooLarge,
            format!("Request entity too large: limit is {limit}"),
        )
    }
    /// 422 `<Kind>.<group> "<name>" is invalid: <errors>` with one cause per error (kind and name may be empty).
    pub fn invalid(_kind: &GroupKind, _name: &str, _errors: &[field::Error]) -> Self {
        todo!()
    }
    /// 429 with `retryAfterSeconds`.
    pub fn too_many_requests(_message: impl Into<String>, _retry_after_seconds: u32) -> Self {
        todo!()
    }
    /// 500 `Internal error occurred: <err>`.
    pub fn internal(_err: impl std::fmt::Display) -> Self {
        todo!()
    }
    /// 500 without reason and details: the bare text.
    pub fn unclassified(message: impl Into<String>) -> Self {
        Self::new(500, Reason::Unknown, message)
    }
    /// 504 `Timeout: Too large resource version: N, current: M` with its cause.
    pub fn too_large_resource_version(_asked: u64, _current: u64) -> Self {
        todo!()
    }
    /// The HTTP code.
    pub fn code(&self) -> u16 {
        self.0.code.unwrap_or(500)
    }
    /// Its reason.
    pub fn reason(&self) -> Reason {
        todo!()
    }
    /// The `Status` as JSON with `kind` and `apiVersion` first.
    pub fn to_json(&self) -> Vec<u8> {
        todo!()
    }
}
