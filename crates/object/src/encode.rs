//! The one encoding of objects: members sorted, no spaces, so that equal objects are equal bytes.
use bytes::Bytes;
use serde_json::Value;

/// Encodes a tree canonically.
pub fn to_bytes(_value: &Value) -> Bytes {
    todo!()
}
/// Splices `metadata.resourceVersion` into a stored encoding, which has none, without building a tree.
pub fn with_resource_version(_stored: &[u8], _revision: u64) -> Bytes {
    todo!()
}
