//! The engine against real etcd processes. Skipped, with a message, if `SETPOINT_TEST_ETCD` is not
//! set.
#![allow(clippy::unwrap_used, reason = "a test asserts by unwrapping")]

mod access;
mod backlog;
mod continuity;
mod contract;
mod housekeeping;

use setpoint_store::*;
use setpoint_store_etcd::{EtcdOptions, testing::PATIENCE};

/// Long timeouts for a busy machine: etcd takes long to check a password.
fn patient(endpoints: Vec<String>) -> EtcdOptions {
    let mut options = EtcdOptions::new(endpoints);
    options.request_timeout = PATIENCE;
    options.attempt_timeout = PATIENCE / 2;
    options.connect_timeout = PATIENCE / 4;
    options
}

/// A commit without compares.
async fn put(store: &dyn Store, key: &str, value: impl Into<bytes::Bytes>) -> Revision {
    let ops = vec![Op::Put(bytes::Bytes::copy_from_slice(key.as_bytes()), value.into())];
    match store.commit(Txn { ops, ..Txn::default() }).await.unwrap() {
        Committed::Done(revision) => revision,
        refused => panic!("{refused:?}"),
    }
}

/// Reads a feed until it has reached a revision.
async fn take_until(feed: &mut dyn ChangeFeed, revision: Revision) -> Vec<Change> {
    let mut changes = Vec::new();
    loop {
        let batch = feed.next().await.unwrap();
        changes.extend(batch.changes);
        if batch.revision >= revision {
            return changes;
        }
    }
}
