//! Claims: a key for every number in use. Its value names the Service.
//!
//! ```text
//! /registry/ranges/serviceips/10.0.0.1             {"metadata":{"name":"kubernetes","namespace":"default","uid":"…"}}
//! /registry/ranges/servicenodeports/30080          {"metadata":{"name":"web","namespace":"shop","uid":"…"}}
//! ```
//!
//! They are stored beside the two keys of kube-apiserver's bitmaps (`/registry/ranges/serviceips`),
//! which are not touched. With a bitmap, writes of Services would conflict with each other.
//! Requests cannot reach claims. An address's object ([`super::address`]) is written with its
//! claim.
use super::address::{self, NewObject};
use super::{Number, ServiceNumbers};
use bytes::Bytes;
use serde_json::{Value, json};
use setpoint_object::encode;
use setpoint_object::keys::{CLUSTER_ADDRESSES, NODE_PORTS};
use setpoint_object::meta::ObjectExt;
use setpoint_store::{At, Compare, Op, Range, RangeRequest, Revision, Store, StoreError};
use std::collections::BTreeSet;

/// The claims that a write of a Service changes in the same transaction.
#[derive(Debug, Clone, Default)]
pub(crate) struct Claims {
    /// The states of the claims when they were read.
    pub(crate) compares: Vec<Compare>,
    /// The changes.
    pub(crate) ops: Vec<Op>,
}
impl Claims {
    /// Adds the claim of a number that has none, and an address's object.
    pub(super) fn take(&mut self, number: Number, service: &Value, birth: &NewObject<'_>) {
        self.create(key(number), value(service));
        if let Number::Address(address) = number {
            self.create(address::key(address), address::object(address, service, birth));
        }
    }
    fn create(&mut self, key: Bytes, value: Bytes) {
        self.compares.push(Compare::Absent(key.clone()));
        self.ops.push(Op::Put(key, value));
    }
    /// Releases all numbers of a Service.
    ///
    /// # Errors
    /// The store fails to read a claim.
    pub(crate) async fn releasing(
        store: &dyn Store,
        owned: &ServiceNumbers,
        service: &Value,
    ) -> Result<Self, StoreError> {
        let mut claims = Self::default();
        claims.release(store, owned.0.iter().copied(), service).await?;
        Ok(claims)
    }
    /// Releases numbers. Claims of other Services are not changed.
    ///
    /// # Errors
    /// The store fails to read a claim.
    pub(super) async fn release(
        &mut self,
        store: &dyn Store,
        numbers: impl Iterator<Item = Number> + Send,
        service: &Value,
    ) -> Result<(), StoreError> {
        for number in numbers {
            let key = key(number);
            match store.get(&key, At::Latest).await?.value {
                Some(found) if owner(&found.value) == service.uid() => {
                    self.compares.push(Compare::Modified(key.clone(), found.modified));
                    self.ops.push(Op::Delete(key));
                }
                // Another Service's, and so is the address's object.
                Some(_) => continue,
                // Another server may be about to claim it for this Service.
                None => self.compares.push(Compare::Absent(key)),
            }
            if let Number::Address(address) = number {
                let (compare, op) = address::removal(store, address, service).await?;
                self.compares.extend(compare);
                self.ops.extend(op);
            }
        }
        Ok(())
    }
}

/// The key of a number's claim.
pub(super) fn key(number: Number) -> Bytes {
    match number {
        Number::Address(address) => format!("{CLUSTER_ADDRESSES}{address}").into(),
        Number::Port(port) => format!("{NODE_PORTS}{port}").into(),
    }
}
/// The number of a claim's key.
pub(super) fn number(key: &[u8]) -> Option<Number> {
    let key = std::str::from_utf8(key).ok()?;
    match (key.strip_prefix(CLUSTER_ADDRESSES), key.strip_prefix(NODE_PORTS)) {
        (Some(address), _) => address.parse().ok().map(Number::Address),
        (_, Some(port)) => port.parse().ok().map(Number::Port),
        (None, None) => None,
    }
}
/// The value of a Service's claim.
pub(super) fn value(service: &Value) -> Bytes {
    let (name, namespace) = (service.name(), service.namespace());
    encode::to_bytes(
        &json!({"metadata": {"name": name, "namespace": namespace, "uid": service.uid()}}),
    )
}
/// The uid of the Service that a claim names; empty if there is none.
pub(super) fn owner(claim: &[u8]) -> String {
    serde_json::from_slice::<Value>(claim).map(|claim| claim.uid().to_owned()).unwrap_or_default()
}
/// Both ranges of claims at a revision.
pub(super) async fn read(store: &dyn Store, at: Revision) -> Result<[Range; 2], StoreError> {
    let request = |prefix: &'static str| RangeRequest {
        at: At::Exactly(at),
        ..RangeRequest::prefix(Bytes::from_static(prefix.as_bytes()))
    };
    let addresses = store.range(request(CLUSTER_ADDRESSES)).await?.value;
    Ok([addresses, store.range(request(NODE_PORTS)).await?.value])
}
/// Every number that has a claim now.
pub(super) async fn all(store: &dyn Store) -> Result<BTreeSet<Number>, StoreError> {
    let ranges = read(store, store.revision().await?).await?;
    let entries = ranges.iter().flat_map(|range| &range.entries);
    Ok(entries.filter_map(|entry| number(&entry.key)).collect())
}
