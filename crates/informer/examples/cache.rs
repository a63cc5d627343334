//! Measures a cache: heap per object, and time per listed, changed and read object, under every
//! policy.
//!
//! `cargo run --release -p setpoint-informer --example cache -- [objects] [events] [policy…]`
//!
//! The Pods are those that `benches` serves, filled with noise of its own. Everything is in this
//! process and on one thread, and times are that thread's: what the scheduler gave it, whatever
//! else the machine does. Listed Pods are made while they are listed; the time of that is measured
//! apart and taken off. Events are made before.
#![allow(clippy::unwrap_used, reason = "a measurement that cannot be made fails")]

use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use setpoint_informer::source::{
    ListPage, ListRequest, ListWatch, SourceError, WatchFrame, WatchRequest, WatchStream,
};
use setpoint_informer::{CachePolicy, SharedInformer};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::alloc::System;
use std::fmt::Write;
use std::hint::black_box;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const POD: &str = include_str!("../../../benches/src/pods/pod.json.txt");
const PAGE: u64 = 500;

fn heap() -> i64 {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated as i64 - stats.bytes_deallocated as i64
}

/// The CPU time of this thread.
fn ran() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(stat.split(' ').next().unwrap().parse().unwrap())
}

fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// What a place in the template holds: of each Pod, of its workload of twenty, or of a few in all.
fn value(name: &str, n: u64, version: u64, out: &mut String) {
    let salt = name.bytes().fold(0, |hash: u64, byte| hash.wrapping_mul(31) + u64::from(byte));
    let own = mix(n ^ salt.rotate_left(32));
    let workload = mix((n / 20) ^ salt.rotate_left(32));
    let _ = match name {
        "name" => write!(out, "workload-{:07}-{:05x}", n / 20, own & 0xf_ffff),
        "namespace" => write!(out, "team-{:04}", n / 500),
        "rv" => write!(out, "{version}"),
        "uid" => write!(
            out,
            "{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}",
            own >> 32,
            own & 0xffff,
            own >> 52,
            own & 0xfff,
            mix(own) >> 16
        ),
        "owner_uid" => write!(
            out,
            "{:08x}-{:04x}-4bcd-adef-{:012x}",
            workload >> 32,
            workload & 0xffff,
            mix(workload) >> 16
        ),
        "created" | "status_time" | "started" => write!(
            out,
            "2026-10-{:02}T{:02}:{:02}:{:02}Z",
            1 + own % 30,
            own % 24,
            own % 60,
            (own >> 8) % 60
        ),
        "container_id" => {
            write!(out, "{:016x}{:016x}{:016x}{:016x}", own, mix(own), mix(own + 1), mix(own + 2))
        }
        "pod_ip" => write!(out, "10.{}.{}.{}", own & 255, (own >> 8) & 255, (own >> 16) & 255),
        "port" | "cpu" | "memory" | "memory_limit" | "restarts" | "delay" => {
            write!(out, "{}", 8000 + workload % 8)
        }
        "sidecar" | "sidecar_status" => Ok(()),
        "token" => write!(out, "kube-api-access-{:05x}", own & 0xf_ffff),
        "ready" => write!(out, "{}", if version.is_multiple_of(2) { "True" } else { "False" }),
        "is_ready" => write!(out, "{}", version.is_multiple_of(2)),
        "config_sum" => write!(out, "{:016x}{:016x}", workload, mix(workload)),
        _ => write!(out, "{name}-{}", workload % 40),
    };
}

struct Pods {
    pieces: Vec<&'static str>,
    n_objects: u64,
    events: Vec<Bytes>,
}

impl Pods {
    fn pod(&self, n: u64, version: u64) -> Bytes {
        let mut out = String::with_capacity(6000);
        for (at, piece) in self.pieces.iter().enumerate() {
            match at % 2 {
                0 => out.push_str(piece),
                _ => value(piece, n, version, &mut out),
            }
        }
        out.retain(|letter| letter != '\n');
        Bytes::from(out)
    }

    fn make_events(&mut self, n_events: u64) {
        self.events =
            (0..n_events).map(|at| self.pod(mix(at) % self.n_objects, 10_000_000 + at)).collect();
    }
}

struct Source(std::sync::Arc<Pods>);

impl ListWatch for Source {
    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<ListPage, SourceError>> {
        let from: u64 = request.continue_token.and_then(|token| token.parse().ok()).unwrap_or(0);
        let to = (from + PAGE).min(self.0.n_objects);
        let page = ListPage::new("9000000", (from..to).map(|n| self.0.pod(n, 1000 + n)).collect());
        let page = if to < self.0.n_objects { page.continued(to.to_string()) } else { page };
        Box::pin(std::future::ready(Ok(page)))
    }

