//! Claims: a key for every number in use. Its value names the Service.
//!
//! ```text
//! /registry/ranges/serviceips/10.0.0.1             {"metadata":{"name":"kubernetes","namespace":"default","uid":"…"}}
//! /registry/ranges/servicenodeports/30080          {"metadata":{"name":"web","namespace":"shop","uid":"…"}}
//! ```
//!
//! They are stored beside the two keys of kube-apiserver's bitmaps (`/registry/ranges/serviceips`),
//! of which only that of node ports is used today ([`super::bitmap`]). With a bitmap alone, writes
//! of Services would conflict with each other. Requests cannot reach claims. An address's object
//! ([`super::address`]) is written with its claim.
use super::address::{self, NewObject};
use super::bitmap::Bitmap;
use super::{Number, ServiceNumbers};
use crate::stored::tree;
use bytes::Bytes;
use serde_json::{Value, json};
use setpoint_object::encode;
use setpoint_object::keys::{CLUSTER_ADDRESSES, NODE_PORTS, SERVICES};
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
    /// The node ports that are taken and released.
    ports: [Vec<u16>; 2],
}
impl Claims {
    /// Adds the claim of a number that has none, or a stale one with this revision, and an
    /// address's object.
    pub(super) fn take(
        &mut self,
        number: Number,
        stale: Option<Revision>,
        service: &Value,
        birth: &NewObject<'_>,
    ) {
        match stale {
            None => self.create(key(number), value(service)),
            Some(revision) => {
                self.compares.push(Compare::Modified(key(number), revision));
                self.ops.push(Op::Put(key(number), value(service)));
            }
        }
        match number {
            Number::Address(address) => {
                self.create(address::key(address), address::object(address, service, birth));
            }
            Number::Port(port) => self.ports[0].push(port),
        }
    }
    /// Marks the node ports in the bitmap of kube-apiservers, if there is one. Comes last.
    ///
    /// # Errors
    /// The store fails to read it.
    pub(super) async fn mark_ports(&mut self, store: &dyn Store) -> Result<(), StoreError> {
        let [taken, freed] = std::mem::take(&mut self.ports);
        if taken.is_empty() && freed.is_empty() {
            return Ok(());
        }
        let bitmap = Bitmap::read(store).await?;
        if let Some((compare, op)) = bitmap.and_then(|bitmap| bitmap.change(&taken, &freed)) {
            self.compares.push(compare);
            self.ops.push(op);
        }
        Ok(())
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
        claims.mark_ports(store).await?;
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
            match number {
                Number::Address(address) => {
                    let (compare, op) = address::removal(store, address, service).await?;
                    self.compares.extend(compare);
                    self.ops.extend(op);
                }
                Number::Port(port) => self.ports[1].push(port),
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
/// Whether the Service that a claim names is gone, or has its number no more: a kube-apiserver has
/// deleted or changed it. One that cannot be read keeps its numbers.
///
/// # Errors
/// The store fails to read the Service.
pub(super) async fn is_stale(
    store: &dyn Store,
    number: Number,
    claim: &[u8],
) -> Result<bool, StoreError> {
    let Ok(claim) = serde_json::from_slice::<Value>(claim) else { return Ok(false) };
    let key = format!("{SERVICES}{}/{}", claim.namespace(), claim.name());
    let Some(service) = store.get(key.as_bytes(), At::Latest).await?.value else { return Ok(true) };
    Ok(tree(&service.value).is_ok_and(|service| {
        service.uid() != claim.uid() || !ServiceNumbers::of(&service).has(number)
    }))
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
