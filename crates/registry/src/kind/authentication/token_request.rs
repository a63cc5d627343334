//! Requests for a service account's token: lifetimes, and the objects that a token can be bound to.
use crate::kind::Report;
use serde_json::Value;
use setpoint_object::{ApiError, GroupVersion, field};

/// The default lifetime in seconds.
const DEFAULT_SECONDS: i64 = 60 * 60;
/// The shortest lifetime in seconds.
const SECONDS_MIN: i64 = 10 * 60;
/// The longest lifetime in seconds.
const SECONDS_MAX: i64 = 1 << 32;
/// The lifetime that is requested for tokens which are injected into pods. It marks them.
const INJECTED_SECONDS: i64 = 60 * 60 + 7;

/// An object that a token can be bound to: the token ends with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    /// A pod that runs with the service account.
    Pod,
    /// A secret.
    Secret,
    /// A node.
    Node,
}

impl Bound {
    /// What a reference names.
    ///
    /// # Errors
    ///
    /// 400 for other kinds.
    pub(crate) fn of(reference: &Value) -> Result<Self, ApiError> {
        let text = |member: &str| reference[member].as_str().unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let version = GroupVersion::parse(api_version).unwrap_or_else(|| GroupVersion::new("", ""));
        match (&*version.group, kind) {
            ("", "Pod") => Ok(Self::Pod),
            ("", "Secret") => Ok(Self::Secret),
            ("", "Node") => Ok(Self::Node),
            (group, _) => Err(ApiError::bad_request(format!(
                "cannot bind token to object of type {group}/{}, Kind={kind}",
                version.version
            ))),
        }
    }
    /// Its kind, as in references.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::Pod => "Pod",
            Self::Secret => "Secret",
            Self::Node => "Node",
        }
    }
    /// Its resource in the core group.
    pub(crate) fn resource(self) -> &'static str {
        match self {
            Self::Pod => "pods",
            Self::Secret => "secrets",
            Self::Node => "nodes",
        }
    }
    /// The claim that names it.
    pub(crate) fn claim(self) -> &'static str {
        match self {
            Self::Pod => "pod",
            Self::Secret => "secret",
            Self::Node => "node",
        }
    }
}

/// Fills in the lifetime.
pub(crate) fn default(request: &mut Value) {
    if request["spec"]["expirationSeconds"].is_null() {
        request["spec"]["expirationSeconds"] = DEFAULT_SECONDS.into();
    }
}

/// The requested lifetime in seconds.
pub(crate) fn seconds(request: &Value) -> i64 {
    request["spec"]["expirationSeconds"].as_i64().unwrap_or(DEFAULT_SECONDS)
}

/// Whether the lifetime says that the token is injected into a pod.
pub(crate) fn is_injected(request: &Value) -> bool {
    seconds(request) == INJECTED_SECONDS
}

/// Refuses lifetimes that are too short or too long.
pub(crate) fn validate(request: &Value, errors: &mut Report) {
    let path = field::Path::new("spec").child("expirationSeconds");
    let problem = match seconds(request) {
        ..SECONDS_MIN => "may not specify a duration less than 10 minutes",
        SECONDS_MIN..=SECONDS_MAX => return,
        _ => "may not specify a duration larger than 2^32 seconds",
    };
    errors.push(field::Error::invalid(path, &seconds(request).into(), problem));
}
