//! One client of the source, in a separate process: it syncs, reads, receives events, and prints
//! one line of JSON.
//!
//! CPU is the process's user and system time, as counted by the kernel. Memory is the resident set,
//! and in the program that counts its allocations, the allocated bytes.

mod controller;
mod floor;
mod informer;
mod reflector;
mod usage;

pub(crate) use usage::Heap;

use anyhow::Context;
use k8s_openapi::api::core::v1::Pod;
use kube_client::core::PartialObjectMeta;
use kube_client::{Client, Config};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};
use usage::Usage;

/// Options.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// The URL of the source.
    #[arg(long)]
    server: String,
    /// The client to run.
    #[arg(long, value_enum)]
    kind: Kind,
    /// For `setpoint`: the cache policy.
    #[arg(long, default_value = "compact")]
    policy: String,
    /// Remove `metadata.managedFields` from the cache.
    #[arg(long)]
    prune: bool,
    /// Request the list as a stream.
    #[arg(long)]
    stream: bool,
    /// Exit after the sync.
    #[arg(long)]
    sync_only: bool,
    /// For controllers: number of concurrent reconciles. With more than one, the runtime has two
    /// threads.
    #[arg(long, default_value_t = 1)]
    workers: usize,
    /// For `controller`: record no explanations.
    #[arg(long)]
    no_explain: bool,
    /// Of controllers: what a reconcile reads of its object.
    #[arg(long, value_enum, default_value = "nothing")]
    look: Look,
    /// Of `controller`: room for every object decoded, beside its bytes.
    #[arg(long)]
    room: bool,
    /// Measure reads between the sync and the events.
    #[arg(long)]
    reads: bool,
    /// Of `setpoint`: list again after the sync, and measure that.
    #[arg(long)]
    relist: bool,
    /// Of `setpoint`: measure how long the thread is held, by a task that runs all the time; the
    /// CPU is that task's then.
    #[arg(long)]
    holds: bool,
}

/// The clients written in Rust.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// This project's informer.
    Setpoint,
    /// kube-runtime's watcher and reflector store.
    KubeRuntime,
    /// The same over `PartialObjectMetadata`.
    KubeRuntimeMetadata,
    /// Reads the bytes and finds the ends of objects.
    Floor,
    /// This project's controller.
    Controller,
    /// kube-runtime's controller.
    KubeController,
}

/// What a reconcile reads of its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Look {
    /// Nothing.
    Nothing,
    /// `spec.nodeName`, of a whole Pod.
    Whole,
    /// `spec.nodeName`, of a struct that declares three fields.
    Three,
}

/// The results of a client; times in seconds, memory in bytes.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Findings {
    pub(crate) n_objects: u64,
    pub(crate) sync_wall: f64,
    pub(crate) sync_cpu: f64,
    /// Size of the JSON in the cache, if it stores JSON.
    pub(crate) json_bytes: u64,
    /// Bytes allocated during the sync; 0 without counting.
    pub(crate) heap: u64,
    /// Resident set at the start, after the sync, the maximum until then, and after the events.
    pub(crate) rss_start: u64,
    pub(crate) rss_synced: u64,
    pub(crate) rss_peak: u64,
    pub(crate) rss_end: u64,
    /// CPU of a second list of the same objects.
    pub(crate) relist_cpu: f64,
    /// The longest waits of another task of the thread, one that is ready and one for a socket or
    /// timer: of the sync, of the second list, of the events.
    pub(crate) holds: Option<[[f64; 2]; 3]>,
    pub(crate) n_events: u64,
    /// Number of handler calls for them: fewer if a queue merged some.
    pub(crate) n_calls: u64,
    pub(crate) events_wall: f64,
    pub(crate) events_cpu: f64,
    /// Number of reconciles triggered from inside the process.
    pub(crate) n_triggered: u64,
    pub(crate) triggered_wall: f64,
    pub(crate) triggered_cpu: f64,
    /// Nanoseconds of one read: median and 99th percentile.
    pub(crate) reads_of_few: Option<[u64; 2]>,
    pub(crate) reads_of_all: Option<[u64; 2]>,
}

/// The source's description of itself.
#[derive(Debug, Deserialize)]
struct Facts {
    n_objects: u64,
    n_events: u64,
    last_version: u64,
}

