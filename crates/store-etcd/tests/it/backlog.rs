//! Feeds with a large backlog, in responses that etcd splits.

use crate::{put, take_until};
use setpoint_store::*;
use setpoint_store_etcd::testing::{self, Cluster};

const MIB: usize = 1 << 20;

#[tokio::test]
async fn large_history_is_delivered_whole_and_in_order() {
    if !testing::available() {
        return;
    }
    let cluster = Cluster::start(1).await;
    let store = cluster.store().await;
    let start = store.revision().await.unwrap();
    // Not read until all is written: etcd holds the changes back, then sends them in fragments with
    // the previous values.
    let mut open = store.changes("/".into(), start).await.unwrap();
    let mut revisions = Vec::new();
    for i in 0..40_u8 {
        revisions.push(put(&store, &format!("/{}", i % 4), vec![i; MIB]).await);
    }
    // One revision of many changes, whose previous values together exceed etcd's limit for a
    // response.
    let ops = (0..4).map(|i| Op::Put(format!("/{i}").into(), "small".into())).collect();
    let Committed::Done(last) = store.commit(Txn { ops, ..Txn::default() }).await.unwrap() else {
        panic!("refused")
    };
    let mut late = store.changes("/".into(), start).await.unwrap();
    for feed in [&mut open, &mut late] {
        let mut n = 0;
        let mut at_last = 0;
        loop {
            let batch = feed.next().await.unwrap();
            for change in &batch.changes {
                if change.revision == last {
                    at_last += 1;
                    assert_eq!(change.previous.as_ref().unwrap().value.len(), MIB);
                    continue;
                }
                assert_eq!(change.revision, revisions[n], "in order, none missing");
                assert!(change.value.as_ref().unwrap().iter().all(|b| usize::from(*b) == n));
                let previous = change.previous.as_ref().map(|entry| entry.modified);
                assert_eq!(previous, n.checked_sub(4).map(|before| revisions[before]));
                n += 1;
            }
            if batch.revision >= last {
                assert_eq!(at_last, 4, "one revision, one batch");
                break;
            }
            assert_eq!(at_last, 0, "one revision, one batch");
        }
        assert_eq!(n, revisions.len());
    }
}

/// etcd counts the encoded request, so its limit is a little below the contract's.
#[tokio::test]
async fn values_over_the_limit_are_refused_by_the_store_or_etcd() {
    if !testing::available() {
        return;
    }
    let cluster = Cluster::start(1).await;
    let store = cluster.store().await;
    let sized = |bytes: usize| Txn {
        ops: vec![Op::Put("/big".into(), vec![b'x'; bytes].into())],
        ..Txn::default()
    };
    for bytes in [VALUE_BYTES_MAX + 1, VALUE_BYTES_MAX - 4] {
        let refused = store.commit(sized(bytes)).await;
        assert!(matches!(refused, Err(StoreError::TooLarge { .. })), "{bytes}: {refused:?}");
    }
    assert_eq!(store.get(b"/big", At::Latest).await.unwrap().value, None);
    store.commit(sized(VALUE_BYTES_MAX - 512)).await.unwrap();
}

#[tokio::test]
async fn ranges_longer_than_a_page_are_read_at_one_revision() {
    if !testing::available() {
        return;
    }
    let cluster = Cluster::start(1).await;
    let store = cluster.store().await;
    let n = setpoint_store_etcd::PAGE_KEYS_MAX + 500;
    for from in (0..n).step_by(100) {
        let ops = (from..from + 100).map(|i| Op::Put(format!("/k/{i:06}").into(), "x".into()));
        store.commit(Txn { ops: ops.collect(), ..Txn::default() }).await.unwrap();
    }
    let all = store.range(RangeRequest::prefix("/k/")).await.unwrap().value;
    assert_eq!((all.entries.len(), all.count), (n, n));
    assert!(all.entries.is_sorted_by(|a, b| a.key < b.key));
}

#[tokio::test]
async fn other_stores_see_a_write_and_other_tools_the_keys() {
    if !testing::available() {
        return;
    }
    let cluster = Cluster::start(1).await;
    let (one, two) = (cluster.store().await, cluster.store().await);
    let start = one.revision().await.unwrap();
    let mut feed = two.changes("/registry/".into(), start).await.unwrap();
    let written = put(&one, "/registry/configmaps/default/a", r#"{"kind":"ConfigMap"}"#).await;
    let changes = take_until(&mut *feed, written).await;
    assert_eq!(changes[0].value.as_ref().unwrap(), r#"{"kind":"ConfigMap"}"#);
    // A revision that one store returned is reached by the other's feed, once that store has
    // returned it too.
    put(&one, "/elsewhere", "x").await;
    let revision = two.revision().await.unwrap();
    assert!(take_until(&mut *feed, revision).await.is_empty());
    let Some(mut etcdctl) = cluster.etcdctl() else { return };
    let output = etcdctl.args(["get", "--prefix", "/registry/", "--write-out=fields"]).output();
    let printed = String::from_utf8(output.unwrap().stdout).unwrap();
    assert!(printed.contains(r#""Key" : "/registry/configmaps/default/a""#), "{printed}");
    assert!(printed.contains(&format!(r#""ModRevision" : {written}"#)), "{printed}");
    // The reverse.
    let put = cluster.etcdctl().unwrap().args(["put", "/registry/x", "theirs"]).output().unwrap();
    assert!(put.status.success());
    let entry = one.get(b"/registry/x", At::Latest).await.unwrap().value.unwrap();
    assert_eq!((entry.value, entry.created), ("theirs".into(), entry.modified));
}