    fn watch(&self, _: WatchRequest) -> BoxFuture<'_, Result<WatchStream, SourceError>> {
        let pods = self.0.clone();
        let events = futures::stream::iter(0..pods.events.len())
            .map(move |at| Ok(WatchFrame::Modified(pods.events[at].clone())));
        // The events come after a second, so that the list can be measured.
        let events = futures::stream::once(tokio::time::sleep(Duration::from_secs(1)))
            .filter_map(|()| std::future::ready(None))
            .chain(events)
            .chain(futures::stream::pending());
        Box::pin(std::future::ready(Ok(events.boxed())))
    }

    fn can_stream_list(&self) -> bool {
        false
    }
}

fn rss_mib(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) >> 10
}

fn each(time: Duration, n: u64) -> u128 {
    time.as_nanos() / u128::from(n.max(1))
}

async fn measure(policy: CachePolicy, prunes: bool, n_objects: u64, n_events: u64) {
    let pieces: Vec<&'static str> = POD.split('$').collect();
    let mut pods = Pods { pieces, n_objects, events: Vec::new() };
    pods.make_events(n_events);
    let pods = std::sync::Arc::new(pods);
    let made = ran();
    let sample = n_objects.min(20_000);
    let bytes: usize = (0..sample).map(|n| black_box(pods.pod(n, 1000 + n)).len()).sum();
    let making = each(ran() - made, sample);

    let (before, rss_before) = (heap(), rss_mib("VmRSS"));
    let builder = SharedInformer::<Pod>::builder(Source(pods.clone())).policy(policy);
    let builder = builder.keep_managed_fields(!prunes);
    let (informer, worker) = builder.build();
    let stop = CancellationToken::new();
    let mut tasks = tokio::task::JoinSet::new();
    let start = ran();
    tasks.spawn(worker.run(stop.clone()));
    informer.synced().await.unwrap();
    let sync = each(ran() - start, n_objects);
    let lister = informer.lister();
    let held = (heap() - before) / n_objects as i64;
    let (rss, peak) = (rss_mib("VmRSS"), rss_mib("VmHWM"));

    let last = (10_000_000 + n_events - 1).to_string();
    while lister.resource_version().parse::<u64>().unwrap() < 10_000_000 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let start = ran();
    let first: u64 = lister.resource_version().parse().unwrap();
    while *lister.resource_version() != *last {
        tokio::task::yield_now().await;
    }
    let counted = 10_000_000 + n_events - 1 - first;
    let event = each(ran() - start, counted);
    let held_after = (heap() - before) / n_objects as i64;

    let keys: Vec<_> = (0..2000.min(n_objects))
        .map(|n| {
            let object = lister.snapshot().iter().nth((mix(n) % 20_000.min(n_objects)) as usize);
            object.unwrap().key().clone()
        })
        .collect();
    // The thread's time moves in ticks: a hit is measured over many.
    let read = |keys: &[setpoint_informer::Key], rounds: u64| {
        let start = ran();
        for key in (0..rounds).flat_map(|_| keys) {
            black_box(lister.get(&key.namespace, &key.name).unwrap());
        }
        each(ran() - start, rounds * keys.len() as u64)
    };
    let miss = read(&keys, 1);
    let few = &keys[..200.min(keys.len())];
    read(few, 1);
    let hit = read(few, 5000);
    println!(
        "{policy:?}{} n={n_objects} json={} | heap/object {held} (after events {held_after}) | rss +{} peak +{} MiB | ns: list {} event {} get hit {hit} miss {miss} (making {making} taken off)",
        if prunes { " pruned" } else { "" },
        bytes as u64 / sample,
        rss.saturating_sub(rss_before),
        peak.saturating_sub(rss_before),
        sync.saturating_sub(making),
        event,
    );
    stop.cancel();
    while tasks.join_next().await.is_some() {}
}

fn main() {
    let mut args = std::env::args().skip(1);
    let n_objects = args.next().and_then(|n| n.parse().ok()).unwrap_or(50_000);
    let n_events = args.next().and_then(|n| n.parse().ok()).unwrap_or(50_000);
    let wanted: Vec<String> = args.collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for (name, policy, prunes) in [
        ("compact", CachePolicy::Compact, true),
        ("unpruned", CachePolicy::Compact, false),
        ("compressed", CachePolicy::Compressed, true),
        ("metadata", CachePolicy::Metadata, true),
        ("decoded", CachePolicy::Decoded, true),
    ] {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            runtime.block_on(measure(policy, prunes, n_objects, n_events));
        }
    }
}
