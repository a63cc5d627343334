//! Transactions: compares, and operations that share one revision.

use crate::grpc::Status;
use crate::keyspace::{KeyRange, Keyspace};
use crate::proto::{
    Compare, DeleteRangeRequest, DeleteRangeResponse, KeyValue, Op, OpResponse, PutRequest,
    PutResponse, RangeRequest, RequestOp, ResponseHeader, ResponseOp, Target, TxnRequest,
    TxnResponse,
};
use bytes::Bytes;
use std::cmp::Ordering;
use std::collections::BTreeSet;

/// How deep transactions may be nested.
const DEPTH_MAX: usize = 8;

/// Applies a transaction. A refused one changes nothing.
pub(crate) fn apply(
    keys: &mut Keyspace,
    call: &TxnRequest,
    ops_max: usize,
) -> Result<TxnResponse, Status> {
    check(call, ops_max, 0)?;
    // Decided before anything is written, also for nested ones.
    let branch = decide(keys, call);
    check_branch(keys, &branch)?;
    let mut has_written = false;
    let answer = perform(keys, &branch, &mut has_written)?;
    if has_written {
        keys.revision += 1;
    }
    Ok(answer)
}

/// The operations that are performed: one branch of each transaction.
struct Branch<'a> {
    succeeded: bool,
    ops: Vec<BranchOp<'a>>,
}

enum BranchOp<'a> {
    Plain(&'a Op),
    Txn(Branch<'a>),
}

fn decide<'a>(keys: &Keyspace, call: &'a TxnRequest) -> Branch<'a> {
    let succeeded = call.compare.iter().all(|compare| holds(keys, compare));
    let ops = if succeeded { &call.success } else { &call.failure };
    let ops = ops.iter().filter_map(|op| match op.request.as_ref()? {
        Op::Txn(txn) => Some(BranchOp::Txn(decide(keys, txn))),
        op => Some(BranchOp::Plain(op)),
    });
    Branch { succeeded, ops: ops.collect() }
}

/// Checks the form of a transaction. Nested ones share the room for operations.
fn check(call: &TxnRequest, ops_max: usize, depth: usize) -> Result<(), Status> {
    let n = call.compare.len().max(call.success.len()).max(call.failure.len());
    if n > ops_max || depth > DEPTH_MAX {
        return Err(Status::too_many_operations());
    }
    if call.compare.iter().any(|compare| compare.key.is_empty()) {
        return Err(Status::empty_key());
    }
    for branch in [&call.success, &call.failure] {
        for RequestOp { request } in branch {
            match request {
                Some(Op::Txn(txn)) => check(txn, ops_max - n, depth + 1)?,
                Some(Op::Put(put)) => check_put(put)?,
                Some(Op::Range(range)) => check_range(range)?,
                Some(Op::Delete(delete)) if delete.key.is_empty() => {
                    return Err(Status::empty_key());
                }
                Some(_) => {}
                None => return Err(Status::invalid("etcdserver: key not found")),
            }
        }
    }
    if depth == 0 {
        for branch in [&call.success, &call.failure] {
            Writes::of(branch)?;
        }
    }
    Ok(())
}

/// The keys that a branch may write, and the ranges that it may delete.
#[derive(Default)]
struct Writes {
    puts: BTreeSet<Bytes>,
    deletes: Vec<KeyRange>,
}

