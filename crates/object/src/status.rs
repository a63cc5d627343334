//! `Status` and the errors that convert to it (spec: api-server §4).
use crate::gvk::{GroupKind, GroupResource};
use crate::{encode, field};
use serde::{Deserialize, Serialize};

/// Maximum size of the field errors in one `Status`: 1 MiB. A body of 3 MiB can cause a hundred
/// thousand errors, and each is written twice.
pub const ERRORS_BYTES_MAX: usize = 1 << 20;

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
    InsufficientStorage,
    StoreReadError,
    /** The member is absent. */
    Unknown,
}

impl Reason {
    /// All reasons and their wire names.
    const NAMES: [(Self, &'static str); 20] = [
        (Self::BadRequest, "BadRequest"),
        (Self::Unauthorized, "Unauthorized"),
        (Self::Forbidden, "Forbidden"),
        (Self::NotFound, "NotFound"),
        (Self::AlreadyExists, "AlreadyExists"),
        (Self::Conflict, "Conflict"),
        (Self::Gone, "Gone"),
        (Self::Invalid, "Invalid"),
        (Self::Expired, "Expired"),
        (Self::TooManyRequests, "TooManyRequests"),
        (Self::InternalError, "InternalError"),
        (Self::ServerTimeout, "ServerTimeout"),
        (Self::Timeout, "Timeout"),
        (Self::MethodNotAllowed, "MethodNotAllowed"),
        (Self::NotAcceptable, "NotAcceptable"),
        (Self::RequestEntityTooLarge, "RequestEntityTooLarge"),
        (Self::UnsupportedMediaType, "UnsupportedMediaType"),
        (Self::ServiceUnavailable, "ServiceUnavailable"),
        (Self::InsufficientStorage, "InsufficientStorage"),
        (Self::StoreReadError, "StorageReadError"),
    ];
    /// The wire name; empty for `Unknown`.
    pub fn as_str(&self) -> &'static str {
        Self::NAMES.iter().find(|(reason, _)| reason == self).map_or("", |(_, name)| name)
    }
    /// The reason of a wire name; `Unknown` for other names.
    pub fn from_name(name: &str) -> Self {
        Self::NAMES.iter().find(|(_, n)| *n == name).map_or(Self::Unknown, |(reason, _)| *reason)
    }
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

/// A failure as clients receive it: a `Status` with `status: Failure` and an HTTP code.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{}", .0.message)]
pub struct ApiError(pub Box<Status>);
impl ApiError {
    /// Creates a failure without `details`.
    pub fn new(code: u16, reason: Reason, message: impl Into<String>) -> Self {
        Self(Box::new(Status {
            metadata: ListMeta::default(),
            status: "Failure".to_owned(),
            message: message.into(),
            reason: reason.as_str().to_owned(),
            details: None,
            code: Some(code),
        }))
    }
    /// Sets the details.
    #[must_use]
    pub fn with_details(mut self, details: Details) -> Self {
        self.0.details = Some(details);
        self
    }
    /// A failure of one object of a resource.
    fn about(
        code: u16,
        reason: Reason,
        resource: &GroupResource,
        name: &str,
        message: String,
    ) -> Self {
        Self::new(code, reason, message).with_details(Details {
            name: name.to_owned(),
            group: resource.group.to_string(),
            kind: resource.resource.to_string(),
            ..Details::default()
        })
    }
    /// 400 `BadRequest`, no details.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, Reason::BadRequest, message)
    }
    /// 401.
    pub fn unauthorized() -> Self {
        Self::new(401, Reason::Unauthorized, "Unauthorized")
    }
    /// 403 `<resource> "<name>" is forbidden: <why>`; without a name `<resource> is forbidden:
    /// <why>`, without a resource `forbidden: <why>`.
    pub fn forbidden(resource: &GroupResource, name: &str, why: &str) -> Self {
        let message = match (resource.resource.is_empty(), name.is_empty()) {
            (true, _) => format!("forbidden: {why}"),
            (_, true) => format!("{resource} is forbidden: {why}"),
            _ => format!("{resource} {} is forbidden: {why}", field::quote(name)),
        };
        Self::about(403, Reason::Forbidden, resource, name, message)
    }
    /// 404 `<resource> "<name>" not found`.
    pub fn not_found(resource: &GroupResource, name: &str) -> Self {
        let message = format!("{resource} {} not found", field::quote(name));
        Self::about(404, Reason::NotFound, resource, name, message)
    }
    /// 404 `the server could not find the requested resource`, `details: {}`.
    pub fn no_route() -> Self {
        Self::new(404, Reason::NotFound, "the server could not find the requested resource")
            .with_details(Details::default())
    }
    /// 405 `the server does not allow this method on the requested resource`, `details: {}`.
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, Reason::MethodNotAllowed, message).with_details(Details::default())
    }
    /// 409 `<resource> "<name>" already exists`.
    pub fn already_exists(resource: &GroupResource, name: &str) -> Self {
        let message = format!("{resource} {} already exists", field::quote(name));
        Self::about(409, Reason::AlreadyExists, resource, name, message)
    }
    /// 409 `Operation cannot be fulfilled on <resource> "<name>": <why>`.
    pub fn conflict(resource: &GroupResource, name: &str, why: &str) -> Self {
        let name_quoted = field::quote(name);
        let message = format!("Operation cannot be fulfilled on {resource} {name_quoted}: {why}");
        Self::about(409, Reason::Conflict, resource, name, message)
    }
    /// 409 with the text of a write to a stale object.
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
    /// 422 `<Kind>.<group> "<name>" is invalid: <errors>` with one cause per error (kind and name
    /// may be empty). Beyond [`ERRORS_BYTES_MAX`], only the first errors are shown.
    pub fn invalid(kind: &GroupKind, name: &str, errors: &[field::Error]) -> Self {
        let mut bytes = 0;
        let fits = |error: &&field::Error| {
            let before = bytes;
            bytes += error.n_bytes();
            before < ERRORS_BYTES_MAX
        };
        let n_shown = errors.iter().take_while(fits).count();
        let (shown, others) = errors.split_at(n_shown);
        let errors_text = field::aggregate(shown);
        let more = match others.len() {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        let message = format!("{kind} {} is invalid: {errors_text}{more}", field::quote(name));
        let causes = shown
            .iter()
            .map(|error| Cause {
                reason: error.reason().to_owned(),
                message: error.message(),
                field: error.path.to_string(),
            })
            .collect();
        Self::new(422, Reason::Invalid, message).with_details(Details {
            name: name.to_owned(),
            group: kind.group.to_string(),
            kind: kind.kind.to_string(),
            causes,
            ..Details::default()
        })
    }
    /// 429 with `retryAfterSeconds`.
    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        Self::new(429, Reason::TooManyRequests, message)
            .with_details(Details { retry_after_seconds, ..Details::default() })
    }
    /// 500 `Internal error occurred: <err>`.
    pub fn internal(err: impl std::fmt::Display) -> Self {
        let text = err.to_string();
        let message = format!("Internal error occurred: {text}");
        Self::new(500, Reason::InternalError, message).with_details(Details {
            causes: vec![Cause { message: text, ..Cause::default() }],
            ..Details::default()
        })
    }
    /// The message, without the words that [`internal`](Self::internal) puts before it.
    pub fn detail(&self) -> &str {
        let text = &*self.0.message;
        text.strip_prefix("Internal error occurred: ").unwrap_or(text)
    }
    /// 500 with only the message, without reason and details.
    pub fn unclassified(message: impl Into<String>) -> Self {
        Self::new(500, Reason::Unknown, message)
    }
    /// 504 `Timeout: Too large resource version: N, current: M` with its cause.
    pub fn too_large_resource_version(requested: u64, current: u64) -> Self {
        let message =
            format!("Timeout: Too large resource version: {requested}, current: {current}");
        Self::new(504, Reason::Timeout, message).with_details(Details {
            causes: vec![Cause {
                reason: "ResourceVersionTooLarge".to_owned(),
                message: "Too large resource version".to_owned(),
                field: String::new(),
            }],
            retry_after_seconds: 1,
            ..Details::default()
        })
    }
    /// The HTTP code.
    pub fn code(&self) -> u16 {
        self.0.code.unwrap_or(500)
    }
    /// The reason.
    pub fn reason(&self) -> Reason {
        Reason::from_name(&self.0.reason)
    }
    /// Serializes the `Status` as JSON with `kind` and `apiVersion` first.
    pub fn to_json(&self) -> Vec<u8> {
        self.0.to_json()
    }
}
impl Status {
    /// The bytes of its texts. As JSON they take up to six times as many.
    pub fn n_bytes(&self) -> usize {
        let details = self.details.iter().map(|details| {
            let Details { name, group, kind, uid, causes, .. } = details;
            let of_cause = |cause: &Cause| {
                let Cause { reason, message, field } = cause;
                reason.len() + message.len() + field.len()
            };
            let causes = causes.iter().map(of_cause).sum::<usize>();
            name.len() + group.len() + kind.len() + uid.len() + causes
        });
        self.message.len() + details.sum::<usize>()
    }
    /// An otherwise empty Success.
    pub fn success() -> Self {
        Self { status: "Success".to_owned(), ..Self::default() }
    }
    /// Serializes as JSON with `kind` and `apiVersion` first.
    pub fn to_json(&self) -> Vec<u8> {
        let mut json = br#"{"kind":"Status","apiVersion":"v1","#.to_vec();
        let body_at = json.len();
        match encode::push_serialized(&mut json, self) {
            // The body's opening brace is replaced with the header and a comma: `metadata` always
            // follows.
            Ok(()) => _ = json.remove(body_at),
            Err(_) => unreachable!("a Status has only strings, numbers and lists"),
        }
        json
    }
}

#[cfg(test)]
mod tests;
