//! Stored values: decoding, and the API errors for the store's errors.
use serde_json::Value;
use setpoint_object::status::Details;
use setpoint_object::{ApiError, Reason};
use setpoint_schema::apply::Owners;
use setpoint_store::{ReadFault, StoreError, is_sealed};

/// What a client of etcd sends at most: 2 MiB.
const SENT_BYTES_MAX: usize = 2 << 20;

/// The error for an object that is too large to be stored. `size`: of the write, in bytes.
pub(crate) fn too_large(size: usize) -> ApiError {
    // The messages of etcd, which Kubernetes usually runs on, and of its client: clients check for
    // them.
    ApiError::unclassified(match size > SENT_BYTES_MAX {
        true => format!(
            "rpc error: code = ResourceExhausted desc = trying to send message larger than max ({size} vs. {SENT_BYTES_MAX})"
        ),
        false => "etcdserver: request is too large".to_owned(),
    })
}
/// The API error for an error of the store.
pub(crate) fn store_error(error: StoreError) -> ApiError {
    match error {
        StoreError::TooLarge { size, .. } => too_large(size),
        StoreError::Unknown(_) => ApiError::new(
            504,
            Reason::Timeout,
            "Timeout: request did not complete within requested timeout - context deadline exceeded",
        ),
        // Nothing has happened: clients try again, with client-go by themselves.
        StoreError::Unavailable(_) | StoreError::Closed => {
            ApiError::new(503, Reason::ServiceUnavailable, error.to_string())
                .with_details(Details { retry_after_seconds: 1, ..Details::default() })
        }
        // RFC 4918: no room for the state that the request leads to. Kubernetes has no reason for
        // it.
        StoreError::Full(_) => ApiError::new(
            507,
            Reason::InsufficientStorage,
            format!(
                "{error}: make room where it keeps its data, or delete objects: deletes still work"
            ),
        ),
        // As in Kubernetes: who has asked for one object knows its key.
        StoreError::Unreadable { reason, .. } => ApiError::internal(reason),
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
            let mut error = ApiError::too_large_resource_version(asked.0, current.0);
            // As in Kubernetes: unlike a read that has waited, it names no time to try again.
            if let Some(details) = &mut error.0.details {
                details.retry_after_seconds = 0;
            }
            error
        }
        other => store_error(other),
    }
}

/// Why a store without encryption cannot read a value. The words are those of Kubernetes' API
/// server.
pub(crate) const NOT_ENCRYPTING: &str = "identity transformer tried to read encrypted data";
/// The error of a reader of many values for one that could not be decrypted or decoded.
pub(crate) fn unreadable(key: &[u8], fault: ReadFault, reason: &str) -> ApiError {
    let (key, reason) = (String::from_utf8_lossy(key).into_owned(), reason.to_owned());
    ApiError::internal(StoreError::Unreadable { key, fault, reason })
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
    let mut tree = serde_json::from_str(text).map_err(|e| undecodable(&e))?;
    if has_long_number(bytes) {
        as_decoded(&mut tree);
    }
    Ok(tree)
}

/// Decodes stored bytes without managedFields, which stay as they are. `None`: they are not what a
/// server stores, which [`tree`] finds.
pub(crate) fn split(bytes: &[u8]) -> Option<(Value, Option<Owners<'_>>)> {
    if is_sealed(bytes) {
        return None;
    }
    let (mut tree, owners) = Owners::split(std::str::from_utf8(bytes).ok()?)?;
    if has_long_number(bytes) {
        as_decoded(&mut tree);
    }
    Some((tree, owners))
}

/// Digits of the smallest integer beyond `int64`.
const LONG_DIGITS: usize = 19;
/// Whether there may be an integer beyond `int64`: some run of digits is long enough.
fn has_long_number(text: &[u8]) -> bool {
    // A run of that length includes one of these positions.
    let places = (LONG_DIGITS - 1..text.len()).step_by(LONG_DIGITS);
    places.filter(|at| text[*at].is_ascii_digit()).any(|at| {
        let is_digit = |byte: &&u8| byte.is_ascii_digit();
        let before = text[..at].iter().rev().take(LONG_DIGITS).take_while(is_digit).count();
        let after = text[at..].iter().take(LONG_DIGITS).take_while(is_digit).count();
        before + after >= LONG_DIGITS
    })
}
/// Integers beyond `int64` are floats, as in a body that is decoded: a large float is written
/// without a fraction.
fn as_decoded(tree: &mut Value) {
    match tree {
        Value::Number(number) if number.is_u64() && !number.is_i64() => {
            *tree = number.as_f64().map_or(Value::Null, Value::from);
        }
        Value::Array(items) => items.iter_mut().for_each(as_decoded),
        Value::Object(members) => members.values_mut().for_each(as_decoded),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_unknown_outcome_is_a_timeout() {
        let error = store_error(StoreError::Unknown("lost".into()));
        assert_eq!((error.code(), error.reason()), (504, Reason::Timeout));
        assert_eq!(
            error.to_string(),
            "Timeout: request did not complete within requested timeout - context deadline exceeded"
        );
    }

    #[test]
    fn large_floats_are_read_as_they_were_decoded() {
        let read =
            tree(br#"{"a":[12345678901234567000,9223372036854775807],"b":"12345678901234567000"}"#);
        let expected =
            json!({"a": [12_345_678_901_234_567_000.0, i64::MAX], "b": "12345678901234567000"});
        assert_eq!(read.unwrap(), expected);
        for n in 0..40 {
            let text = |digits: usize| " ".repeat(n) + &"7".repeat(digits) + "x";
            assert!(has_long_number(text(19).as_bytes()) && !has_long_number(text(18).as_bytes()));
        }
    }
}
