//! IPAddresses: each cluster address of a Service is an object too.
//!
//! It is written and removed in the transaction of the Service and its claim. An address with an
//! object is in use, whoever made the object: a user reserves an address by creating one. Objects
//! that a user has removed, and those whose Service is gone, are repaired with the claims.
use crate::kind::networking::ip_address;
use crate::stored::tree;
use bytes::Bytes;
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use serde_json::Value;
use setpoint_object::keys::IP_ADDRESSES;
use setpoint_object::meta::ObjectExt;
use setpoint_object::time::Timestamp;
use setpoint_schema::encode::to_bytes;
use setpoint_store::{At, Compare, KeyValue, Op, Store, StoreError};
use std::net::IpAddr;
use std::time::Duration;

/// What a new object gets besides its content.
#[derive(Debug, Clone)]
pub(crate) struct NewObject<'a> {
    /// The source of uids.
    pub(crate) rng: &'a Mutex<SmallRng>,
    /// The present time.
    pub(crate) now: Timestamp,
}

/// How long the allocator's objects may be without a Service: a minute, as in kube-apiserver, which
/// creates an address's object before its Service.
const ORPHAN_PERIOD: Duration = Duration::from_secs(60);

/// The key of an address's object.
pub(super) fn key(address: IpAddr) -> Bytes {
    format!("{IP_ADDRESSES}{address}").into()
}
/// The address of an object's key.
pub(super) fn address(key: &[u8]) -> Option<IpAddr> {
    std::str::from_utf8(key).ok()?.strip_prefix(IP_ADDRESSES)?.parse().ok()
}
/// The encoded object of a Service's address.
pub(super) fn object(address: IpAddr, service: &Value, birth: &NewObject<'_>) -> Bytes {
    let uid = crate::uid::uid(birth.rng);
    to_bytes(&ip_address::of_service(address, service, &uid, &birth.now.rfc3339()))
}
/// Whether the allocator made a stored object for this Service. Not for an unreadable one.
pub(super) fn is_of(found: &KeyValue, service: &Value) -> bool {
    tree(&found.value).is_ok_and(|object| ip_address::is_of_service(&object, service))
}
/// Whether a stored object is the allocator's.
pub(super) fn is_allocated(value: &[u8]) -> bool {
    tree(value).is_ok_and(|object| ip_address::is_allocated(&object))
}
/// Whether a stored object is the allocator's, and old enough to have its Service.
pub(super) fn is_leaked(found: &KeyValue, now: Timestamp) -> bool {
    tree(&found.value).is_ok_and(|object| {
        let created = object["metadata"]["creationTimestamp"].as_str().and_then(Timestamp::parse);
        ip_address::is_allocated(&object)
            && object.finalizers().is_empty()
            && created.is_none_or(|created| now.since(created) >= ORPHAN_PERIOD)
    })
}
/// Whether another controller must agree to the removal of a stored object (finalizers).
pub(super) fn is_held(value: &[u8]) -> bool {
    tree(value).is_ok_and(|object| !object.finalizers().is_empty())
}
/// The removal of a Service's address. Objects of others, and those with finalizers, stay.
///
/// # Errors
/// The store fails to read the object.
pub(super) async fn removal(
    store: &dyn Store,
    address: IpAddr,
    service: &Value,
) -> Result<(Option<Compare>, Option<Op>), StoreError> {
    let key = key(address);
    Ok(match store.get(&key, At::Latest).await?.value {
        Some(found) if is_of(&found, service) && !is_held(&found.value) => {
            (Some(Compare::Modified(key.clone(), found.modified)), Some(Op::Delete(key)))
        }
        Some(_) => (None, None),
        None => (Some(Compare::Absent(key)), None),
    })
}
