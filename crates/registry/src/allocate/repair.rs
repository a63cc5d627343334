//! Repairs claims at start, so that they match the stored Services.
//!
//! Adds claims for Services that were stored before there were claims, or that other programs
//! wrote. Removes claims whose Service is deleted. If two Services have the same number, the older
//! one gets the claim. Each transaction compares the Services and claims that it was computed from,
//! so it is safe while other servers serve, or repair too.
use super::{Number, ServiceNumbers, claims};
use crate::stored::{store_error, tree};
use bytes::Bytes;
use serde_json::Value;
use setpoint_object::meta::ObjectExt;
use setpoint_object::{ApiError, Reason, keys};
use setpoint_store::{
    Committed, Compare, KeyValue, Op, RangeRequest, Revision, Store, StoreError, Txn,
};
use std::collections::{BTreeMap, BTreeSet};

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
/// A claim to change.
struct Fix<'a> {
    claim: Bytes,
    /// The claim's revision; `None`: it does not exist.
    found: Option<Revision>,
    /// The Service to claim it for; `None`: remove the claim.
    service: Option<&'a Service>,
}

impl super::Allocator {
    /// Repairs the claims and loads them.
    ///
    /// # Errors
    /// Errors of the store; 503 if other writers kept changing the inputs.
    pub(crate) async fn repair(&self, store: &dyn Store) -> Result<(), ApiError> {
        for _ in 0..ROUNDS_MAX {
            if round(store).await.map_err(store_error)? {
                return self.reload(store).await.map_err(store_error);
            }
        }
        let text = "Services change faster than their addresses can be looked through";
        Err(ApiError::new(503, Reason::ServiceUnavailable, text))
    }
}

/// One round over all Services and claims. Returns whether no repair is left.
async fn round(store: &dyn Store) -> Result<bool, StoreError> {
    let range =
        store.range(RangeRequest::prefix(Bytes::from_static(keys::SERVICES.as_bytes()))).await?;
    let mut entries = range.value.entries;
    entries.sort_by_key(|entry| entry.created);
    let services: Vec<Service> = entries.into_iter().filter_map(service).collect();
    let present = claims::read(store, range.revision).await?;
    let present = present.iter().flat_map(|range| &range.entries);
    let fixes = plan(&services, present);
    let mut is_done = true;
    for batch in fixes.chunks(BATCH_CLAIMS_MAX) {
        is_done &= matches!(store.commit(transaction(batch)).await?, Committed::Done(_));
    }
    Ok(is_done)
}

/// Numbers of an unreadable Service are unknown.
fn service(entry: KeyValue) -> Option<Service> {
    match tree(&entry.value) {
        Ok(object) => Some(Service { key: entry.key, modified: entry.modified, object }),
        Err(error) => {
            tracing::warn!(%error, key = %String::from_utf8_lossy(&entry.key), "read a Service");
            None
        }
    }
}

/// The necessary changes, given the Services in order of creation and the claims at the same
/// revision.
fn plan<'a>(services: &'a [Service], present: impl Iterator<Item = &'a KeyValue>) -> Vec<Fix<'a>> {
    let mut owners: BTreeMap<Number, &Service> = BTreeMap::new();
    for service in services {
        for number in ServiceNumbers::of(&service.object).0 {
            let owner = owners.entry(number).or_insert(service);
            if owner.key != service.key {
                tracing::warn!(
                    ?number,
                    first = %String::from_utf8_lossy(&owner.key),
                    second = %String::from_utf8_lossy(&service.key),
                    "two Services have one number: it is the first one's"
                );
            }
        }
    }
    let mut present: BTreeMap<Number, &KeyValue> =
        present.filter_map(|claim| Some((claims::number(&claim.key)?, claim))).collect();
    let mut fixes = Vec::new();
    for (number, service) in owners {
        let found = present.remove(&number);
        if found.is_none_or(|found| claims::owner(&found.value) != service.object.uid()) {
            let (claim, found) = (claims::key(number), found.map(|found| found.modified));
            fixes.push(Fix { claim, found, service: Some(service) });
        }
    }
    // No Service can take such a number while the claim exists.
    let leaked = present.into_values();
    fixes.extend(leaked.map(|claim| Fix {
        claim: claim.key.clone(),
        found: Some(claim.modified),
        service: None,
    }));
    fixes
}

fn transaction(batch: &[Fix<'_>]) -> Txn {
    let (mut txn, mut compared) = (Txn::default(), BTreeSet::new());
    for Fix { claim, found, service } in batch {
        txn.compares.push(match found {
            Some(revision) => Compare::Modified(claim.clone(), *revision),
            None => Compare::Absent(claim.clone()),
        });
        let Some(service) = service else {
            txn.ops.push(Op::Delete(claim.clone()));
            continue;
        };
        if compared.insert(&service.key) {
            txn.compares.push(Compare::Modified(service.key.clone(), service.modified));
        }
        txn.ops.push(Op::Put(claim.clone(), claims::value(&service.object)));
    }
    txn
}
