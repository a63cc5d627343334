//! Valid combinations of list and watch options (spec: api-server §6, §7).
use crate::features::{Feature, FeatureGates};
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
    /// Reads the options of a watch, which are valid.
    pub(crate) fn of(options: &ListOptions) -> Result<Self, ApiError> {
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
    /// Any state; the limit is ignored, unless the server has no watch cache for its clients.
    Any,
    /// Not older than this revision.
    AtLeast(u64),
    /// Exactly this revision.
    Exactly(u64),
    /// Continues where the previous page ended.
    Continue,
}
impl ListAt {
    /// Reads the options of a list, which are valid, except the content of the continue token.
    pub(super) fn of(options: &ListOptions) -> Result<Self, ApiError> {
        let text = options.resource_version.as_str();
        if !options.continue_token.is_empty() {
            return Ok(Self::Continue);
        }
        let revision = parse_revision(text)
            .map_err(|fault| ApiError::bad_request(format!("invalid resource version: {fault}")))?;
        Ok(match (text, &options.resource_version_match) {
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
/// The rules of `resourceVersionMatch` and `sendInitialEvents`, in the order of the reference.
impl ListOptions {
    /// Checks the options that say which state is read, as those of a list or of a watch.
    ///
    /// # Errors
    ///
    /// 422 on `ListOptions`, with a cause for each violation.
    pub fn validate(&self, watch: bool, features: FeatureGates) -> Result<(), ApiError> {
        let mut errors = Errors::new();
        match watch {
            true => self.validate_watch(&mut errors, features),
            false => self.validate_list(&mut errors),
        }
        if errors.is_empty() {
            return Ok(());
        }
        let kind = GroupKind { group: "meta.k8s.io".into(), kind: "ListOptions".into() };
        Err(ApiError::invalid(&kind, "", &errors))
    }
    fn validate_list(&self, errors: &mut Errors) {
        if let Some(word) = &self.resource_version_match {
            if self.resource_version.is_empty() {
                errors.push(forbidden(
                    MATCH,
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                ));
            }
            if !self.continue_token.is_empty() {
                errors.push(forbidden(MATCH, NO_CONTINUE));
            }
            if matches!(word, VersionMatch::Other(_)) {
                errors.push(unsupported(word, &["Exact", "NotOlderThan", ""]));
            }
            if *word == VersionMatch::Exact && self.resource_version == "0" {
                errors.push(forbidden(
                    MATCH,
                    "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                ));
            }
        }
        if self.send_initial_events.is_some() {
            errors.push(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
        }
    }
    fn validate_watch(&self, errors: &mut Errors, features: FeatureGates) {
        let asks_for_initial = self.send_initial_events.is_some();
        if asks_for_initial && self.resource_version_match != Some(VersionMatch::NotOlderThan) {
            errors.push(forbidden(
                MATCH,
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ));
        }
        if asks_for_initial && !features.is_on(Feature::WatchList) {
            errors.push(forbidden(
                "sendInitialEvents",
                "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled",
            ));
        }
        match &self.resource_version_match {
            Some(word) => {
                if !asks_for_initial {
                    errors.push(forbidden(
                        MATCH,
                        "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                    ));
                }
                if *word != VersionMatch::NotOlderThan {
                    errors.push(unsupported(word, &["NotOlderThan"]));
                }
            }
            // A watch from any or the newest state is one with its initial events.
            None if !asks_for_initial && matches!(&*self.resource_version, "" | "0") => {}
            None => return,
        }
        if !self.continue_token.is_empty() {
            errors.push(forbidden(MATCH, NO_CONTINUE));
        }
    }
}

const MATCH: &str = "resourceVersionMatch";
const NO_CONTINUE: &str = "resourceVersionMatch is forbidden when continue is provided";

fn forbidden(name: &str, why: &str) -> Error {
    Error::forbidden(Path::new(name), why)
}
fn unsupported(word: &VersionMatch, supported: &[&str]) -> Error {
    Error::not_supported(Path::new(MATCH), &word.as_str().into(), supported)
}
