//! Histories on real etcd: a cluster of three members, which are killed, paused and restarted, and
//! two servers over it.
//!
//! In real time. Many histories run concurrently over one cluster, each with its own objects. A
//! failure cannot be replayed, so it prints everything. Members leave syncing to the kernel, which
//! keeps written data when one is killed: the subject is not the disk.

use crate::cast::{Cast, PATIENCE};
use crate::client::{NAMESPACES, Place};
use crate::engines;
use crate::log::Log;
use crate::record::{Record, Tally};
use crate::replay::number;
use crate::servers::Server;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use setpoint::store::fault::{FaultStore, Faults};
use setpoint::store::{Revision, Store};
use setpoint_store_etcd::testing::{self, Cluster, ClusterOptions};
use setpoint_store_etcd::{EtcdOptions, EtcdStore};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Number of histories, unless `SEEDS` is set.
const HISTORIES: u64 = 1000;
/// No history starts after this time.
const TIME_MAX: Duration = Duration::from_secs(90);
/// With fewer histories the test fails.
const HISTORIES_MIN: u64 = 100;
/// Number of concurrent histories.
const SLOTS: usize = 24;
/// The longest pause of a client.
const PAUSE_MAX: Duration = Duration::from_millis(4);

/// A server over etcd, and its connection.
#[derive(Default)]
struct Life {
    server: Arc<Server>,
    store: Option<EtcdStore>,
}

impl Life {
    async fn start(&mut self, endpoints: &[String], seed: u64) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut options = EtcdOptions::new(endpoints.to_vec());
            options.attempt_timeout = Duration::from_secs(1);
            let why = match EtcdStore::connect(options).await {
                Ok(store) => {
                    let faulty = FaultStore::new(store.clone(), Faults::default(), seed);
                    match self.server.try_start(Arc::new(faulty.clone()), seed).await {
                        Ok(()) => {
                            let (unavailable, answer_lost) = (0.005, 0.01);
                            faulty.set_faults(Faults {
                                unavailable,
                                answer_lost,
                                feed_broken: 0.0,
                            });
                            self.store = Some(store);
                            return;
                        }
                        Err(why) => {
                            store.close().await;
                            why
                        }
                    }
                }
                Err(error) => error.to_string(),
            };
            assert!(Instant::now() < deadline, "a server does not start: {why}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn end(&mut self, is_crash: bool) {
        if is_crash {
            self.server.crash().await;
        } else {
            self.server.stop().await;
        }
        if let Some(store) = self.store.take() {
            store.close().await;
        }
    }
}

/// Kills and starts members and servers until `stop`.
async fn interfere(
    mut cluster: Cluster,
    mut lives: Vec<Life>,
    record: Arc<Record>,
    stop: CancellationToken,
) -> (Cluster, Vec<Life>) {
    let mut rng = SmallRng::seed_from_u64(7);
    let endpoints = cluster.endpoints();
    while !stop.is_cancelled() {
        tokio::time::sleep(Duration::from_millis(rng.random_range(100..700))).await;
        let (member, life) = (rng.random_range(0..cluster.len()), rng.random_range(0..lives.len()));
        match rng.random_range(0..5) {
            0 => {
                record.note("members killed");
                cluster.kill(member);
                tokio::time::sleep(Duration::from_millis(rng.random_range(0..1000))).await;
                cluster.restart(member);
            }
            1 => {
                record.note("leaders killed");
                let leader = cluster.leader().await;
                cluster.kill(leader);
                tokio::time::sleep(Duration::from_millis(rng.random_range(0..1000))).await;
                cluster.restart(leader);
            }
            2 => {
                record.note("members that stood still");
                cluster.pause(member);
                tokio::time::sleep(Duration::from_millis(rng.random_range(0..1500))).await;
                cluster.resume(member);
            }
            crash_or_stop => {
                let is_crash = crash_or_stop == 3;
                record.note(if is_crash { "servers crashed" } else { "servers stopped" });
                lives[life].end(is_crash).await;
                lives[life].start(&endpoints, rng.random()).await;
            }
        }
        cluster.wait_healthy().await;
    }
    (cluster, lives)
}

