//! Members die and hang during writes, and a feed delivers exactly what was written.

use crate::take_until;
use bytes::Bytes;
use setpoint_store::*;
use setpoint_store_etcd::{
    EtcdOptions, EtcdStore,
    testing::{self, Cluster},
};
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

const KEY: &[u8] = b"/counter";

/// A store that prefers one of the members, and has short timeouts.
async fn store_at(cluster: &Cluster, first: usize) -> EtcdStore {
    let mut endpoints = cluster.endpoints();
    endpoints.rotate_left(first);
    let mut options = EtcdOptions::new(endpoints);
    options.request_timeout = Duration::from_secs(4);
    options.attempt_timeout = Duration::from_secs(1);
    EtcdStore::connect(options).await.unwrap()
}

/// Counts up with one commit per number until `stop`. Returns the revision of each acknowledged
/// number. Reads after an unknown outcome.
async fn count(store: &EtcdStore, stop: &AtomicBool) -> BTreeMap<u64, Revision> {
    let mut acknowledged = BTreeMap::new();
    while !stop.load(Ordering::Relaxed) {
        let Ok(found) = store.get(KEY, At::Latest).await else { continue };
        let mut compare = match &found.value {
            None => Compare::Absent(KEY.into()),
            Some(entry) => Compare::Modified(KEY.into(), entry.modified),
        };
        let mut number = found.value.map_or(0, |entry| number(&entry.value));
        // Continues as long as the value of the counter is known.
        while !stop.load(Ordering::Relaxed) {
            let ops = vec![Op::Put(KEY.into(), (number + 1).to_string().into())];
            match store.commit(Txn { compares: vec![compare], ops, ttl: None }).await {
                Ok(Committed::Done(revision)) => {
                    number += 1;
                    acknowledged.insert(number, revision);
                    compare = Compare::Modified(KEY.into(), revision);
                }
                // The commit with the unknown outcome has happened.
                Ok(Committed::Refused { .. }) => break,
                Err(StoreError::Unknown(_) | StoreError::Unavailable(_)) => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
    acknowledged
}

fn number(value: &Bytes) -> u64 {
    std::str::from_utf8(value).unwrap().parse().unwrap()
}

/// Reads a feed and checks it: each number once, after the one before it.
async fn follow(
    feed: &mut dyn ChangeFeed,
    stop_at: impl Fn() -> Option<Revision>,
) -> BTreeMap<u64, Revision> {
    let mut delivered = BTreeMap::new();
    let (mut last, mut reached) = (0, Revision(0));
    loop {
        // A short wait, because the end is known only when the writer has ended.
        let batch = tokio::time::timeout(Duration::from_millis(50), feed.next()).await;
        if let Ok(batch) = batch {
            let batch = batch.unwrap();
            assert!(batch.revision >= reached, "back from {reached} to {}", batch.revision);
            reached = batch.revision;
            for change in batch.changes {
                let n = number(change.value.as_ref().unwrap());
                assert_eq!(n, last + 1, "no gap, nothing twice");
                let before = change.previous.map(|entry| (number(&entry.value), entry.modified));
                assert_eq!(before, delivered.get(&last).map(|revision| (last, *revision)));
                delivered.insert(n, change.revision);
                last = n;
            }
        }
        if stop_at().is_some_and(|end| reached >= end) {
            return delivered;
        }
    }
}

/// Runs a writer and feeds of two stores while `trouble` runs, then compares what they saw.
async fn under(trouble: impl AsyncFnOnce(&mut Cluster)) {
    let mut cluster = Cluster::start(3).await;
    let (writer, reader) = (store_at(&cluster, 0).await, store_at(&cluster, 1).await);
    let start = writer.revision().await.unwrap();
    let mut near = writer.changes("/".into(), start).await.unwrap();
    let mut far = reader.changes("/".into(), start).await.unwrap();
    let (stop, end) = (AtomicBool::new(false), std::cell::Cell::new(None));
    let write = async {
        let acknowledged = count(&writer, &stop).await;
        // Both feeds must reach the current revision.
        while end.get().is_none() {
            end.set(reader.revision().await.ok());
        }
        acknowledged
    };
    let trouble = async {
        trouble(&mut cluster).await;
        cluster.wait_healthy().await;
        stop.store(true, Ordering::Relaxed);
    };
    let (acknowledged, near, far, ()) = tokio::join!(
        write,
        follow(&mut *near, || end.get()),
        follow(&mut *far, || end.get()),
        trouble
    );
    assert_eq!(near, far, "both feeds tell the same");
    assert!(acknowledged.len() > 5, "the writer went on: {}", acknowledged.len());
    for (number, revision) in &acknowledged {
        assert_eq!(near.get(number), Some(revision), "an acknowledged write is in the feeds");
    }
    // Unacknowledged numbers may also have been written, if a commit was unknown; each once, as in
    // the feeds.
    let present = reader.get(KEY, At::Latest).await.unwrap().value.unwrap();
    assert_eq!(near.last_key_value(), Some((&number(&present.value), &present.modified)));
    // A feed from the past delivers everything again.
    let mut again = reader.changes("/".into(), start).await.unwrap();
    let again = take_until(&mut *again, present.modified).await;
    assert_eq!(again.len(), near.len());
}

#[tokio::test]
async fn no_write_and_no_change_is_lost_when_members_are_killed() {
    if !testing::available() {
        return;
    }
    under(async |cluster| {
        for round in 0..6 {
            // Every other time the leader.
            let victim = if round % 2 == 0 { cluster.leader().await } else { round % 3 };
            cluster.kill(victim);
            tokio::time::sleep(Duration::from_millis(700)).await;
            cluster.restart(victim);
            cluster.wait_healthy().await;
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn no_write_and_no_change_is_lost_while_members_are_upgraded() {
    if !testing::available() {
        return;
    }
    under(async |cluster| {
        for member in 0..3 {
            cluster.stop(member).await;
            tokio::time::sleep(Duration::from_millis(300)).await;
            cluster.restart(member);
            cluster.wait_healthy().await;
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn no_write_and_no_change_is_lost_when_the_majority_goes() {
    if !testing::available() {
        return;
    }
    under(async |cluster| {
        for _ in 0..2 {
            cluster.kill(0);
            cluster.kill(1);
            tokio::time::sleep(Duration::from_millis(800)).await;
            cluster.restart(0);
            cluster.restart(1);
            cluster.wait_healthy().await;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn calls_leave_a_paused_leader() {
    if !testing::available() {
        return;
    }
    under(async |cluster| {
        for _ in 0..2 {
            let leader = cluster.leader().await;
            cluster.pause(leader);
            // Longer than the patience with a silent member.
            tokio::time::sleep(Duration::from_secs(6)).await;
            cluster.resume(leader);
            cluster.wait_healthy().await;
        }
    })
    .await;
}

/// Requests progress continuously while changes of the feed's prefix are in flight: progress must
/// not overtake them.
#[tokio::test]
async fn progress_never_overtakes_changes() {
    if !testing::available() {
        return;
    }
    const WRITES: usize = 600;
    let cluster = Cluster::start(3).await;
    let writer = store_at(&cluster, 0).await;
    let start = writer.revision().await.unwrap();
    // On each member: leaders and followers get a change at different times.
    let stores = [writer.clone(), store_at(&cluster, 1).await, store_at(&cluster, 2).await];
    let done = AtomicBool::new(false);
    let write = async {
        let lanes = (0..8).map(async |lane| {
            for i in 0..WRITES / 8 {
                // Some inside the prefix, some outside, so that there is progress to send.
                let prefix = if i % 4 == 0 { "/other" } else { "/k" };
                crate::put(&writer, &format!("{prefix}/{lane}/{i}"), vec![b'x'; 20_000]).await;
            }
        });
        futures::future::join_all(lanes).await;
        done.store(true, Ordering::Relaxed);
    };
    let read = stores.iter().map(async |store| {
        let mut feed = store.changes("/k/".into(), start).await.unwrap();
        let (mut delivered, mut n_asked, mut reached) = (Vec::new(), 0, start);
        loop {
            let is_last = done.load(Ordering::Relaxed);
            let goal = store.revision().await.unwrap();
            while reached < goal {
                let batch = feed.next().await.unwrap();
                delivered.extend(batch.changes.into_iter().map(|change| change.key));
                reached = batch.revision;
            }
            n_asked += 1;
            if is_last {
                break;
            }
        }
        assert!(n_asked > 10, "{n_asked}");
        delivered.sort();
        let all = store.range(RangeRequest::prefix("/k/")).await.unwrap().value.entries;
        assert_eq!(delivered, all.into_iter().map(|entry| entry.key).collect::<Vec<_>>());
    });
    tokio::join!(write, futures::future::join_all(read));
}