/// The measurements during a client's phases.
struct Run {
    client: Client,
    args: Args,
    facts: Facts,
    heap: Heap,
    findings: Findings,
    heap_before: u64,
    phase: (Instant, Duration),
}

impl Run {
    fn sync_begins(&mut self) -> anyhow::Result<()> {
        self.findings.rss_start = usage::resident()?.now;
        self.heap_before = (self.heap)();
        self.phase = (Instant::now(), Usage::cpu()?);
        Ok(())
    }

    fn sync_ends(&mut self, n_objects: u64) -> anyhow::Result<()> {
        let (cpu, wall) = (Usage::cpu()?, self.phase.0.elapsed());
        self.findings.sync_cpu = (cpu - self.phase.1).as_secs_f64();
        self.findings.sync_wall = wall.as_secs_f64();
        self.findings.n_objects = n_objects;
        anyhow::ensure!(n_objects == self.facts.n_objects, "{n_objects} objects are cached");
        self.findings.heap = (self.heap)().saturating_sub(self.heap_before);
        let resident = usage::resident()?;
        (self.findings.rss_synced, self.findings.rss_peak) = (resident.now, resident.peak);
        Ok(())
    }

    async fn relist_begins(&mut self) -> anyhow::Result<()> {
        tokio::time::sleep(Duration::from_millis(200)).await;
        self.phase = (Instant::now(), Usage::cpu()?);
        ask(&self.client, "/bench/expire").await?;
        Ok(())
    }

    fn relist_ends(&mut self) -> anyhow::Result<()> {
        self.findings.relist_cpu = (Usage::cpu()? - self.phase.1).as_secs_f64();
        Ok(())
    }

    async fn events_begin(&mut self) -> anyhow::Result<()> {
        // By then the watch has started, and the work of the sync is done.
        tokio::time::sleep(Duration::from_millis(200)).await;
        self.phase = (Instant::now(), Usage::cpu()?);
        ask(&self.client, "/bench/events").await?;
        Ok(())
    }

    fn events_end(&mut self, n_calls: u64) -> anyhow::Result<()> {
        self.findings.events_cpu = (Usage::cpu()? - self.phase.1).as_secs_f64();
        self.findings.events_wall = self.phase.0.elapsed().as_secs_f64();
        self.findings.n_events = self.facts.n_events;
        self.findings.n_calls = n_calls;
        self.findings.rss_end = usage::resident()?.now;
        Ok(())
    }

    fn wants_events(&self) -> bool {
        !self.args.sync_only && self.facts.n_events > 0
    }
}

async fn ask(client: &Client, path: &str) -> anyhow::Result<String> {
    Ok(client.request_text(http::Request::get(path).body(Vec::new())?).await?)
}

/// Runs one client and prints its results.
pub(crate) fn run(args: &Args, heap: Heap) -> anyhow::Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = match args.workers {
        1 => tokio::runtime::Builder::new_current_thread().enable_all().build()?,
        _ => tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?,
    };
    let findings = runtime.block_on(async {
        let client = Client::try_from(Config::new(args.server.parse().context("--server")?))?;
        let facts = serde_json::from_str(&ask(&client, "/bench/start").await?)?;
        let phase = (Instant::now(), Duration::ZERO);
        let findings = Findings::default();
        let run = Run { client, args: args.clone(), facts, heap, findings, heap_before: 0, phase };
        match args.kind {
            Kind::Setpoint if run.args.policy == "metadata" => {
                informer::run::<PartialObjectMeta<Pod>>(run).await
            }
            Kind::Setpoint => informer::run::<Pod>(run).await,
            Kind::KubeRuntime => reflector::run::<Pod>(run).await,
            Kind::KubeRuntimeMetadata => reflector::run::<PartialObjectMeta<Pod>>(run).await,
            Kind::Floor => floor::run(run).await,
            Kind::Controller if args.look == Look::Three => {
                controller::setpoint::<controller::ThreeFields>(run).await
            }
            Kind::Controller => controller::setpoint::<Pod>(run).await,
            Kind::KubeController if args.look == Look::Three => {
                controller::kube_runtime::<controller::ThreeFields>(run).await
            }
            Kind::KubeController => controller::kube_runtime::<Pod>(run).await,
        }
    })?;
    println!("{}", serde_json::to_string(&findings)?);
    Ok(())
}