/// One history.
async fn history(slot: usize, n: u64, servers: Vec<Arc<Server>>, truth: EtcdStore) -> Tally {
    let place = Arc::new(Place {
        namespaces: [format!("s{slot}-0"), format!("s{slot}-1")],
        prefix: format!("h{n}-"),
        is_alone: false,
        servers,
    });
    let record = Arc::new(Record::default());
    let first = revision(&truth).await;
    let mut cast = Cast::new(n, place.clone(), record.clone(), PAUSE_MAX);
    cast.ask().await;
    let closing = tokio::time::timeout(PATIENCE, cast.person().close()).await;
    closing.expect("the history closes in time");
    let prefix = format!("/registry/configmaps/s{slot}-");
    let log = account(&truth, &place, &prefix, first).await;
    let last = |namespace| {
        let keys: Vec<_> = Place::keys().into_iter().filter(|key| key.0 == namespace).collect();
        log.end(&keys)
    };
    let is_seen = cast.see((0..NAMESPACES).map(last).collect()).await;
    assert!(is_seen, "a watcher did not receive an event: {log:?}");
    // So that lists of the slot's next history stay short.
    for namespace in 0..NAMESPACES {
        cast.person().clear(namespace).await;
    }
    match record.judge(&log) {
        Ok(played) => played.tally,
        Err(fault) => panic!("history {n}: {fault}\nthe engine's account: {log:?}"),
    }
}

/// The store's revision, once it answers.
async fn revision(store: &EtcdStore) -> Revision {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match store.revision().await {
            Ok(revision) => return revision,
            Err(error) => assert!(Instant::now() < deadline, "the store does not answer: {error}"),
        }
    }
}

/// The store's log of changes, once it returns it.
async fn account(store: &EtcdStore, place: &Place, prefix: &str, after: Revision) -> Log {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match engines::log(store, place, prefix, after).await {
            Ok(log) => return log,
            Err(error) => assert!(Instant::now() < deadline, "the store does not answer: {error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn histories_on_etcd_are_linearizable() {
    if !testing::available() {
        return;
    }
    let started = Instant::now();
    let n_histories = number("SEEDS").unwrap_or(HISTORIES);
    let mut options = ClusterOptions::default();
    (options.members, options.unsynced) = (3, true);
    let cluster = Cluster::start_with(options).await;
    let endpoints = cluster.endpoints();
    let truth = cluster.store().await;
    let mut lives = vec![Life::default(), Life::default()];
    for (life, seed) in lives.iter_mut().zip(1..) {
        life.start(&endpoints, seed).await;
    }
    let servers: Vec<Arc<Server>> = lives.iter().map(|life| life.server.clone()).collect();
    for slot in 0..SLOTS {
        for namespace in 0..NAMESPACES {
            servers[0].insist_on_namespace(&format!("s{slot}-{namespace}")).await;
        }
    }

    let record = Arc::new(Record::default());
    let stop = CancellationToken::new();
    let mut interfering = JoinSet::new();
    interfering.spawn(interfere(cluster, lives, record.clone(), stop.clone()));
    let next = Arc::new(AtomicU64::new(0));
    let mut playing = JoinSet::new();
    for slot in 0..SLOTS {
        let (servers, truth, next) = (servers.clone(), truth.clone(), next.clone());
        playing.spawn(async move {
            let mut sum = Tally::new();
            while started.elapsed() < TIME_MAX {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= n_histories {
                    break;
                }
                let tally = history(slot, n, servers.clone(), truth.clone()).await;
                tally.into_iter().for_each(|(what, n)| *sum.entry(what).or_default() += n);
                *sum.entry("histories").or_default() += 1;
            }
            sum
        });
    }
    let mut sum = Tally::new();
    loop {
        tokio::select! {
            biased;
            Some(ended) = interfering.join_next() => panic!("{:?}", ended.map(|_| ())),
            ended = playing.join_next() => match ended {
                None => break,
                Some(played) => {
                    let played = played.unwrap();
                    played.into_iter().for_each(|(what, n)| *sum.entry(what).or_default() += n);
                }
            }
        }
    }
    stop.cancel();
    if let Some(ended) = interfering.join_next().await {
        let (_cluster, mut lives) = ended.unwrap();
        for life in &mut lives {
            life.end(false).await;
        }
        truth.close().await;
    }
    record.tally().into_iter().for_each(|(what, n)| *sum.entry(what).or_default() += n);
    println!("{:?}: {sum:#?}", started.elapsed());
    assert!(sum["histories"] >= n_histories.min(HISTORIES_MIN), "too few histories: {sum:?}");
}
