//! Stored values: decoding, and the API errors for the store's errors.
use serde_json::Value;
use setpoint_object::{ApiError, Reason};
use setpoint_store::{StoreError, is_sealed};

/// The API error for an error of the store.
pub(crate) fn store_error(error: StoreError) -> ApiError {
    match error {
        // The message of etcd, which Kubernetes usually runs on: clients check for it.
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
/// The API error for a failed read.
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

/// Why a store without encryption cannot read a value. The words are those of Kubernetes' API
/// server.
pub(crate) const NOT_ENCRYPTING: &str = "identity transformer tried to read encrypted data";
/// The error for a value that could not be decrypted or decoded.
pub(crate) fn unreadable(key: &[u8], reason: &str) -> ApiError {
    let (key, reason) = (String::from_utf8_lossy(key).into_owned(), reason.to_owned());
    read_error(StoreError::Unreadable { key, reason })
}

/// Decodes stored bytes to a tree.
pub(crate) fn tree(bytes: &[u8]) -> Result<Value, ApiError> {
    if is_sealed(bytes) {
        return Err(ApiError::internal(NOT_ENCRYPTING));
    }
    let undecodable = |why: &dyn std::fmt::Display| {
        ApiError::internal(format_args!("unable to decode the stored object: {why}"))
    };
    // Checked as a whole, which is faster than text by text.
    let text = std::str::from_utf8(bytes).map_err(|e| undecodable(&e))?;
    serde_json::from_str(text).map_err(|e| undecodable(&e))
}