impl Writes {
    /// Those of a branch and of the transactions in it.
    ///
    /// # Errors
    ///
    /// A key may be written twice, or written and deleted. Of a transaction in the branch, only one
    /// half is performed: the halves do not exclude each other.
    fn of(branch: &[RequestOp]) -> Result<Self, Status> {
        let mut all = Self::default();
        let ops = || branch.iter().filter_map(|op| op.request.as_ref());
        for op in ops() {
            if let Op::Delete(delete) = op {
                all.deletes.push(KeyRange::new(delete.key.clone(), delete.range_end.clone()));
            }
        }
        for op in ops() {
            if let Op::Txn(txn) = op {
                let (success, failure) = (Self::of(&txn.success)?, Self::of(&txn.failure)?);
                let keys: BTreeSet<Bytes> = success.puts.into_iter().chain(failure.puts).collect();
                keys.into_iter().try_for_each(|key| all.put(key))?;
                all.deletes.extend(success.deletes.into_iter().chain(failure.deletes));
            }
        }
        for op in ops() {
            if let Op::Put(put) = op {
                all.put(put.key.clone())?;
            }
        }
        Ok(all)
    }

    fn put(&mut self, key: Bytes) -> Result<(), Status> {
        if self.deletes.iter().any(|range| range.contains(&key)) || !self.puts.insert(key) {
            return Err(Status::duplicate_key());
        }
        Ok(())
    }
}

/// Checks the form of a read.
pub(crate) fn check_range(range: &RangeRequest) -> Result<(), Status> {
    if range.key.is_empty() {
        return Err(Status::empty_key());
    }
    let is_known = (0..=2).contains(&range.sort_order) && (0..=4).contains(&range.sort_target);
    match is_known {
        true => Ok(()),
        false => Err(Status::invalid("etcdserver: invalid sort option")),
    }
}

pub(crate) fn check_put(put: &PutRequest) -> Result<(), Status> {
    if put.key.is_empty() {
        return Err(Status::empty_key());
    }
    if put.ignore_value && !put.value.is_empty() {
        return Err(Status::invalid("etcdserver: value is provided"));
    }
    if put.ignore_lease && put.lease != 0 {
        return Err(Status::invalid("etcdserver: lease is provided"));
    }
    Ok(())
}

/// Checks what the data decides.
fn check_branch(keys: &Keyspace, branch: &Branch<'_>) -> Result<(), Status> {
    for op in &branch.ops {
        match op {
            BranchOp::Txn(inner) => check_branch(keys, inner)?,
            BranchOp::Plain(Op::Put(put)) => {
                keys.leases.check(put.lease)?;
                keys.check_space(put.key.len() + put.value.len())?;
                if (put.ignore_value || put.ignore_lease) && keys.get(&put.key).is_none() {
                    return Err(Status::invalid("etcdserver: key not found"));
                }
            }
            BranchOp::Plain(Op::Range(range)) => keys.check_revision(range.revision)?,
            BranchOp::Plain(_) => {}
        }
    }
    Ok(())
}

fn perform(
    keys: &mut Keyspace,
    branch: &Branch<'_>,
    has_written: &mut bool,
) -> Result<TxnResponse, Status> {
    let mut responses = Vec::with_capacity(branch.ops.len());
    for op in &branch.ops {
        let response = match op {
            BranchOp::Txn(inner) => OpResponse::Txn(perform(keys, inner, has_written)?),
            BranchOp::Plain(Op::Range(range)) => {
                let mut answer = keys.range(range)?;
                answer.header = Some(inner_header(keys, *has_written));
                OpResponse::Range(answer)
            }
            BranchOp::Plain(Op::Put(put)) => {
                let mut answer = put_one(keys, put);
                *has_written = true;
                answer.header = Some(inner_header(keys, true));
                OpResponse::Put(answer)
            }
            BranchOp::Plain(Op::Delete(delete)) => {
                let mut answer = delete_range(keys, delete);
                *has_written |= answer.deleted > 0;
                answer.header = Some(inner_header(keys, *has_written));
                OpResponse::Delete(answer)
            }
            // Decided before.
            BranchOp::Plain(Op::Txn(_)) => continue,
        };
        responses.push(ResponseOp { response: Some(response) });
    }
    let header = Some(inner_header(keys, *has_written));
    Ok(TxnResponse { header, succeeded: branch.succeeded, responses })
}

