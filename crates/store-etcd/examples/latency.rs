//! Latencies with real etcd processes on loopback.
//!
//! `SETPOINT_TEST_ETCD=/path/to/etcd cargo run --release -p setpoint-store-etcd --features testing
//! --example latency`
#![allow(clippy::unwrap_used, reason = "a program that measures stops at the first surprise")]

use futures::future::join_all;
use setpoint_store::*;
use setpoint_store_etcd::{EtcdOptions, EtcdStore, testing::Cluster};
use std::time::Duration;
use tokio::time::Instant;

/// Number of commits per line.
const COMMITS: usize = 2000;
/// The size of a ConfigMap.
const VALUE_BYTES: usize = 1024;

fn put(key: String) -> Txn {
    let value = vec![b'x'; VALUE_BYTES].into();
    Txn {
        compares: vec![Compare::Absent(key.clone().into())],
        ops: vec![Op::Put(key.into(), value)],
        ttl: None,
    }
}

fn spread(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |part: usize| times[(times.len() - 1) * part / 100];
    println!("{what}: p50 {:?}, p99 {:?}, longest {:?}", at(50), at(99), at(100));
}

async fn commits(store: &EtcdStore, writers: usize, round: &str) {
    let begun = Instant::now();
    let times = join_all((0..writers).map(async |writer| {
        let mut times = Vec::new();
        for i in 0..COMMITS / writers {
            let sent = Instant::now();
            let done = store.commit(put(format!("/{round}/{writers}/{writer}/{i}"))).await.unwrap();
            assert!(matches!(done, Committed::Done(_)));
            times.push(sent.elapsed());
        }
        times
    }));
    let times: Vec<_> = times.await.into_iter().flatten().collect();
    let rate = times.len() as f64 / begun.elapsed().as_secs_f64();
    spread(&format!("  {writers} writers, {rate:.0} commits/s"), times);
}

async fn visible(one: &EtcdStore, two: &EtcdStore, round: &str) {
    let start = one.revision().await.unwrap();
    let mut feed = two.changes(format!("/{round}/seen/").into(), start).await.unwrap();
    let (mut times, mut progress) = (Vec::new(), Vec::new());
    for i in 0..200 {
        let sent = Instant::now();
        let (done, batch) =
            tokio::join!(one.commit(put(format!("/{round}/seen/{i}"))), feed.next());
        let (Committed::Done(revision), mut batch) = (done.unwrap(), batch.unwrap()) else {
            panic!("refused")
        };
        while batch.revision < revision {
            batch = feed.next().await.unwrap();
        }
        times.push(sent.elapsed());
    }
    for i in 0..200 {
        one.commit(put(format!("/{round}/unseen/{i}"))).await.unwrap();
        let requested = Instant::now();
        let revision_now = two.revision().await.unwrap();
        while feed.next().await.unwrap().revision < revision_now {}
        progress.push(requested.elapsed());
    }
    spread("  from the start of a commit until another store's feed delivers it", times);
    spread("  from a read of the revision until a feed reaches it by progress", progress);
}

/// As an API server starts: pages of many keys at one revision.
async fn ranges(store: &EtcdStore) {
    const KEYS: usize = 100_000;
    let fill = (0..KEYS).step_by(100).map(|from| {
        let ops = (from..from + 100)
            .map(|i| Op::Put(format!("/range/{i:07}").into(), vec![b'x'; VALUE_BYTES].into()));
        Txn { ops: ops.collect(), ..Txn::default() }
    });
    let fill: Vec<_> = fill.collect();
    for some in fill.chunks(16) {
        join_all(some.iter().map(|txn| store.commit(txn.clone()))).await;
    }
    let begun = Instant::now();
    let all = store.range(RangeRequest::prefix("/range/")).await.unwrap().value;
    assert_eq!(all.entries.len(), KEYS);
    println!("  a range of {KEYS} keys of {VALUE_BYTES} bytes: {:?}", begun.elapsed());
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    for members in [1, 3] {
        println!("{members} member(s)");
        let mut cluster = Cluster::start(members).await;
        let (one, two) = (cluster.store().await, cluster.store().await);
        let round = members.to_string();
        for writers in [1, 16, 64] {
            commits(&one, writers, &round).await;
        }
        visible(&one, &two, &round).await;
        if members == 1 {
            ranges(&one).await;
            continue;
        }
        // The leader dies during writes.
        let leader = cluster.leader().await;
        let mut options = EtcdOptions::new(cluster.endpoints());
        options.endpoints.rotate_left(leader);
        let store = EtcdStore::connect(options).await.unwrap();
        let (mut longest, mut last, mut n_unknown) = (Duration::ZERO, Instant::now(), 0);
        for i in 0..400 {
            if i == 200 {
                cluster.kill(leader);
            }
            match store.commit(put(format!("/failover/{i}"))).await {
                Ok(_) => {
                    longest = longest.max(last.elapsed());
                    last = Instant::now();
                }
                Err(StoreError::Unknown(_)) => n_unknown += 1,
                Err(error) => panic!("{error}"),
            }
        }
        println!("  the leader is killed: no commit for {longest:?}, {n_unknown} unknown");
    }
}
