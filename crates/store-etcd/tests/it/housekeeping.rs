//! Leases and compaction.

use crate::{patient, put, take_until};
use setpoint_store::*;
use setpoint_store_etcd::{
    EtcdStore,
    testing::{self, Cluster},
};
use std::time::Duration;

fn expiring(key: String, ttl: Duration) -> Txn {
    Txn { compares: vec![], ops: vec![Op::Put(key.into(), "x".into())], ttl: Some(ttl) }
}

async fn output(mut etcdctl: std::process::Command, args: &[&str]) -> String {
    let output = etcdctl.args(args).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{args:?}: {printed}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    printed
}

/// Kubernetes' lease manager: keys that expire at about the same time share a lease.
#[tokio::test]
async fn many_keys_share_a_lease_and_a_lost_one_is_replaced() {
    if !testing::available() {
        return;
    }
    let cluster = Cluster::start(1).await;
    let store = cluster.store().await;
    for i in 0..50 {
        store.commit(expiring(format!("/events/{i}"), Duration::from_secs(3600))).await.unwrap();
    }
    let Some(_) = cluster.etcdctl() else { return };
    let leases = async || {
        let list = output(cluster.etcdctl().unwrap(), &["lease", "list"]).await;
        let ids = list.lines().filter(|line| line.len() == 16 && !line.contains(' '));
        ids.map(str::to_owned).collect::<Vec<_>>()
    };
    let [lease] = &leases().await[..] else { panic!("more than one lease") };
    output(cluster.etcdctl().unwrap(), &["lease", "revoke", lease]).await;
    assert_eq!(store.range(RangeRequest::prefix("/events/")).await.unwrap().value.count, 0);
    // The store does not know yet that the lease is gone.
    store.commit(expiring("/events/new".into(), Duration::from_secs(3600))).await.unwrap();
    assert!(store.get(b"/events/new", At::Latest).await.unwrap().value.is_some());
    assert_ne!(&leases().await[0], lease);
    // A thousand keys fill a lease; the next key gets another.
    for i in 0..10 {
        let ops = (0..100).map(|j| Op::Put(format!("/more/{i}/{j}").into(), "x".into()));
        let ttl = Some(Duration::from_secs(3600));
        store.commit(Txn { compares: vec![], ops: ops.collect(), ttl }).await.unwrap();
    }
    assert_eq!(leases().await.len(), 2);
}

#[tokio::test]
async fn end_of_a_lease_is_delivered_as_deletes_with_previous_values() {
    if !testing::available() {
        return;
    }
    let cluster = Cluster::start(1).await;
    let store = cluster.store().await;
    let start = store.revision().await.unwrap();
    let mut feed = store.changes("/".into(), start).await.unwrap();
    for key in ["/a", "/b"] {
        store.commit(expiring(key.into(), Duration::from_secs(2))).await.unwrap();
    }
    let mut changes = Vec::new();
    while changes.len() < 4 {
        changes.extend(feed.next().await.unwrap().changes);
    }
    for change in &changes[2..] {
        assert_eq!(change.value, None);
        assert_eq!(change.previous.as_ref().unwrap().value, "x");
    }
}

/// As kube-apiserver does it: one of many servers compacts in each round.
#[tokio::test]
async fn servers_compact_once_per_round_in_all() {
    if !testing::available() {
        return;
    }
    let cluster = Cluster::start(1).await;
    let (one, two) = (cluster.store().await, cluster.store().await);
    let mut revisions = Vec::new();
    for i in 0..20 {
        revisions.push(put(&one, "/a", i.to_string()).await);
    }
    let is_readable =
        async |revision: Revision| one.get(b"/a", At::Exactly(revision)).await.is_ok();
    one.compact(revisions[2]).await.unwrap();
    assert!(!is_readable(revisions[1]).await && is_readable(revisions[2]).await);
    // A server that knows of no round begins one.
    two.compact(revisions[5]).await.unwrap();
    assert!(!is_readable(revisions[4]).await && is_readable(revisions[5]).await);
    // The first server finds that another has compacted since its own round, and skips this one.
    one.compact(revisions[8]).await.unwrap();
    assert!(is_readable(revisions[5]).await);
    // From now on the second server compacts, and the first one skips its rounds.
    two.compact(revisions[10]).await.unwrap();
    assert!(!is_readable(revisions[9]).await && is_readable(revisions[10]).await);
    one.compact(revisions[12]).await.unwrap();
    assert!(is_readable(revisions[10]).await);
    // Once the second server is gone, the first one takes over.
    two.close().await;
    one.compact(revisions[14]).await.unwrap();
    assert!(!is_readable(revisions[13]).await && is_readable(revisions[14]).await);
    let newest = one.revision().await.unwrap();
    assert!(matches!(one.compact(Revision(newest.0 + 1)).await, Err(StoreError::Future { .. })));
    assert!(matches!(one.compact(revisions[3]).await, Err(StoreError::Compacted { .. })));
}

/// A feed whose member was away while history was compacted past it returns the error, with the
/// revision to continue from.
#[tokio::test]
async fn feed_behind_a_compaction_returns_compacted() {
    if !testing::available() {
        return;
    }
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let away = (leader + 1) % 3;
    let mut endpoints = cluster.endpoints();
    let only = EtcdStore::connect(patient(vec![endpoints.remove(away)])).await.unwrap();
    let others = EtcdStore::connect(patient(endpoints)).await.unwrap();
    let start = put(&others, "/a", "0").await;
    let mut overtaken = only.changes("/".into(), start).await.unwrap();
    let mut not_overtaken = only.changes("/".into(), Revision(start.0 + 3)).await.unwrap();
    let first = put(&others, "/a", "1").await;
    assert_eq!(take_until(&mut *overtaken, first).await.len(), 1);
    cluster.kill(away);
    put(&others, "/a", "2").await;
    let last = put(&others, "/a", "3").await;
    assert_eq!(last.0, start.0 + 3);
    others.compact(last).await.unwrap();
    cluster.restart(away);
    let ended = overtaken.next().await;
    let Err(StoreError::Compacted { asked, oldest }) = ended else { panic!("{ended:?}") };
    assert_eq!((asked, oldest), (first, last));
    let refused = only.changes("/".into(), first).await.map(drop);
    let Err(StoreError::Compacted { asked, oldest }) = refused else { panic!("{refused:?}") };
    assert_eq!((asked, oldest), (first, last));
    let next = put(&others, "/a", "4").await;
    let mut from_oldest = only.changes("/".into(), oldest).await.unwrap();
    for feed in [&mut from_oldest, &mut not_overtaken] {
        let changes = take_until(&mut **feed, next).await;
        let [change] = &changes[..] else { panic!("{changes:?}") };
        assert_eq!(change.revision, next);
        assert_eq!(change.previous.as_ref().unwrap().modified, last);
    }
}
