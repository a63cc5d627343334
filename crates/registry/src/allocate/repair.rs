//! Repairs claims and the objects of addresses, so that they match the stored Services.
//!
//! Adds claims for Services that were stored before there were claims, or that other programs
//! wrote. Removes claims whose Service is deleted. If two Services have the same number, the older
//! one gets the claim. The owner of an address also gets its object, and the allocator's other
//! objects are removed. Each transaction compares the Services, claims and objects that it was
//! computed from, so it is safe while other servers serve, or repair too.
//!
//! Services that were stored before there were families get theirs.
use super::address::{self, NewObject};
use super::{Number, ServiceNumbers, claims};
use crate::kind::core::service::completed;
use crate::stored::{store_error, tree};
use bytes::Bytes;
use serde_json::Value;
use setpoint_object::cidr::Families;
use setpoint_object::error::chain;
use setpoint_object::meta::ObjectExt;
use setpoint_object::{ApiError, Reason, keys};
use setpoint_schema::encode::to_bytes;
use setpoint_store::{
    At, Committed, Compare, KeyValue, Op, RangeRequest, Revision, Store, StoreError, Txn,
};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Claims per transaction.
///
/// 50: each compares two keys, and etcd allows 128 operations and as many compares per transaction
/// (`--max-txn-ops`).
const BATCH_CLAIMS_MAX: usize = 50;
/// How often the repair retries while other writers change its inputs.
const ROUNDS_MAX: usize = 64;

/// A stored Service.
struct Service {
    key: Bytes,
    modified: Revision,
    object: Value,
}
/// A claim, an address's object or a Service to change.
struct Fix<'a> {
    key: Bytes,
    /// The key's revision; `None`: it does not exist.
    found: Option<Revision>,
    /// The new value, and its Service; `None`: remove it.
    put: Option<(Bytes, &'a Service)>,
}

impl super::Allocator {
    /// Repairs the claims and the objects of addresses, and loads the claims.
    ///
    /// # Errors
    /// Errors of the store; 503 if other writers kept changing the inputs.
    pub(crate) async fn repair(
        &self,
        store: &dyn Store,
        birth: &NewObject<'_>,
    ) -> Result<(), ApiError> {
        for _ in 0..ROUNDS_MAX {
            if round(store, self.networks.families(), birth).await.map_err(store_error)? {
                return self.reload(store).await.map_err(store_error);
            }
        }
        let text = "Services change faster than their addresses can be looked through";
        Err(ApiError::new(503, Reason::ServiceUnavailable, text))
    }
}

/// One round over all Services, claims and objects. Returns whether no repair is left.
async fn round(
    store: &dyn Store,
    families: Families,
    birth: &NewObject<'_>,
) -> Result<bool, StoreError> {
    let range =
        store.range(RangeRequest::prefix(Bytes::from_static(keys::SERVICES.as_bytes()))).await?;
    let mut entries = range.value.entries;
    entries.sort_by_key(|entry| entry.created);
    let services: Vec<Service> = entries.into_iter().filter_map(service).collect();
    let owners = owners(&services);
    let present = claims::read(store, range.revision).await?;
    let present = present.iter().flat_map(|range| &range.entries);
    let mut fixes = claims_to_fix(&owners, present);
    fixes.extend(services.iter().filter_map(|service| to_complete(service, families)));
    let request = RangeRequest {
        at: At::Exactly(range.revision),
        ..RangeRequest::prefix(Bytes::from_static(keys::IP_ADDRESSES.as_bytes()))
    };
    let objects = store.range(request).await?.value.entries;
    fixes.extend(objects_to_fix(&owners, &objects, birth));
    let mut is_done = true;
    for batch in fixes.chunks(BATCH_CLAIMS_MAX) {
        is_done &= matches!(store.commit(transaction(batch)).await?, Committed::Done(_));
    }
    // A wrong object is removed in one round, and made again in the next.
    let is_replaced = |fix: &Fix<'_>| {
        let address = address::address(&fix.key).map(Number::Address);
        fix.put.is_none() && address.is_some_and(|address| owners.contains_key(&address))
    };
    Ok(is_done && !fixes.iter().any(is_replaced))
}