/// The header of an answer within a transaction has the revision only.
fn inner_header(keys: &Keyspace, has_written: bool) -> ResponseHeader {
    ResponseHeader { revision: keys.revision + i64::from(has_written), ..ResponseHeader::default() }
}

/// Writes a key at the next revision, which the caller begins.
pub(crate) fn put_one(keys: &mut Keyspace, put: &PutRequest) -> PutResponse {
    let before = keys.get(&put.key);
    let value = match before {
        Some(before) if put.ignore_value => before.value.clone(),
        _ => put.value.clone(),
    };
    let lease = match before {
        Some(before) if put.ignore_lease => before.lease,
        _ => put.lease,
    };
    let previous = keys.write(put.key.clone(), value, lease);
    PutResponse { header: None, prev_kv: previous.filter(|_| put.prev_kv) }
}

/// Deletes a range at the next revision, which the caller begins if anything was deleted.
pub(crate) fn delete_range(
    keys: &mut Keyspace,
    delete: &DeleteRangeRequest,
) -> DeleteRangeResponse {
    let range = KeyRange::new(delete.key.clone(), delete.range_end.clone());
    let deleted = keys.delete(&range);
    DeleteRangeResponse {
        header: None,
        deleted: i64::try_from(deleted.len()).unwrap_or(i64::MAX),
        prev_kvs: if delete.prev_kv { deleted } else { Vec::new() },
    }
}

/// Whether a compare holds. A key that does not exist has version, revisions and lease 0; it has no
/// value, so every compare with a value fails. Of a range, all keys must hold; none do, and a
/// missing key counts as above.
fn holds(keys: &Keyspace, compare: &Compare) -> bool {
    let range = KeyRange::new(compare.key.clone(), compare.range_end.clone());
    let mut found = keys.newest(&range).peekable();
    if found.peek().is_some() {
        return found.all(|kv| holds_for(kv, compare));
    }
    let is_value = matches!(compare.union, Some(Target::Value(_))) || compare.target == 3;
    !is_value && holds_for(&KeyValue::default(), compare)
}

