//! New objects with a status write each: one worker, over HTTPS, against a server process.
//!
//! The reconciler is the same for all: it reads its object from the cache, and writes the status
//! if the cache does not show it. The events of its own writes come back. A pass that reads a
//! cache that does not show its last write yet writes again; the number of writes tells.

use crate::process::Program;
use crate::table::Table;
use anyhow::{Context as _, ensure};
use futures::StreamExt as _;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube_client::api::{Patch, PatchParams, PostParams};
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_client::{Api, Client, Config, ResourceExt as _};
use kube_runtime::{controller, watcher};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use setpoint::prelude::*;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Names the program of controller-runtime's controller; not measured without it.
const CONTROLLER_RUNTIME: &str = "SETPOINT_BENCH_CONTROLLER_RUNTIME";
/// Controllers that do not touch the objects.
const CONTROLLERS: &str = "--controllers=namespace";
/// Requests at the same time while the objects are created.
const AT_ONCE: usize = 16;
/// The counts must not change for this long.
const QUIET: Duration = Duration::from_millis(500);
/// Polling interval.
const LOOK: Duration = Duration::from_millis(2);

/// A controller to run in a process of its own.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// The server.
    #[arg(long)]
    kubeconfig: PathBuf,
    /// Number of objects.
    #[arg(long)]
    objects: u64,
    /// kube-runtime's, not this project's.
    #[arg(long)]
    kube_runtime: bool,
}

/// What a controller was found to take.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Findings {
    wall: f64,
    cpu: f64,
    n_reconciles: u64,
    n_writes: u64,
}

#[derive(Debug, Default)]
struct Counts {
    n_reconciles: AtomicU64,
    n_writes: AtomicU64,
}

impl Counts {
    fn now(&self) -> (u64, u64) {
        (self.n_reconciles.load(Relaxed), self.n_writes.load(Relaxed))
    }

    /// Waits until every object has been written and the counts stop changing.
    async fn until_quiet(&self, n_objects: u64) -> anyhow::Result<Findings> {
        let (begun, before) = (Instant::now(), cpu()?);
        let mut last = (self.now(), begun, before);
        loop {
            tokio::time::sleep(LOOK).await;
            let now = self.now();
            if now != last.0 {
                last = (now, Instant::now(), cpu()?);
            } else if now.1 >= n_objects && last.1.elapsed() > QUIET {
                let ((n_reconciles, n_writes), at, used) = last;
                let wall = (at - begun).as_secs_f64();
                let cpu = (used - before).as_secs_f64();
                return Ok(Findings { wall, cpu, n_reconciles, n_writes });
            }
            ensure!(last.1.elapsed() < Duration::from_secs(60), "{now:?} of {n_objects}");
        }
    }
}

fn cpu() -> anyhow::Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(Duration::from_micros(micros.try_into()?))
}

/// The status that is written.
fn status() -> Patch<Value> {
    Patch::Merge(json!({"status": {
        "observedGeneration": 1, "currentHealthy": 0, "desiredHealthy": 1, "disruptionsAllowed": 0,
        "expectedPods": 1,
    }}))
}

fn is_written(budget: &PodDisruptionBudget) -> bool {
    budget.status.as_ref().is_some_and(|status| status.observed_generation == Some(1))
}

async fn client(kubeconfig: &Path) -> anyhow::Result<Client> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// Runs one controller in this process, and prints what it takes.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let findings = runtime.block_on(async {
        let (client, counts) = (client(&args.kubeconfig).await?, Arc::new(Counts::default()));
        match args.kube_runtime {
            true => theirs(client, counts, args.objects).await,
            false => ours(client, counts, args.objects).await,
        }
    })?;
    println!("{}", serde_json::to_string(&findings)?);
    Ok(())
}

async fn ours(client: Client, counts: Arc<Counts>, n_objects: u64) -> anyhow::Result<Findings> {
    let counted = counts.clone();
    let reconcile = move |request: Request, context: Context| {
        let counts = counted.clone();
        async move {
            counts.n_reconciles.fetch_add(1, Relaxed);
            let api = context.client().api::<PodDisruptionBudget>();
            if api.get(&request)?.is_some_and(|budget| !is_written(&budget)) {
                counts.n_writes.fetch_add(1, Relaxed);
                api.patch_status(&request, &status()).await?;
            }
            Ok::<_, ClientError>(Action::await_change())
        }
    };
    let mut manager = Manager::builder(client).build();
    let watch = Watch::<PodDisruptionBudget>::new();
    manager.add(Controller::builder("bench").for_(watch).concurrency(1).build(reconcile)?)?;
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(manager.run(stop.clone()));
    let findings = counts.until_quiet(n_objects).await?;
    stop.cancel();
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(findings)
}

