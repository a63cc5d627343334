//! Stored values: what the store's errors are to a client, and bytes as trees.
use serde_json::Value;
use setpoint_object::{ApiError, Reason};
use setpoint_store::{StoreError, is_sealed};

/// What the API answers when the store fails.
pub(crate) fn store_error(error: StoreError) -> ApiError {
    match error {
        // The text of the store that Kubernetes usually runs on: clients test for it.
        StoreError::TooLarge { .. } => ApiError::unclassified("etcdserver: request is too large"),
        StoreError::Unknown(_) => ApiError::new(
            504,
            Reason::Timeout,
            "Timeout: request did not complete within requested timeout - context deadline exceeded",
        ),
        StoreError::Unavailable(_) | StoreError::Closed => {
            ApiError::new(503, Reason::ServiceUnavailable, error.to_string())
        }
        // RFC 4918: no room for the state that the request leads to. Kubernetes has no reason for
        // it.
        StoreError::Full(_) => ApiError::new(
            507,
            Reason::InsufficientStorage,
            format!("{error}: make room where it keeps its data, or delete objects, which goes on"),
        ),
        other => ApiError::internal(other),
    }
}
/// A read's failure as clients see it.
pub(crate) fn read_error(error: StoreError) -> ApiError {
    match error {
        StoreError::Compacted { .. } => {
            ApiError::expired("The resourceVersion for the provided list is too old.")
        }
        StoreError::Future { asked, current } => {
            ApiError::too_large_resource_version(asked.0, current.0)
        }
        other => store_error(other),
    }
}

/// Why a store that encrypts nothing cannot tell what a value holds. The words are those of
/// Kubernetes' API server.
pub(crate) const NOT_ENCRYPTING: &str = "identity transformer tried to read encrypted data";
/// A value that could not be made out.
pub(crate) fn unreadable(key: &[u8], reason: &str) -> ApiError {
    let (key, reason) = (String::from_utf8_lossy(key).into_owned(), reason.to_owned());
    read_error(StoreError::Unreadable { key, reason })
}

/// The tree of stored bytes.
pub(crate) fn tree(bytes: &[u8]) -> Result<Value, ApiError> {
    if is_sealed(bytes) {
        return Err(ApiError::internal(NOT_ENCRYPTING));
    }
    serde_json::from_slice(bytes)
        .map_err(|e| ApiError::internal(format_args!("unable to decode the stored object: {e}")))
}
