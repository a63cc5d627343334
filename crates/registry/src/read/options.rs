//! Valid combinations of list and watch options (spec: api-server §6, §7).
use crate::request::{ListOptions, VersionMatch};
use setpoint_object::field::{Error, Errors, Path, quote};
use setpoint_object::meta::parse_resource_version;
use setpoint_object::{ApiError, GroupKind};

/// Required freshness of the initial state of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fresh {
    /// Any state.
    Any,
    /// The store's present state.
    Newest,
    /// Not older than this.
    AtLeast(u64),
}
/// Where a watch starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatchStart {
    /// Starts with the existing objects as ADDED events.
    Initial(Fresh),
    /// Starts with the first change after this revision.
    After(u64),
    /// Starts with the first change from now on.
    Now(Fresh),
}
impl WatchStart {
    /// Checks the options of a watch.
    pub(crate) fn of(options: &ListOptions) -> Result<Self, ApiError> {
        let mut errors = Errors::new();
        let mut forbid =
            |name: &str, why: &str| errors.push(Error::forbidden(Path::new(name), why));
        let version_match = options.resource_version_match;
        match (options.send_initial_events, version_match) {
            (Some(_), Some(VersionMatch::NotOlderThan)) | (None, None) => {}
            (Some(_), _) => forbid(
                "resourceVersionMatch",
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ),
            (None, Some(_)) => forbid(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ),
        }
        if !options.continue_token.is_empty() {
            forbid("continue", "continue is forbidden for watch");
        }
        refuse(errors)?;
        let revision = match options.resource_version.as_str() {
            "" => None,
            text => Some(parse_revision(text).map_err(ApiError::unclassified)?),
        };
        Ok(match (options.send_initial_events, revision) {
            (Some(false), None) => Self::Now(Fresh::Newest),
            (Some(false), Some(0)) => Self::Now(Fresh::Any),
            (_, None) => Self::Initial(Fresh::Newest),
            (_, Some(0)) => Self::Initial(Fresh::Any),
            (Some(true), Some(revision)) => Self::Initial(Fresh::AtLeast(revision)),
            (_, Some(revision)) => Self::After(revision),
        })
    }
}

/// The state that a list returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ListAt {
    /// The store's present state.
    Newest,
    /// Any state; the limit is ignored.
    Any,
    /// Not older than this revision.
    AtLeast(u64),
    /// Exactly this revision.
    Exactly(u64),
    /// Continues where the previous page ended.
    Continue,
}
impl ListAt {
    /// Checks the options of a list, except the content of the continue token.
    pub(super) fn of(options: &ListOptions) -> Result<Self, ApiError> {
        let mut errors = Errors::new();
        let mut forbid =
            |name: &str, why: &str| errors.push(Error::forbidden(Path::new(name), why));
        let text = options.resource_version.as_str();
        if options.send_initial_events.is_some() {
            forbid("sendInitialEvents", "sendInitialEvents is forbidden for list");
        }
        if let Some(version_match) = options.resource_version_match {
            let name = "resourceVersionMatch";
            if text.is_empty() {
                forbid(
                    name,
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                );
            }
            if !options.continue_token.is_empty() {
                forbid(name, "resourceVersionMatch is forbidden when continue is provided");
            }
            if version_match == VersionMatch::Exact && text == "0" {
                forbid(
                    name,
                    "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                );
            }
        }
        refuse(errors)?;
        if !options.continue_token.is_empty() {
            return Ok(Self::Continue);
        }
        let revision = parse_revision(text)
            .map_err(|fault| ApiError::bad_request(format!("invalid resource version: {fault}")))?;
        Ok(match (text, options.resource_version_match) {
            ("", _) => Self::Newest,
            _ if revision == 0 => Self::Any,
            (_, Some(VersionMatch::Exact)) => Self::Exactly(revision),
            (_, None) if options.limit > 0 => Self::Exactly(revision),
            _ => Self::AtLeast(revision),
        })
    }
}

/// Parses the resourceVersion of a read; empty is 0. The error is the API's message.
pub(super) fn parse_revision(text: &str) -> Result<u64, String> {
    if text.is_empty() {
        return Ok(0);
    }
    parse_resource_version(text)
        .map_err(|fault| format!("resourceVersion: Invalid value: {}: {fault}", quote(text)))
}
fn refuse(errors: Errors) -> Result<(), ApiError> {
    if errors.is_empty() {
        return Ok(());
    }
    let kind = GroupKind { group: "meta.k8s.io".into(), kind: "ListOptions".into() };
    Err(ApiError::invalid(&kind, "", &errors))
}
