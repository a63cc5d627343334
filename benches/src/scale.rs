//! Thousands of pods and nodes: how long they take, and what they cost.
//!
//! `cargo xtask bench scale --originals DIR`. Each load runs on a fresh cluster: one Deployment of
//! all pods; a thousand Deployments of ten pods; nodes that only send heartbeats. The clusters are
//! `setpoint up --nodes N`; the same without controllers, under kube-controller-manager; and
//! kube-apiserver, etcd and kube-controller-manager, whose nodes and scheduler are setpoint's in a
//! process of their own (`scale-nodes`), because the originals need a kubelet per node.

mod cluster;
mod load;
pub(crate) mod nodes;

use self::cluster::{Cluster, Cpu, Kind, Limits};
use self::load::Load;
use crate::process;
use crate::results;
use crate::table::{Table, short};
use std::path::PathBuf;
use std::time::Duration;

/// Pods of one Deployment of the second load.
const FEW: i32 = 10;
/// Pods per node: nodes have room for 110.
const PODS_PER_NODE: u32 = 100;
/// Nodes that are idle, for each hundred pods.
const IDLE_PER_NODE: u32 = 10;
/// Time before CPU and memory at rest are read.
const SETTLE: Duration = Duration::from_secs(30);
/// How long heartbeats are measured.
const HEARTBEATS: Duration = Duration::from_secs(60);

/// Options.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A folder with `kube-apiserver`, `kube-controller-manager` and `etcd`. Without it, only ours
    /// are measured.
    #[arg(long, value_name = "DIR")]
    originals: Option<PathBuf>,
    /// Number of pods; a multiple of 100. There are a hundredth as many nodes, and a tenth as many
    /// Deployments and idle nodes.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pods: u32,
    /// Leave out the default limits of kube-controller-manager, which take about half an hour.
    #[arg(long)]
    raised_only: bool,
    /// Only these loads. May be given several times.
    #[arg(long, value_name = "LOAD")]
    only: Vec<Which>,
    /// Do not write the table.
    #[arg(long)]
    dry: bool,
}

/// A load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Which {
    /// One Deployment.
    One,
    /// Many Deployments.
    Many,
    /// Idle nodes.
    Idle,
}

/// What a load took on a cluster.
struct Figures {
    wall: Duration,
    /// Until the pods are ready.
    cpu: Cpu,
    /// And until the cluster is at rest.
    cpu_settled: Cpu,
    peak_mib: f64,
    resting_mib: f64,
}

/// Runs all measurements and writes the table.
pub(crate) fn measure(args: &Args) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut table = Table::with_verdicts();
    runtime.block_on(all(args, &mut table))?;
    println!("{table}");
    if args.dry || !args.only.is_empty() {
        return Ok(());
    }
    results::write(Some("Scale"), &format!("{}\n\n{table}", preface()?))
}

fn preface() -> anyhow::Result<String> {
    let (settle, heartbeats) = (SETTLE.as_secs(), HEARTBEATS.as_secs());
    Ok(format!(
        "{} Command: `cargo xtask bench scale --originals DIR`. {}; kube-apiserver and kube-controller-manager 1.36, \
         etcd 3.5 or later with `--unsafe-no-fsync`. One run of each, on fresh processes whose nodes were ready; everything on the same cores, \
         the measuring client too, whose CPU is not in the figures. Wall time is from the first create of a Deployment until the statuses of all say \
         that their pods are ready. CPU is user and system of all processes; \"settled\" adds the {settle} s after that. Peaks are sums of the \
         processes' peaks. The goals are for two cores. Not like for like: nodes and scheduler are setpoint's everywhere, inside its process or, with the originals, as a \
         process of their own (real clusters have a kubelet per node and kube-scheduler); setpoint's clients in its process use no TLS; \
         the originals count all controllers of kube-controller-manager, and setpoint those it has. Default limits of \
         kube-controller-manager are 20 requests a second and bursts of 30 for each controller; raised: `--kube-api-qps=5000 \
         --kube-api-burst=10000`. Heartbeats are measured for {heartbeats} s.",
        results::machine()?,
        process::built()?
    ))
}