fn holds_for(kv: &KeyValue, compare: &Compare) -> bool {
    let ordering = match (&compare.union, compare.target) {
        (Some(Target::Version(version)), _) => kv.version.cmp(version),
        (Some(Target::Create(revision)), _) => kv.create_revision.cmp(revision),
        (Some(Target::Mod(revision)), _) => kv.mod_revision.cmp(revision),
        (Some(Target::Value(value)), _) => kv.value.cmp(value),
        (Some(Target::Lease(lease)), _) => kv.lease.cmp(lease),
        // A zero is left out on the wire.
        (None, 0) => kv.version.cmp(&0),
        (None, 1) => kv.create_revision.cmp(&0),
        (None, 2) => kv.mod_revision.cmp(&0),
        (None, 3) => kv.value.cmp(&Bytes::new()),
        (None, _) => kv.lease.cmp(&0),
    };
    match compare.result {
        0 => ordering == Ordering::Equal,
        1 => ordering == Ordering::Greater,
        2 => ordering == Ordering::Less,
        _ => ordering != Ordering::Equal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &'static str, value: &'static str) -> RequestOp {
        let put = PutRequest { key: key.into(), value: value.into(), ..PutRequest::default() };
        RequestOp { request: Some(Op::Put(put)) }
    }

    fn delete(key: &'static str, end: &'static str) -> RequestOp {
        let (key, range_end) = (key.into(), end.into());
        RequestOp {
            request: Some(Op::Delete(DeleteRangeRequest { key, range_end, prev_kv: true })),
        }
    }

    fn absent(key: &'static str) -> Compare {
        Compare { key: key.into(), union: Some(Target::Create(0)), ..Compare::default() }
    }

    #[test]
    fn operations_of_a_transaction_share_a_revision_and_see_each_other() {
        let mut keys = Keyspace::new(1 << 20);
        let inner = TxnRequest {
            compare: vec![absent("x")],
            success: vec![put("c", "3")],
            failure: vec![],
        };
        let txn = TxnRequest {
            compare: vec![absent("a")],
            success: vec![
                put("a", "1"),
                put("b", "2"),
                RequestOp { request: Some(Op::Txn(inner)) },
            ],
            failure: vec![delete("a", "z")],
        };
        let answer = apply(&mut keys, &txn, 128).unwrap();
        assert!(answer.succeeded && keys.revision == 2 && answer.responses.len() == 3);
        assert_eq!(keys.changes_from(0).count(), 3);
        let answer = apply(&mut keys, &txn, 128).unwrap();
        let Some(OpResponse::Delete(deleted)) = &answer.responses[0].response else { panic!() };
        assert_eq!((answer.succeeded, deleted.deleted, deleted.prev_kvs.len()), (false, 3, 3));
        assert_eq!(keys.revision, 3);
    }

    #[test]
    fn refused_transactions_change_nothing() {
        let mut keys = Keyspace::new(600);
        let mut refused = |ops: Vec<RequestOp>| {
            let txn = TxnRequest { compare: vec![], success: ops, failure: vec![] };
            let error = apply(&mut keys, &txn, 2).unwrap_err();
            assert_eq!((keys.revision, keys.n_bytes), (1, 0));
            error
        };
        assert_eq!(refused(vec![put("a", "1"), put("a", "2")]), Status::duplicate_key());
        assert_eq!(refused(vec![put("b", "1"), delete("a", "c")]), Status::duplicate_key());
        assert_eq!(
            refused(vec![put("a", ""), put("b", ""), put("c", "")]),
            Status::too_many_operations()
        );
        let mut leased = put("a", "1");
        if let Some(Op::Put(put)) = &mut leased.request {
            put.lease = 7;
        }
        assert_eq!(refused(vec![put("b", "1"), leased]), Status::lease_not_found());
        // Nested transactions share the room for operations.
        let inner = vec![put("a", ""), put("b", "")];
        assert_eq!(refused(vec![nested(inner, vec![])]), Status::too_many_operations());
        let by_name = RangeRequest { key: "a".into(), sort_target: 5, ..RangeRequest::default() };
        let by_name = RequestOp { request: Some(Op::Range(by_name)) };
        assert_eq!(refused(vec![by_name]).to_string(), "etcdserver: invalid sort option");
    }

    /// A transaction without compares: its first half is performed.
    fn nested(success: Vec<RequestOp>, failure: Vec<RequestOp>) -> RequestOp {
        let txn = TxnRequest { compare: vec![], success, failure };
        RequestOp { request: Some(Op::Txn(txn)) }
    }

    /// The write of one half and the delete of the other were taken for a duplicate key.
    #[test]
    fn halves_of_a_nested_transaction_may_name_the_same_key() {
        let mut keys = Keyspace::new(1 << 20);
        let mut performed = |ops: Vec<RequestOp>| {
            let txn = TxnRequest { compare: vec![], success: ops, failure: vec![] };
            apply(&mut keys, &txn, 128).map(|answer| answer.responses.len())
        };
        let write_or_delete = || nested(vec![put("a", "1")], vec![delete("a", "c")]);
        assert_eq!(performed(vec![write_or_delete(), put("d", "1")]), Ok(2));
        assert_eq!(performed(vec![nested(vec![put("a", "1")], vec![put("a", "2")])]), Ok(1));
        let twice = vec![write_or_delete(), write_or_delete()];
        assert_eq!(performed(twice).unwrap_err(), Status::duplicate_key());
        let deleted_before = vec![delete("a", ""), nested(vec![put("a", "")], vec![])];
        assert_eq!(performed(deleted_before).unwrap_err(), Status::duplicate_key());
        let beside = vec![write_or_delete(), put("b", "1")];
        assert_eq!(performed(beside).unwrap_err(), Status::duplicate_key());
    }
}
