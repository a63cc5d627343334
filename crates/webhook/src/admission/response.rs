//! Admission responses and their wire format.

use super::refusal::Refusal;
use crate::patch;
use crate::review::{Form, Version};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use json_patch::Patch;
use serde::Serialize;
use setpoint_object::status::{Reason, Status};
use std::collections::BTreeMap;

/// Whether a request is admitted.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// It is admitted.
    Allowed,
    /// It is denied, and the client receives this status.
    Denied(Box<Status>),
}

/// The response to an admission request.
///
/// Its only patch type is JSON patch (RFC 6902), the only type that API servers accept (WHK-8).
#[derive(Debug, Clone, PartialEq)]
#[must_use = "an answer does nothing unless the handler returns it"]
#[non_exhaustive]
pub struct AdmissionResponse {
    /// Whether the request is admitted.
    pub verdict: Verdict,
    /// The changes to the object; empty for none. Ignored for a denial.
    pub patch: Patch,
    /// Warnings to the client in either case; see [`Call::warn`](super::Call::warn).
    pub warnings: Vec<String>,
    /// Annotations of the audit event in either case; see
    /// [`Call::annotate`](super::Call::annotate).
    pub audit_annotations: BTreeMap<String, String>,
}

impl AdmissionResponse {
    fn new(verdict: Verdict) -> Self {
        Self {
            verdict,
            patch: Patch::default(),
            warnings: Vec::new(),
            audit_annotations: BTreeMap::new(),
        }
    }

    /// Admits the request unchanged.
    pub fn allowed() -> Self {
        Self::new(Verdict::Allowed)
    }

    /// Admits the request with these changes.
    pub fn patched(patch: Patch) -> Self {
        Self { patch, ..Self::allowed() }
    }

    /// Admits the request with the changes from `raw` (the JSON text of the request's object) to
    /// `changed`.
    ///
    /// # Errors
    ///
    /// If either is not JSON.
    pub fn patched_from_raw(raw: &[u8], changed: &[u8]) -> Result<Self, serde_json::Error> {
        let (raw, changed) = (serde_json::from_slice(raw)?, serde_json::from_slice(changed)?);
        Ok(Self::patched(patch::between(&raw, &changed)))
    }

    /// Denies the request: 403 `Forbidden` with this message.
    pub fn denied(message: impl Into<String>) -> Self {
        Refusal::denied(message).into()
    }

    /// Denies the request because the webhook could not decide: this code and message, no reason.
    pub fn errored(code: u16, message: impl Into<String>) -> Self {
        Refusal::errored(code, message).into()
    }

    /// Whether the request is admitted.
    pub fn is_allowed(&self) -> bool {
        self.verdict == Verdict::Allowed
    }

    /// Adds a warning.
    pub fn with_warning(mut self, text: impl Into<String>) -> Self {
        self.warnings.push(text.into());
        self
    }

    /// Serializes the review with this response.
    pub(crate) fn write(&self, version: Version, uid: &str) -> Bytes {
        // An empty patch is left out: a response has both `patch` and `patchType`, or neither.
        let is_patched = self.is_allowed() && !self.patch.0.is_empty();
        let patch = is_patched.then(|| serde_json::to_vec(&self.patch).map(|p| STANDARD.encode(p)));
        let patch = match patch.transpose() {
            Ok(patch) => patch,
            Err(error) => {
                let errored = Self::errored(500, format!("cannot write the patch: {error}"));
                return errored.write(version, uid);
            }
        };
        let status = match &self.verdict {
            Verdict::Allowed => None,
            Verdict::Denied(status) => Some(&**status),
        };
        let review = Wire {
            kind: Form::ADMISSION.kind,
            api_version: Form::ADMISSION.api_version(version),
            response: WireResponse {
                uid,
                allowed: self.is_allowed(),
                status,
                patch_type: patch.as_ref().map(|_| "JSONPatch"),
                patch,
                audit_annotations: &self.audit_annotations,
                warnings: &self.warnings,
            },
        };
        // Cannot fail: every key is a string and every number is finite.
        serde_json::to_vec(&review).unwrap_or_default().into()
    }
}

impl From<Refusal> for AdmissionResponse {
    fn from(refusal: Refusal) -> Self {
        let mut status = refusal.into_status();
        // A denial is always a failure, also if its author left the field empty.
        if status.status.is_empty() {
            "Failure".clone_into(&mut status.status);
        }
        if Reason::from_name(&status.reason) == Reason::Forbidden && status.code.is_none() {
            status.code = Some(403);
        }
        Self::new(Verdict::Denied(status))
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Wire<'a> {
    kind: &'static str,
    api_version: &'static str,
    response: WireResponse<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WireResponse<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'a Status>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    audit_annotations: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    warnings: &'a [String],
}