/// Numbers of an unreadable Service are unknown.
fn service(entry: KeyValue) -> Option<Service> {
    match tree(&entry.value) {
        Ok(object) => Some(Service { key: entry.key, modified: entry.modified, object }),
        Err(error) => {
            tracing::warn!(error = chain(&error), key = %String::from_utf8_lossy(&entry.key), "read a Service");
            None
        }
    }
}

/// The change of a Service without families.
fn to_complete(service: &Service, families: Families) -> Option<Fix<'_>> {
    let Cow::Owned(whole) = completed(&service.object, families) else { return None };
    (whole != service.object).then(|| Fix {
        key: service.key.clone(),
        found: Some(service.modified),
        put: Some((to_bytes(&whole), service)),
    })
}

/// The Service of each number, given the Services in order of creation.
fn owners(services: &[Service]) -> BTreeMap<Number, &Service> {
    let mut owners: BTreeMap<Number, &Service> = BTreeMap::new();
    for service in services {
        for number in ServiceNumbers::of(&service.object).0 {
            let owner = owners.entry(number).or_insert(service);
            if owner.key != service.key {
                tracing::warn!(
                    ?number,
                    first = %String::from_utf8_lossy(&owner.key),
                    second = %String::from_utf8_lossy(&service.key),
                    "two Services have the same number: the older one keeps it"
                );
            }
        }
    }
    owners
}

/// The necessary changes of claims, given those at the revision of the Services.
fn claims_to_fix<'a>(
    owners: &BTreeMap<Number, &'a Service>,
    present: impl Iterator<Item = &'a KeyValue>,
) -> Vec<Fix<'a>> {
    let mut present: BTreeMap<Number, &KeyValue> =
        present.filter_map(|claim| Some((claims::number(&claim.key)?, claim))).collect();
    let mut fixes = Vec::new();
    for (number, service) in owners {
        let found = present.remove(number);
        if found.is_none_or(|found| claims::owner(&found.value) != service.object.uid()) {
            let (key, found) = (claims::key(*number), found.map(|found| found.modified));
            let put = Some((claims::value(&service.object), *service));
            fixes.push(Fix { key, found, put });
        }
    }
    // No Service can take such a number while the claim exists.
    let leaked = present.into_values();
    fixes.extend(leaked.map(|claim| Fix {
        key: claim.key.clone(),
        found: Some(claim.modified),
        put: None,
    }));
    fixes
}

/// The necessary changes of addresses' objects. A user's object of a free address stays.
fn objects_to_fix<'a>(
    owners: &BTreeMap<Number, &'a Service>,
    present: &[KeyValue],
    birth: &NewObject<'_>,
) -> Vec<Fix<'a>> {
    let mut present: BTreeMap<IpAddr, &KeyValue> =
        present.iter().filter_map(|found| Some((address::address(&found.key)?, found))).collect();
    let mut fixes = Vec::new();
    for (number, service) in owners {
        let Number::Address(address) = number else { continue };
        let key = address::key(*address);
        match present.remove(address) {
            None => {
                let put = Some((address::object(*address, &service.object, birth), *service));
                fixes.push(Fix { key, found: None, put });
            }
            Some(found) if address::is_of(found, &service.object) => {}
            Some(found) if address::is_held(&found.value) => {}
            Some(found) => fixes.push(Fix { key, found: Some(found.modified), put: None }),
        }
    }
    let leaked = present.into_values().filter(|found| address::is_leaked(found, birth.now));
    fixes.extend(leaked.map(|found| Fix {
        key: found.key.clone(),
        found: Some(found.modified),
        put: None,
    }));
    fixes
}

fn transaction(batch: &[Fix<'_>]) -> Txn {
    let (mut txn, mut compared) = (Txn::default(), BTreeSet::new());
    for Fix { key, found, put } in batch {
        txn.compares.push(match found {
            Some(revision) => Compare::Modified(key.clone(), *revision),
            None => Compare::Absent(key.clone()),
        });
        let Some((value, service)) = put else {
            txn.ops.push(Op::Delete(key.clone()));
            continue;
        };
        if compared.insert(&service.key) {
            txn.compares.push(Compare::Modified(service.key.clone(), service.modified));
        }
        txn.ops.push(Op::Put(key.clone(), value.clone()));
    }
    txn
}
