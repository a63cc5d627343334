//! Histories on the program with a data folder, which is killed by SIGKILL at arbitrary points and
//! restarted.
//!
//! In real time, many histories concurrently. They are compared with the folder's log of changes
//! after the end.

use crate::cast::{Cast, PATIENCE};
use crate::client::{NAMESPACES, Place};
use crate::engines;
use crate::program::Program;
use crate::record::{Record, Tally};
use crate::replay::number;
use crate::servers::Server;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use setpoint::store::{DiskOptions, DiskStore, Revision};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Number of histories, unless `SEEDS` is set.
const HISTORIES: u64 = 200;
/// No history starts after this time.
const TIME_MAX: Duration = Duration::from_secs(30);
/// With fewer histories the test fails.
const HISTORIES_MIN: u64 = 20;
/// Number of concurrent histories.
const SLOTS: usize = 8;
/// The longest pause of a client.
const PAUSE_MAX: Duration = Duration::from_millis(30);

/// Kills and starts the program until `stop`; then stops it gracefully.
async fn interfere(
    mut program: Program,
    server: Arc<Server>,
    record: Arc<Record>,
    stop: CancellationToken,
) {
    let mut rng = SmallRng::seed_from_u64(3);
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(Duration::from_millis(rng.random_range(300..1500))) => {}
        }
        record.note("programs killed");
        program.kill();
        server.detach();
        program.restart().await;
        server.attach(program.client());
    }
    server.detach();
    program.stop().await;
}

/// Runs one history; returns its objects and its record.
async fn history(slot: usize, n: u64, server: Arc<Server>) -> (Arc<Place>, Arc<Record>) {
    let place = Arc::new(Place {
        namespaces: [format!("s{slot}-0"), format!("s{slot}-1")],
        prefix: format!("h{n}-"),
        is_alone: false,
        servers: vec![server],
    });
    let record = Arc::new(Record::default());
    let mut cast = Cast::new(n, place.clone(), record.clone(), PAUSE_MAX);
    cast.ask().await;
    let mut last = Vec::new();
    for namespace in 0..NAMESPACES {
        let closing = tokio::time::timeout(PATIENCE, cast.person().last_write(namespace)).await;
        last.push(closing.expect("the history closes in time"));
    }
    let is_seen = cast.see(last.clone()).await;
    assert!(is_seen, "a watcher did not receive an event: {last:?}");
    (place, record)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn histories_over_a_program_that_is_killed_are_linearizable() {
    let started = Instant::now();
    let n_histories = number("SEEDS").unwrap_or(HISTORIES);
    let folder = tempfile::tempdir().unwrap();
    let program = Program::start(folder.path()).await;
    let server = Arc::new(Server::default());
    server.attach(program.client());
    for slot in 0..SLOTS {
        for namespace in 0..NAMESPACES {
            server.insist_on_namespace(&format!("s{slot}-{namespace}")).await;
        }
    }
    let record = Arc::new(Record::default());
    let stop = CancellationToken::new();
    let mut interfering = JoinSet::new();
    interfering.spawn(interfere(program, server.clone(), record.clone(), stop.clone()));
    let next = Arc::new(AtomicU64::new(0));
    let mut playing = JoinSet::new();
    for slot in 0..SLOTS {
        let (server, next) = (server.clone(), next.clone());
        playing.spawn(async move {
            let mut played = Vec::new();
            while started.elapsed() < TIME_MAX {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= n_histories {
                    break;
                }
                played.push(history(slot, n, server.clone()).await);
            }
            (slot, played)
        });
    }
    let mut all = Vec::new();
    loop {
        tokio::select! {
            biased;
            Some(ended) = interfering.join_next() => panic!("{ended:?}"),
            ended = playing.join_next() => match ended {
                None => break,
                Some(played) => all.push(played.unwrap()),
            }
        }
    }
    stop.cancel();
    while let Some(ended) = interfering.join_next().await {
        ended.unwrap();
    }

    let store = DiskStore::open(folder.path().join("data"), DiskOptions::default()).unwrap();
    let mut sum: Tally = record.tally();
    for (slot, played) in all {
        let prefix = format!("/registry/configmaps/s{slot}-");
        for (place, record) in played {
            let log = engines::log(&store, &place, &prefix, Revision(1)).await.unwrap();
            match record.judge(&log) {
                Ok(played) => {
                    played.tally.iter().for_each(|(what, n)| *sum.entry(what).or_default() += n);
                    *sum.entry("histories").or_default() += 1;
                }
                Err(fault) => panic!("{}: {fault}\nthe engine's account: {log:?}", place.prefix),
            }
        }
    }
    println!("{:?}: {sum:#?}", started.elapsed());
    assert!(sum["histories"] >= n_histories.min(HISTORIES_MIN), "too few histories: {sum:?}");
}
