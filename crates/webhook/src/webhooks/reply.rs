//! The HTTP response.

use bytes::Bytes;
use setpoint_object::status::ApiError;

/// A response: an HTTP code and a JSON body, which is a review or a `Status`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct Reply {
    /// The HTTP code: 200 with a review, whatever its verdict; otherwise the code of the `Status`.
    pub code: u16,
    /// The review or `Status`; always `application/json`.
    pub body: Bytes,
}

impl Reply {
    pub(crate) fn ok(body: Bytes) -> Self {
        Self { code: 200, body }
    }

    /// For requests that cannot be answered with a review. API servers show the message: `failed to
    /// call webhook: <message>`.
    pub(crate) fn error(error: &ApiError) -> Self {
        Self { code: error.code(), body: error.to_json().into() }
    }
}