async fn all(args: &Args, table: &mut Table) -> anyhow::Result<()> {
    let mut kinds = vec![Kind::Ours];
    if args.originals.is_some() {
        let limits: &[Limits] = match args.raised_only {
            true => &[Limits::Raised],
            false => &[Limits::Raised, Limits::Default],
        };
        kinds.extend(limits.iter().map(|limits| Kind::Manager(*limits)));
        kinds.extend(limits.iter().map(|limits| Kind::Originals(*limits)));
    }
    let is_on = |which| args.only.is_empty() || args.only.contains(&which);
    let n_nodes = args.pods / PODS_PER_NODE;
    let replicas = i32::try_from(args.pods)?;
    let one = Load { n_deployments: 1, replicas };
    let many = Load { n_deployments: usize::try_from(replicas / FEW)?, replicas: FEW };
    for (which, load, goal) in [(Which::One, one, "≤ 20 s"), (Which::Many, many, "–")] {
        if !is_on(which) {
            continue;
        }
        let what = match load.n_deployments {
            1 => format!("a Deployment of {replicas} pods, {n_nodes} nodes"),
            n => format!("{n} Deployments of {FEW} pods, {n_nodes} nodes"),
        };
        let mut ours = None;
        for kind in &kinds {
            let cluster = Cluster::start(*kind, n_nodes, args.originals.as_deref()).await?;
            let figures = run(&cluster, load).await?;
            let goal = if *kind == Kind::Ours { goal } else { "–" };
            rows(table, &format!("{what}: {}", kind.name()), &figures, goal);
            match &ours {
                None => ours = Some(sum(&figures.cpu_settled)),
                Some(ours) => less(table, &what, *kind, sum(&figures.cpu_settled), *ours),
            }
        }
    }
    if is_on(Which::Idle) {
        let n_idle = n_nodes * IDLE_PER_NODE;
        let what = format!("heartbeats of {n_idle} nodes");
        let mut ours = None;
        // The limits do not matter: kubelets send heartbeats.
        let is_same = |kind: &&Kind| {
            !matches!(kind, Kind::Manager(Limits::Default) | Kind::Originals(Limits::Default))
        };
        for kind in kinds.iter().filter(is_same) {
            let cluster = Cluster::start(*kind, n_idle, args.originals.as_deref()).await?;
            let (cpu, resting_mib) = beat(&cluster).await?;
            let name = format!("{what}: {}", kind.name());
            table.row(&format!("{name}: CPU in a minute"), show(&cpu), "–");
            table.row(&format!("{name}: resident memory"), mib(resting_mib), "–");
            match &ours {
                None => ours = Some(sum(&cpu)),
                Some(ours) => less(table, &what, *kind, sum(&cpu), *ours),
            }
        }
    }
    Ok(())
}

/// Runs a load.
async fn run(cluster: &Cluster, load: Load) -> anyhow::Result<Figures> {
    let before = cluster.cpu()?;
    let wall = load.run(&cluster.client).await?;
    let ready = cluster.cpu()?;
    tokio::time::sleep(SETTLE).await;
    let figures = Figures {
        wall,
        cpu: since(&before, &ready),
        cpu_settled: since(&before, &cluster.cpu()?),
        peak_mib: cluster.memory_mib("VmHWM")?,
        resting_mib: cluster.memory_mib("VmRSS")?,
    };
    load.check(&cluster.client).await?;
    Ok(figures)
}

/// CPU of a minute of heartbeats, and memory.
async fn beat(cluster: &Cluster) -> anyhow::Result<(Cpu, f64)> {
    tokio::time::sleep(SETTLE).await;
    let before = cluster.cpu()?;
    tokio::time::sleep(HEARTBEATS).await;
    Ok((since(&before, &cluster.cpu()?), cluster.memory_mib("VmRSS")?))
}

fn since(before: &Cpu, after: &Cpu) -> Cpu {
    let each = before.iter().zip(after);
    each.map(|((name, before), (_, after))| (*name, after.saturating_sub(*before))).collect()
}

fn sum(cpu: &Cpu) -> Duration {
    cpu.iter().map(|(_, time)| *time).sum()
}

fn rows(table: &mut Table, what: &str, figures: &Figures, goal: &str) {
    table.row(&format!("{what}: until all are ready"), short(figures.wall), goal);
    table.row(&format!("{what}: CPU until then"), show(&figures.cpu), "–");
    table.row(&format!("{what}: CPU, settled"), show(&figures.cpu_settled), "–");
    table.row(&format!("{what}: peak of resident memory"), mib(figures.peak_mib), "–");
    table.row(&format!("{what}: resident memory, settled"), mib(figures.resting_mib), "–");
}

/// How much less CPU ours take than others.
fn less(table: &mut Table, what: &str, kind: Kind, others: Duration, ours: Duration) {
    let times = others.as_secs_f64() / ours.as_secs_f64().max(0.01);
    let goal = if matches!(kind, Kind::Originals(_)) { "≥ 5×" } else { "–" };
    let name = kind.name();
    table.row(&format!("{what}: CPU of setpoint less than {name}"), format!("{times:.1}×"), goal);
}

/// `12.34 s (kube-apiserver 8.00 s, etcd 4.34 s)`.
fn show(cpu: &Cpu) -> String {
    let sum = short(sum(cpu));
    match &cpu[..] {
        [_] => sum,
        parts => {
            let part = |(name, time): &(&str, Duration)| format!("{name} {}", short(*time));
            format!("{sum} ({})", parts.iter().map(part).collect::<Vec<_>>().join(", "))
        }
    }
}

fn mib(figure: f64) -> String {
    format!("{figure:.0} MiB")
}
