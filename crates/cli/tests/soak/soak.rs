//! The soak test.

use crate::churn::{self, EVENTS, MAPS, Remaining, SHARDS, VALUE_BYTES};
use crate::program::{Program, Weight};
use crate::watching::{Lines, watch_events, watch_maps};
use http::StatusCode;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Watchers of one shard each.
const SHARD_WATCHERS: usize = 90;
/// Watchers of all objects.
const ALL_WATCHERS: usize = 4;
/// Watchers of Events.
const EVENT_WATCHERS: usize = 6;
/// Duration of the soak, unless `SOAK_SECONDS` is set.
const SOAK: Duration = Duration::from_secs(60);
/// A soak of this length uses the default history; a shorter one uses [`SHORT_HISTORY`].
const LONG: Duration = Duration::from_secs(20 * 60);
/// History of a short soak.
const SHORT_HISTORY: Duration = Duration::from_secs(5);
/// The default history.
const HISTORY: Duration = Duration::from_secs(300);
/// Time to live of Events.
const EVENT_TTL: &str = "10s";
/// After this many times the history, everything bounded by time is full: the store retains twice
/// the history.
const WARM_UP: u32 = 3;
/// After this many writes, everything bounded by bytes is full: the disk engine caches the end of
/// the log, 16 MiB of written and replaced data.
const WARM_UP_WRITES: u64 = 3000;
/// Further writes that would show if they leaked, in memory or in the file.
const FLOW_WRITES: u64 = 8000;
/// Time between two measurements.
const WEIGH_PERIOD: Duration = Duration::from_secs(5);
/// Memory may grow by at most this much, or by a quarter, beyond its maximum during the warm-up:
/// half of the data written after that, and more than a short history when a slow machine reaches
/// its speed only then.
const GROWTH_BYTES_MAX: u64 = FLOW_WRITES * VALUE_BYTES as u64 / 2;
/// The folder may grow by at most this much, or double: redb enlarges its file by half or more at a
/// time, and fills little more than half of it, so this is even less of the written data.
const FILE_GROWTH_BYTES_MAX: u64 = FLOW_WRITES * VALUE_BYTES as u64 * 3 / 4;
/// Maximum size of the data folder in addition to twice the data written during the history.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Files and sockets other than those of clients.
const FILES_MAX: usize = 40;
/// How long the last changes may take to reach all watchers.
const PATIENCE: Duration = Duration::from_secs(60);
/// Number of measurements that are printed.
const PRINTED_MAX: usize = 40;

/// A measurement of the program.
#[derive(Debug, Clone, Copy)]
struct Sight {
    at: Duration,
    n_writes: u64,
    weight: Weight,
}

