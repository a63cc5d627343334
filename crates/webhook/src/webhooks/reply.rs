//! What goes back over HTTP.

use bytes::Bytes;
use setpoint_object::status::ApiError;

/// An answer: an HTTP code and a body of JSON, a review or a `Status`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct Reply {
    /// The HTTP code: 200 with a review, whatever the verdict in it; otherwise the code of the
    /// `Status`.
    pub code: u16,
    /// The review or `Status`; always `application/json`.
    pub body: Bytes,
}

impl Reply {
    pub(crate) fn ok(body: Bytes) -> Self {
        Self { code: 200, body }
    }

    /// For what cannot be answered by a review. API servers show the message: `failed to call
    /// webhook: <message>`.
    pub(crate) fn error(error: &ApiError) -> Self {
        Self { code: error.code(), body: error.to_json().into() }
    }
}