async fn theirs(client: Client, counts: Arc<Counts>, n_objects: u64) -> anyhow::Result<Findings> {
    let api = Api::<PodDisruptionBudget>::default_namespaced(client.clone());
    let reconcile =
        async |budget: Arc<PodDisruptionBudget>,
               context: Arc<(Api<PodDisruptionBudget>, Arc<Counts>)>| {
            let (api, counts) = &*context;
            counts.n_reconciles.fetch_add(1, Relaxed);
            if !is_written(&budget) {
                counts.n_writes.fetch_add(1, Relaxed);
                api.patch_status(&budget.name_any(), &PatchParams::default(), &status()).await?;
            }
            Ok::<_, kube_client::Error>(controller::Action::await_change())
        };
    let retry = |_: Arc<PodDisruptionBudget>, _: &kube_client::Error, _: Arc<_>| {
        controller::Action::requeue(Duration::from_secs(1))
    };
    let watched = Api::<PodDisruptionBudget>::all(client);
    let running = kube_runtime::Controller::new(watched, watcher::Config::default())
        .with_config(controller::Config::default().concurrency(1))
        .run(reconcile, retry, Arc::new((api, counts.clone())))
        .for_each(|_| std::future::ready(()));
    tokio::select! {
        // Cancel safe: the process ends after it.
        () = running => anyhow::bail!("the controller ended"),
        findings = counts.until_quiet(n_objects) => findings,
    }
}

/// A controller that is measured.
enum Measured {
    Ours,
    KubeRuntime,
    /// controller-runtime's, built from `benches/peers/controller-runtime`.
    ControllerRuntime(PathBuf),
}

impl Measured {
    fn name(&self) -> &'static str {
        match self {
            Self::Ours => "setpoint",
            Self::KubeRuntime => "kube-runtime 5",
            Self::ControllerRuntime(_) => "controller-runtime",
        }
    }

    /// The program that runs it.
    fn command(&self) -> anyhow::Result<Command> {
        if let Self::ControllerRuntime(program) = self {
            return Ok(Command::new(program));
        }
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("status-writes");
        if matches!(self, Self::KubeRuntime) {
            command.arg("--kube-runtime");
        }
        Ok(command)
    }
}

/// Measures all in turns, and adds their rows.
pub(super) fn measure(n_objects: u64, rounds: usize, table: &mut Table) -> anyhow::Result<()> {
    let mut all = vec![(Measured::Ours, vec![]), (Measured::KubeRuntime, vec![])];
    if let Some(program) = std::env::var_os(CONTROLLER_RUNTIME) {
        all.push((Measured::ControllerRuntime(program.into()), vec![]));
    }
    for _ in 0..rounds {
        for (measured, found) in &mut all {
            found.push(turn(n_objects, measured)?);
        }
    }
    let median = |found: &[Findings], of: fn(&Findings) -> f64| {
        let mut figures: Vec<f64> = found.iter().map(of).collect();
        figures.sort_unstable_by(f64::total_cmp);
        figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
    };
    let n = n_objects as f64;
    let mut walls = vec![];
    for (measured, found) in &all {
        let name = measured.name();
        let what = format!("{n_objects} new objects with a status write each, 1 worker, {name}");
        let [wall, cpu, reconciles, writes] = [
            median(found, |f| f.wall),
            median(found, |f| f.cpu),
            median(found, |f| f.n_reconciles as f64),
            median(found, |f| f.n_writes as f64),
        ];
        let figure = format!(
            "{wall:.2} s, {:.0} µs of CPU an object, {:.2} reconciles, {:.2} writes",
            cpu * 1e6 / n,
            reconciles / n,
            writes / n
        );
        table.judged(&what, figure, "–", None);
        walls.push((name, wall));
    }
    let ours = walls.first().map_or(f64::NAN, |(_, wall)| *wall);
    for (name, theirs) in walls.iter().skip(1) {
        let what = format!("the time for them, of that of {name}");
        let figure = format!("{:.2}×", ours / theirs);
        table.judged(&what, figure, "≤ 1×", Some(ours <= *theirs));
    }
    Ok(())
}

/// One controller against a new server.
fn turn(n_objects: u64, measured: &Measured) -> anyhow::Result<Findings> {
    let program = Program::start_with(&[OsStr::new(CONTROLLERS)])?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = client(&program.kubeconfig).await?;
        let api = Api::<PodDisruptionBudget>::default_namespaced(client);
        let create = async |n: u64| {
            let budget = json!({
                "metadata": {"name": format!("b{n}"), "labels": {"app": "web"}},
                "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": format!("web-{n}")}}},
            });
            let budget: PodDisruptionBudget = serde_json::from_value(budget)?;
            api.create(&PostParams::default(), &budget).await?;
            anyhow::Ok(())
        };
        let mut created = futures::stream::iter(0..n_objects).map(create).buffer_unordered(AT_ONCE);
        while let Some(result) = created.next().await {
            result?;
        }
        anyhow::Ok(())
    })?;
    let mut command = measured.command()?;
    command.args(["--objects", &n_objects.to_string(), "--kubeconfig"]).arg(&program.kubeconfig);
    let output = command.output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).context("what the controller printed")
}
