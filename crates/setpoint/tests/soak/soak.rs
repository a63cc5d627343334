//! The soak.

use crate::churn::{self, EVENTS, Left, MAPS, SHARDS, VALUE_BYTES};
use crate::program::{Program, Weight};
use crate::watching::{watch_events, watch_maps};
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
/// How long the soak takes unless the environment says `SOAK_SECONDS`.
const SOAK: Duration = Duration::from_secs(120);
/// How long Events live.
const EVENT_TTL: &str = "10s";
/// After this, and after half of a longer soak, memory grows by no more than [`GROWTH_KIB_MAX`], and while the windows of the watch cache
/// fill by no more than [`CHANGE_KIB_MAX`] for each change.
const WARM_UP: Duration = Duration::from_secs(60);
/// Between two weighings.
const WEIGH_PERIOD: Duration = Duration::from_secs(5);
/// What the allocator may make of a soak, however long.
const GROWTH_KIB_MAX: u64 = 24 * 1024;
/// What a change may weigh in a window: the object, stored, with its resourceVersion, and as an event.
const CHANGE_KIB_MAX: u64 = 8;
/// A window is full after so many changes: 64 MiB of objects of almost 2 KiB.
const WINDOW_CHANGES: u64 = 50_000;
/// How long history is kept at most, and a while to compact it.
const HISTORY: Duration = Duration::from_secs(11 * 60);
/// The data folder may have this beside twice what was written within [`HISTORY`].
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Files and sockets beside those of clients.
const FILES_MAX: usize = 40;
/// How long the last changes may take to all watchers.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn churn_for_a_while_leaves_memory_flat_files_bounded_and_watches_whole() {
    let soak = std::env::var("SOAK_SECONDS").ok();
    let soak = soak.map_or(SOAK, |seconds| Duration::from_secs(seconds.parse().unwrap()));
    let folder = tempfile::tempdir().unwrap();
    let program = Program::start(folder.path(), EVENT_TTL);
    let (end, ended) = watch::channel(None::<Left>);
    let (told, n_told) = watch::channel(None::<u64>);
    let stop = CancellationToken::new();

    let (mut watching, mut watching_events) = (JoinSet::new(), JoinSet::new());
    let shards = (0..SHARD_WATCHERS).map(|n| Some(n % SHARDS));
    for shard in shards.chain([None; ALL_WATCHERS]) {
        watching.spawn(watch_maps(MAPS.into(), shard, program.client(), ended.clone()));
    }
    for _ in 0..EVENT_WATCHERS {
        watching_events.spawn(watch_events(EVENTS.into(), program.client(), n_told.clone()));
    }
    let (mut writing, mut telling) = (JoinSet::new(), JoinSet::new());
    let n_so_far = Arc::new(AtomicU64::new(0));
    for shard in 0..SHARDS {
        writing.spawn(churn::write(shard, program.client(), n_so_far.clone(), stop.clone()));
    }
    telling.spawn(churn::tell(program.client(), stop.clone()));

    let started = Instant::now();
    let mut weights: Vec<(Duration, u64, Weight)> = Vec::new();
    while started.elapsed() < soak {
        tokio::select! {
            // Who ends now has failed.
            Some(ended) = watching.join_next() => panic!("a watcher: {ended:?}"),
            Some(ended) = watching_events.join_next() => panic!("a watcher of events: {ended:?}"),
            Some(ended) = writing.join_next() => panic!("a writer: {ended:?}"),
            Some(ended) = telling.join_next() => panic!("the teller: {ended:?}"),
            () = sleep(WEIGH_PERIOD) => {
                let n_so_far = n_so_far.load(Ordering::Relaxed);
                weights.push((started.elapsed(), n_so_far, program.weight()));
            }
        }
    }
    stop.cancel();
    let (mut left, mut n_writes, mut slowest) = (Left::new(), 0, Duration::ZERO);
    while let Some(written) = writing.join_next().await {
        let mut written = written.unwrap();
        left.append(&mut written.left);
        n_writes += written.n_writes;
        slowest = slowest.max(written.slowest);
    }
    let n_events = telling.join_next().await.unwrap().unwrap();
    end.send_replace(Some(left));
    told.send_replace(Some(n_events));
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

    for (at, n_so_far, weight) in &weights {
        println!("{:>5} s {n_so_far:>7} writes {weight:?}", at.as_secs());
    }
    let seconds = started.elapsed().as_secs();
    println!(
        "{n_writes} writes, {n_events} events, {n_seen} changes seen in {seconds} s; slowest write {slowest:?}"
    );
    let warm_up = WARM_UP.max(soak / 2);
    if let Some((_, n_warm, warm)) = weights.iter().find(|(at, ..)| *at >= warm_up) {
        for (at, n, weight) in weights.iter().filter(|(at, ..)| *at >= warm_up) {
            let n_filling = n.min(&WINDOW_CHANGES) - n_warm.min(&WINDOW_CHANGES);
            let max = GROWTH_KIB_MAX + n_filling * CHANGE_KIB_MAX;
            let grown = weight.resident_kib.saturating_sub(warm.resident_kib);
            assert!(grown <= max, "memory grew by {grown} KiB until {at:?}: {weights:?}");
        }
    }
    let lately = HISTORY.as_secs_f64().min(soak.as_secs_f64()) / soak.as_secs_f64();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    let written = (n_writes as f64 * lately) as u64 * VALUE_BYTES as u64;
    let n_clients = SHARD_WATCHERS + ALL_WATCHERS + EVENT_WATCHERS + 2 * (SHARDS + 1);
    for (at, _, weight) in &weights {
        let is_bounded = weight.file_bytes <= FILE_BYTES_MAX + 2 * written
            && weight.n_files <= n_clients + FILES_MAX;
        assert!(is_bounded, "{at:?}: {weight:?}");
    }
    let log = program.log();
    assert!(!log.contains("panicked") && !log.contains("ERROR"), "{log}");
    program.stop();
}
