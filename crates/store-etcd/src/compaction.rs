//! Compaction by one of many servers, with kube-apiserver's protocol
//! (`k8s.io/apiserver/pkg/storage/etcd3/compact.go`).
//!
//! The version of `compact_rev_key` counts rounds. Each server remembers the version of the last
//! round it knows, and begins the next one only by writing the key while it still has that version.
//! A server that finds another version stores it and skips this round. So of any number of servers
//! that compact every five minutes, one does so every five minutes, kube-apiservers on the same
//! etcd included.

use crate::{
    cluster::{Failure, Repeat},
    failure::{Refusal, refusal},
    keys,
    proto::{
        CompactionAnswer, CompactionCall, CompareTo, OpCall, PutCall, RangeCall, RequestOp,
        TxnAnswer, TxnCall, WireCompare, path,
    },
    shared::{Shared, malformed},
};
use bytes::Bytes;
use setpoint_store::{Revision, StoreError};

/// The key, outside of all namespaces, because compaction applies to all of etcd.
const ROUNDS: Bytes = Bytes::from_static(b"compact_rev_key");

/// Runs a round, unless another server has run it.
pub(crate) async fn compact(shared: &Shared, revision: Revision) -> Result<(), StoreError> {
    let question = RangeCall { key: ROUNDS, ..RangeCall::default() };
    let (current, answer) = shared.range(&question).await.map_err(crate::shared::read_error)?;
    if revision > current {
        return Err(StoreError::Future { asked: revision, current });
    }
    // A compaction to an older revision is an error.
    shared.check_not_compacted(revision).await?;
    let version = answer.kvs.first().map_or(0, |entry| entry.version);
    let known = *shared.compact_version.lock();
    if known.is_some_and(|known| known != version) {
        *shared.compact_version.lock() = Some(version);
        tracing::debug!(%revision, "another server has compacted since the last round");
        return Ok(());
    }
    if !begin_round(shared, version, revision).await? {
        return Ok(());
    }
    let question = CompactionCall { revision: i64::try_from(revision.0).unwrap_or(i64::MAX) };
    let compacted: Result<CompactionAnswer, _> =
        shared.cluster.call(path::COMPACT, &question, Repeat::Freely).await;
    match compacted {
        Ok(answer) => {
            if let Some(revision) = Shared::revision_of(answer.header.as_ref()) {
                shared.note(revision, false);
            }
            Ok(())
        }
        // Already done by another server, or by an earlier attempt whose response was lost.
        Err(Failure::Refused(error)) if refusal(&error) == Refusal::Compacted => Ok(()),
        Err(failure) => Err(failure.into_store_error()),
    }
}

/// Writes the key if it still has this version. Returns whether this store won the round.
async fn begin_round(
    shared: &Shared,
    version: i64,
    revision: Revision,
) -> Result<bool, StoreError> {
    let compare = WireCompare {
        target: WireCompare::VERSION,
        key: ROUNDS,
        to: Some(CompareTo::Version(version)),
    };
    // The format of kube-apiserver: the revision in decimal.
    let put = PutCall { key: ROUNDS, value: revision.to_string().into(), lease: 0 };
    let range = RangeCall { key: ROUNDS, ..RangeCall::default() };
    let question = TxnCall {
        compare: vec![compare],
        success: vec![RequestOp { request: Some(OpCall::Put(put)) }],
        failure: vec![RequestOp { request: Some(OpCall::Range(range)) }],
    };
    let answer: TxnAnswer = shared
        .cluster
        .call(path::TXN, &question, Repeat::Never)
        .await
        .map_err(Failure::into_store_error)?;
    let moved = keys::revision(answer.header.as_ref().map_or(0, |header| header.revision));
    shared.note(moved.ok_or_else(|| malformed("transaction").into_store_error())?, false);
    let version = if answer.succeeded {
        version + 1
    } else {
        let found = answer.responses.first().and_then(|response| response.range.as_ref());
        found.and_then(|range| range.kvs.first()).map_or(0, |entry| entry.version)
    };
    *shared.compact_version.lock() = Some(version);
    Ok(answer.succeeded)
}