/// The end of the warm-up, when everything bounded is full.
#[derive(Debug)]
struct Warm {
    /// Number of measurements during the warm-up.
    n_sights: usize,
    n_writes: u64,
    revision: u64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn churn_for_a_while_leaves_memory_flat_files_bounded_and_watches_whole() {
    let soak = std::env::var("SOAK_SECONDS").ok();
    let soak = soak.map_or(SOAK, |seconds| Duration::from_secs(seconds.parse().unwrap()));
    let history = if soak >= LONG { HISTORY } else { SHORT_HISTORY };
    let folder = tempfile::tempdir().unwrap();
    let options = ["--event-ttl", EVENT_TTL, "--history", &history.as_secs().to_string()];
    let program = Program::start(folder.path(), &options);
    let (end, ended) = watch::channel(None::<Remaining>);
    let (created, n_created) = watch::channel(None::<u64>);
    let stop = CancellationToken::new();

    let (mut watching, mut watching_events) = (JoinSet::new(), JoinSet::new());
    let shards = (0..SHARD_WATCHERS).map(|n| Some(n % SHARDS));
    for shard in shards.chain([None; ALL_WATCHERS]) {
        watching.spawn(watch_maps(MAPS.into(), shard, program.client(), ended.clone()));
    }
    for _ in 0..EVENT_WATCHERS {
        watching_events.spawn(watch_events(EVENTS.into(), program.client(), n_created.clone()));
    }
    let (mut writing, mut creating_events) = (JoinSet::new(), JoinSet::new());
    let n_so_far = Arc::new(AtomicU64::new(0));
    for shard in 0..SHARDS {
        writing.spawn(churn::write(shard, program.client(), n_so_far.clone(), stop.clone()));
    }
    creating_events.spawn(churn::create_events(program.client(), stop.clone()));

    let started = Instant::now();
    let mut sights: Vec<Sight> = Vec::new();
    let mut warm = None::<Warm>;
    let is_over = |warm: &Option<Warm>, n_writes: u64| {
        let n_since = warm.as_ref().map_or(0, |warm| n_writes - warm.n_writes);
        started.elapsed() >= soak && n_since >= FLOW_WRITES
    };
    while !is_over(&warm, n_so_far.load(Ordering::Relaxed)) {
        tokio::select! {
            // A task that ends now has failed.
            Some(ended) = watching.join_next() => panic!("a watcher: {ended:?}"),
            Some(ended) = watching_events.join_next() => panic!("a watcher of events: {ended:?}"),
            Some(ended) = writing.join_next() => panic!("a writer: {ended:?}"),
            Some(ended) = creating_events.join_next() => panic!("the writer of Events: {ended:?}"),
            () = sleep(WEIGH_PERIOD) => {
                let n_writes = n_so_far.load(Ordering::Relaxed);
                let at = started.elapsed();
                sights.push(Sight { at, n_writes, weight: program.weight() });
                if warm.is_none() && at >= history * WARM_UP && n_writes >= WARM_UP_WRITES {
                    let (n_sights, revision) = (sights.len(), program.stat().revision);
                    warm = Some(Warm { n_sights, n_writes, revision });
                }
            }
        }
    }
    let warm = warm.unwrap();
    // Data written in the warm-up has been dropped from the store and from the watch cache.
    let stat = program.stat();
    assert!(stat.oldest > warm.revision, "the store still has {warm:?}: {stat:?}");
    let asker = program.client();
    let exactly = format!("{MAPS}?resourceVersionMatch=Exact&resourceVersion={}", warm.revision);
    assert_eq!(asker.send("GET", &exactly, &Value::Null).await.0, StatusCode::GONE);
    let from = format!("{MAPS}?watch=1&resourceVersion={}", warm.revision);
    let answer = Lines::open(&asker, &from).await.next().await;
    assert_eq!(answer["type"], "ERROR", "{answer}");
    assert_eq!(answer["object"]["code"], 410, "{answer}");

    stop.cancel();
    let (mut left, mut n_writes, mut slowest) = (Remaining::new(), 0, Duration::ZERO);
    while let Some(written) = writing.join_next().await {
        let mut written = written.unwrap();
        left.append(&mut written.left);
        n_writes += written.n_writes;
        slowest = slowest.max(written.slowest);
    }
    let n_events = creating_events.join_next().await.unwrap().unwrap();
    end.send_replace(Some(left));
    created.send_replace(Some(n_events));
    let mut n_seen = 0;
    timeout(PATIENCE, async {
        while let Some(watched) = watching.join_next().await {
            n_seen += watched.unwrap();
        }
        while let Some(watched) = watching_events.join_next().await {
            assert_eq!(watched.unwrap(), n_events, "events that came and went");
        }
    })
    .await
    .expect("every watcher sees the end in time");

    for sight in sights.iter().step_by(sights.len().div_ceil(PRINTED_MAX)) {
        let Sight { at, n_writes, weight } = sight;
        println!("{:>5} s {n_writes:>7} writes {weight:?}", at.as_secs());
    }
    let seconds = started.elapsed().as_secs();
    println!(
        "{n_writes} writes, {n_events} events, {n_seen} changes seen in {seconds} s; slowest write {slowest:?}"
    );
    let (before, after) = sights.split_at(warm.n_sights);
    let memory = |sight: &Sight| sight.weight.resident_kib * 1024;
    let file = |sight: &Sight| sight.weight.file_bytes;
    let both = [
        ("memory", &memory as &dyn Fn(&Sight) -> u64, GROWTH_BYTES_MAX, 4),
        ("the folder", &file, FILE_GROWTH_BYTES_MAX, 1),
    ];
    for (what, bytes, max, part) in both {
        let (until, then) = (before.iter().map(bytes).max(), after.iter().map(bytes).max());
        println!("{what}: {until:?} bytes at most until it was full, {then:?} after that");
        let (until, then) = (until.unwrap(), then.unwrap());
        assert!(then <= until + max.max(until / part), "{what} grows: {sights:?}");
    }
    let recent_share = (3 * history).as_secs_f64().min(soak.as_secs_f64()) / soak.as_secs_f64();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    let written = (n_writes as f64 * recent_share) as u64 * VALUE_BYTES as u64;
    let n_clients = SHARD_WATCHERS + ALL_WATCHERS + EVENT_WATCHERS + 2 * (SHARDS + 1);
    for Sight { at, weight, .. } in &sights {
        let is_bounded = weight.file_bytes <= FILE_BYTES_MAX + 2 * written
            && weight.n_files <= n_clients + FILES_MAX;
        assert!(is_bounded, "{at:?}: {weight:?}");
    }
    let log = program.log();
    assert!(!log.contains("panicked") && !log.contains("ERROR"), "{log}");
    program.stop();
}
