//! Brings claims in line with the Services there are, at start.
//!
//! Services that were stored before there were claims, or that somebody else wrote, get theirs;
//! claims whose Service is gone go. Where two Services have one number, the older one has it. Each
//! transaction compares the Services and claims it was made of, so that it does nothing wrong while
//! other servers serve, or do the same.
use super::{Held, Number, claims};
use crate::stored::{store_error, tree};
use bytes::Bytes;
use serde_json::Value;
use setpoint_object::meta::ObjectExt;
use setpoint_object::{ApiError, Reason, keys};
use setpoint_store::{
    Committed, Compare, KeyValue, Op, RangeRequest, Revision, Store, StoreError, Txn,
};
use std::collections::{BTreeMap, BTreeSet};

/// How many claims one transaction changes.
///
/// 50: each compares two keys, and etcd takes 128 operations and as many compares in one
/// (`--max-txn-ops`).
const BATCH_CLAIMS_MAX: usize = 50;
/// How often it is tried while others change what it looks at.
const ROUNDS_MAX: usize = 64;

/// A Service as it is stored.
struct Service {
    key: Bytes,
    modified: Revision,
    object: Value,
}
/// One claim to be changed.
struct Fix<'a> {
    claim: Bytes,
    /// Changed last at; absent without.
    found: Option<Revision>,
    /// The Service that is to have it; nobody without.
    service: Option<&'a Service>,
}

impl super::Allocator {
    /// Brings the claims in line and learns them.
    ///
    /// # Errors
    /// The store's; 503 when others never stopped changing what was looked at.
    pub(crate) async fn bring_up(&self, store: &dyn Store) -> Result<(), ApiError> {
        for _ in 0..ROUNDS_MAX {
            if round(store).await.map_err(store_error)? {
                return self.learn(store).await.map_err(store_error);
            }
        }
        let text = "Services change faster than their addresses can be looked through";
        Err(ApiError::new(503, Reason::ServiceUnavailable, text))
    }
}

/// One look at everything; whether nothing is left to do.
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

/// One that cannot be read has no numbers that anybody could know.
fn service(entry: KeyValue) -> Option<Service> {
    match tree(&entry.value) {
        Ok(object) => Some(Service { key: entry.key, modified: entry.modified, object }),
        Err(error) => {
            tracing::warn!(%error, key = %String::from_utf8_lossy(&entry.key), "read a Service");
            None
        }
    }
}

/// What has to change, given the Services in the order of their creation and the claims of the same
/// revision.
fn plan<'a>(services: &'a [Service], present: impl Iterator<Item = &'a KeyValue>) -> Vec<Fix<'a>> {
    let mut owners: BTreeMap<Number, &Service> = BTreeMap::new();
    for service in services {
        for number in Held::of(&service.object).0 {
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
    // Whoever took such a number now would have had to find it without a claim.
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
