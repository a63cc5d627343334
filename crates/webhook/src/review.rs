//! The envelope of a review: its kind, its version, and the UID that the answer repeats.
//!
//! A body is parsed in two steps, so that the UID is known before the rest is read. Once
//! [`Envelope::open`] has succeeded, every failure is reported in a review that the API server can
//! match to its request. Objects are not parsed here; they stay slices of the body.

use bytes::Bytes;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// A review's version. The answer has the same version as the request (WHK-3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    /// `v1`; also a review without an `apiVersion`.
    V1,
    /// `v1beta1`: the same fields.
    V1Beta1,
}

/// A kind of review.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Form {
    pub(crate) kind: &'static str,
    v1: &'static str,
    v1beta1: &'static str,
}

impl Form {
    /// `AdmissionReview`.
    pub(crate) const ADMISSION: Self = Self {
        kind: "AdmissionReview",
        v1: "admission.k8s.io/v1",
        v1beta1: "admission.k8s.io/v1beta1",
    };
    /// `ConversionReview`.
    pub(crate) const CONVERSION: Self = Self {
        kind: "ConversionReview",
        v1: "apiextensions.k8s.io/v1",
        v1beta1: "apiextensions.k8s.io/v1beta1",
    };
    /// `TokenReview`.
    pub(crate) const TOKEN: Self = Self {
        kind: "TokenReview",
        v1: "authentication.k8s.io/v1",
        v1beta1: "authentication.k8s.io/v1beta1",
    };

    /// The `apiVersion` of a review in this version.
    pub(crate) fn api_version(self, version: Version) -> &'static str {
        match version {
            Version::V1 => self.v1,
            Version::V1Beta1 => self.v1beta1,
        }
    }

    /// The version of a review with this `apiVersion` and kind.
    pub(crate) fn version(self, api_version: &str, kind: &str) -> Result<Version, ReviewError> {
        if api_version.is_empty() && kind.is_empty() {
            return Ok(Version::V1);
        }
        let known = [Version::V1, Version::V1Beta1];
        let version = known.into_iter().find(|version| self.api_version(*version) == api_version);
        version.filter(|_| kind == self.kind).ok_or_else(|| ReviewError::Kind {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            expected: self.kind,
        })
    }
}

/// Why a body is not a review that can be answered with a review.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReviewError {
    #[error("request body is empty")]
    Empty,
    #[error("request body is not a review: {0}")]
    Json(#[from] serde_json::Error),
    #[error(
        "unexpected review apiVersion={api_version:?}, kind={kind:?}: want kind={expected:?} in version v1 or v1beta1"
    )]
    Kind { api_version: String, kind: String, expected: &'static str },
    #[error("request body is not a review: it is no JSON object")]
    NoObject,
    #[error("the review has no request")]
    NoRequest,
}

/// Checked because the decoder would also read a list as a struct, element by element.
pub(crate) fn check_object(text: &[u8]) -> Result<(), ReviewError> {
    match text.trim_ascii_start().first() {
        Some(b'{') => Ok(()),
        Some(_) => Err(ReviewError::NoObject),
        None => Err(ReviewError::Empty),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawEnvelope<'a> {
    #[serde(default, deserialize_with = "nullable")]
    api_version: String,
    #[serde(default, deserialize_with = "nullable")]
    kind: String,
    #[serde(borrow, default)]
    request: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Marked {
    #[serde(default, deserialize_with = "nullable")]
    uid: String,
}

/// A review whose version and UID are known, and whose request is not parsed yet.
#[derive(Debug)]
pub(crate) struct Envelope<'a> {
    pub(crate) version: Version,
    pub(crate) uid: String,
    request: &'a RawValue,
}

impl<'a> Envelope<'a> {
    /// Parses the envelope of a body.
    pub(crate) fn open(form: Form, body: &'a [u8]) -> Result<Self, ReviewError> {
        check_object(body)?;
        let envelope: RawEnvelope<'a> = serde_json::from_slice(body)?;
        let version = form.version(&envelope.api_version, &envelope.kind)?;
        let request = envelope.request.ok_or(ReviewError::NoRequest)?;
        check_object(request.get().as_bytes())?;
        let marked: Marked = serde_json::from_str(request.get())?;
        Ok(Self { version, uid: marked.uid, request })
    }

    /// Parses the request.
    pub(crate) fn request<R: Deserialize<'a>>(&self) -> Result<R, serde_json::Error> {
        serde_json::from_str(self.request.get())
    }
}

/// The slice of `body` that a raw value borrows, without a copy.
pub(crate) fn slice(body: &Bytes, raw: &RawValue) -> Bytes {
    body.slice_ref(raw.get().as_bytes())
}

/// Reads `null` as absent, as Go's decoder does.
pub(crate) fn nullable<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(body: &str) -> Result<(Version, String), String> {
        Envelope::open(Form::ADMISSION, body.as_bytes())
            .map(|envelope| (envelope.version, envelope.uid))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn version_and_uid_are_read_before_the_rest_whk_3() {
        let review = |api_version: &str| {
            format!(
                r#"{{"request":{{"operation":7,"uid":"u"}},"kind":"AdmissionReview","apiVersion":"{api_version}"}}"#
            )
        };
        assert_eq!(open(&review("admission.k8s.io/v1")), Ok((Version::V1, "u".into())));
        assert_eq!(open(&review("admission.k8s.io/v1beta1")), Ok((Version::V1Beta1, "u".into())));
        assert_eq!(open(r#"{"request":{"uid":null}}"#), Ok((Version::V1, String::new())));
    }

    #[test]
    fn body_that_is_not_a_review_is_an_error() {
        assert_eq!(open(""), Err("request body is empty".into()));
        assert_eq!(open("{}"), Err("the review has no request".into()));
        assert_eq!(open(r#"{"request":null}"#), Err("the review has no request".into()));
        let other = r#"{"apiVersion":"v1","kind":"Pod","request":{}}"#;
        let error = open(other).unwrap_err();
        assert!(error.starts_with(r#"unexpected review apiVersion="v1", kind="Pod""#), "{error}");
        for body in [
            "[]",
            "1",
            "{\"request\":[]}",
            "\"",
            "{\"request\":7}",
            "{\"request\":{\"uid\":7}}",
            "\u{0}",
        ] {
            assert!(open(body).is_err_and(|e| e.contains("is not a review")), "{body}");
        }
    }
}
