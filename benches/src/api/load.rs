//! The API beside kube-apiserver and etcd: each kind of request on all servers, in one run.
//!
//! `cargo xtask bench load --originals DIR`. CPU is of the server's processes, user and system:
//! kube-apiserver and etcd together. Client and server share the cores.

use super::client::{Ask, Connection, Endpoint};
use super::fan_out::Crowd;
use super::large::{self, Form};
use super::small::{self, Load};
use super::{CONTROLLERS, payload};
use crate::definitions::{self, definition};
use crate::originals::{Fsync, Process, server};
use crate::process::{Program, built, cpu, memory_kib};
use crate::results;
use crate::table::short;
use anyhow::Context as _;
use bytes::Bytes;
use serde_json::json;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Numbers of connections, with one request at a time each.
const CONNECTIONS: [usize; 2] = [1, 16];
/// Number of definitions beside which requests are measured again.
const DEFINITIONS: usize = 500;
/// Definitions whose first objects are timed.
const FIRST: usize = 5;
/// Time after the start, in which a server does the rest of its start.
const SETTLE: Duration = Duration::from_secs(3);

/// Options.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A folder with the original `kube-apiserver` and `etcd`. Without it, only ours are measured,
    /// and nothing is written.
    #[arg(long, value_name = "DIR")]
    originals: Option<PathBuf>,
    /// Number of Pods in the large lists.
    #[arg(long, default_value_t = 10_000)]
    pods: usize,
    /// Number of turns of each server.
    #[arg(long, default_value_t = 2)]
    rounds: usize,
    /// Do not write the table.
    #[arg(long)]
    dry: bool,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// kube-apiserver and etcd, which waits for the disk.
    Original,
    /// `setpoint up`.
    Memory,
    /// `setpoint up --data`, which waits for the disk.
    Disk,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Original => "kube-apiserver, etcd",
            Self::Memory => "setpoint, memory",
            Self::Disk => "setpoint, `--data`",
        }
    }
}

/// A running server.
struct Server {
    endpoint: Endpoint,
    ours: Option<Program>,
    originals: Vec<Process>,
    _folder: tempfile::TempDir,
}

impl Server {
    fn start(kind: Kind, originals: Option<&Path>) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let started = match kind {
            Kind::Original => {
                let programs = originals.context("a folder of the originals")?;
                let runtime = tokio::runtime::Runtime::new()?;
                let (originals, kubeconfig) =
                    runtime.block_on(server(programs, folder.path(), Fsync::On))?;
                let path = folder.path().join("kubeconfig");
                std::fs::write(&path, kubeconfig)?;
                Self { endpoint: Endpoint::of(&path)?, ours: None, originals, _folder: folder }
            }
            Kind::Memory | Kind::Disk => {
                let data = folder.path().join("data");
                let data = [OsStr::new("--data"), data.as_os_str()];
                let data = if kind == Kind::Disk { &data[..] } else { &[] };
                let program = Program::start_with(&[&[OsStr::new(CONTROLLERS)], data].concat())?;
                let endpoint = Endpoint::of(&program.kubeconfig)?;
                Self { endpoint, ours: Some(program), originals: Vec::new(), _folder: folder }
            }
        };
        payload::prepare(&started.endpoint)?;
        std::thread::sleep(SETTLE);
        Ok(started)
    }

    fn ids(&self) -> impl Iterator<Item = u32> {
        self.ours.iter().map(Program::id).chain(self.originals.iter().map(Process::id))
    }

    /// CPU time of its processes so far.
    fn cpu(&self) -> anyhow::Result<Duration> {
        self.ids().map(cpu).sum()
    }

    /// Resident memory of its processes.
    fn resident_mib(&self) -> anyhow::Result<f64> {
        let each = self.ids().map(|id| memory_kib(id, "VmRSS"));
        Ok(each.sum::<anyhow::Result<u64>>()? as f64 / 1024.0)
    }
}

/// The figures of one measure of a server in one turn. Times are in seconds.
#[derive(Debug, Clone, Copy, Default)]
struct Figure {
    p50: Option<f64>,
    p99: Option<f64>,
    cpu: Option<f64>,
    mib: Option<f64>,
}

impl Figure {
    fn of(mut took: Vec<Duration>) -> Self {
        took.sort_unstable();
        let at = |percent: usize| {
            Some(took.get((took.len().checked_sub(1)?) * percent / 100)?.as_secs_f64())
        };
        Self { p50: at(50), p99: at(99), ..Self::default() }
    }

    fn with_cpu(self, cpu: Duration) -> Self {
        Self { cpu: Some(cpu.as_secs_f64()), ..self }
    }
}

/// What a figure of ours should be.
#[derive(Debug, Clone, Copy, Default)]
struct Goal {
    /// At least this many times less CPU than the original's: in memory, and with `--data`.
    times: [Option<f64>; 2],
    /// At most these, in seconds.
    p50: Option<f64>,
    cpu: Option<f64>,
}

/// A measure: its name, its goal, and figures of each server's turns.
struct Measure {
    name: String,
    goal: Goal,
    turns: BTreeMap<Kind, Vec<Figure>>,
}

/// All measures, in the order in which they were first made.
#[derive(Default)]
struct Measures(Vec<Measure>);

impl Measures {
    fn add(&mut self, kind: Kind, name: &str, goal: Goal, figure: Figure) {
        eprintln!("[{}] {name}: {figure:?}", kind.name());
        let at = self.0.iter().position(|measure| measure.name == name).unwrap_or_else(|| {
            self.0.push(Measure { name: name.to_owned(), goal, turns: BTreeMap::new() });
            self.0.len() - 1
        });
        self.0[at].turns.entry(kind).or_default().push(figure);
    }

    fn table(&self) -> String {
        let mut out = "| measure | p50 | p99 | CPU or memory | times less than the original | goal | verdict |\n|---|---|---|---|---|---|---|".to_owned();
        for measure in &self.0 {
            for kind in measure.turns.keys() {
                let _ = write!(out, "\n{}", measure.row(*kind));
            }
        }
        out
    }
}

impl Measure {
    /// The median of a server's turns; of two turns the higher one.
    fn median(&self, kind: Kind, of: impl Fn(&Figure) -> Option<f64>) -> Option<f64> {
        let mut figures: Vec<f64> = self.turns.get(&kind)?.iter().filter_map(of).collect();
        figures.sort_unstable_by(f64::total_cmp);
        figures.get(figures.len() / 2).copied()
    }

    fn row(&self, kind: Kind) -> String {
        let time = |of: fn(&Figure) -> Option<f64>| {
            let figure = self.median(kind, of);
            figure.map_or("–".to_owned(), |figure| short(Duration::from_secs_f64(figure)))
        };
        let (name, cells) = (&self.name, [time(|f| f.p50), time(|f| f.p99), time(|f| f.cpu)]);
        let [p50, p99, cpu] = cells;
        let memory = self.median(kind, |f| f.mib).map(|mib| format!("{mib:.0} MiB"));
        let cpu = memory.unwrap_or(cpu);
        let server = kind.name();
        let times = self.times(kind);
        let shown = times.map_or("–".to_owned(), |times| format!("{times:.1}×"));
        let goals = self.goals(kind, times);
        let goal: Vec<&str> = goals.iter().map(|(goal, _)| &**goal).collect();
        let (goal, verdict) = match goals.iter().all(|(_, is_met)| *is_met) {
            _ if goals.is_empty() => ("–".to_owned(), "–"),
            true => (goal.join(", "), "met"),
            false => (goal.join(", "), "**missed**"),
        };
        format!("| {name}: {server} | {p50} | {p99} | {cpu} | {shown} | {goal} | {verdict} |")
    }

    /// How many times less CPU or memory ours takes; without these, how many times sooner it is.
    fn times(&self, kind: Kind) -> Option<f64> {
        if kind == Kind::Original {
            return None;
        }
        let of = |of: fn(&Figure) -> Option<f64>| {
            Some(self.median(Kind::Original, of)? / self.median(kind, of)?)
        };
        of(|f| f.cpu).or_else(|| of(|f| f.mib)).or_else(|| of(|f| f.p50))
    }

    /// The goals of a server, and whether each is met.
    fn goals(&self, kind: Kind, times: Option<f64>) -> Vec<(String, bool)> {
        let wanted = match kind {
            Kind::Original => return Vec::new(),
            Kind::Memory => self.goal.times[0],
            Kind::Disk => self.goal.times[1],
        };
        let mut goals: Vec<_> = wanted
            .zip(times)
            .map(|(least, times)| (format!("≥ {least}×"), times >= least))
            .into_iter()
            .collect();
        let mut most = |what: &str, most: Option<f64>, figure: Option<f64>| {
            if let Some((most, figure)) = most.zip(figure) {
                let shown = short(Duration::from_secs_f64(most));
                goals.push((format!("{what} ≤ {shown}"), figure <= most));
            }
        };
        most("p50", self.goal.p50, self.median(kind, |f| f.p50));
        most("CPU", self.goal.cpu, self.median(kind, |f| f.cpu));
        goals
    }
}

/// The goals of a request: CPU against the original's.
fn goal_of(load: Load) -> Goal {
    let times = match load {
        Load::Create => [Some(8.0), Some(6.0)],
        Load::Get => [Some(6.0), None],
        Load::Update => [Some(8.0), None],
        Load::StatusPatch => [Some(10.0), None],
        Load::Ruled(20) => [Some(6.0), None],
        _ => [None, None],
    };
    Goal { times, ..Goal::default() }
}

/// Runs all measurements and writes the table.
pub(crate) fn measure(args: &Args) -> anyhow::Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    super::raise_open_files()?;
    let originals = args.originals.as_deref();
    let mut kinds = vec![Kind::Memory, Kind::Disk];
    if originals.is_some() {
        kinds.insert(0, Kind::Original);
    }
    let mut measures = Measures::default();
    for _ in 0..args.rounds {
        for kind in &kinds {
            let server = Server::start(*kind, originals)?;
            requests(*kind, &server, &mut measures)?;
            drop(server);
            let server = Server::start(*kind, originals)?;
            large(*kind, &server, args.pods, &mut measures)?;
        }
    }
    let table = measures.table();
    println!("{table}");
    if args.dry || originals.is_none() {
        return Ok(());
    }
    let turns = match args.rounds {
        1 => "One turn".to_owned(),
        n => format!("Medians of {n} turns, of two the higher"),
    };
    results::write(
        Some("API beside kube-apiserver"),
        &format!(
            "{} Command: `cargo xtask bench load --originals DIR`. {}; kube-apiserver 1.36 with RBAC and its default \
             flow control and admission, and etcd, which waits for the disk as it does by default; so does `--data`. All servers take the same \
             requests over HTTPS with HTTP/2 in turns, client and server on the same cores; a load is a few seconds of one request at a time on \
             each connection. CPU is of the server's processes, user and system, per request (list, delivery). {turns}. Not \
             like for like: setpoint runs the garbage collector, the namespace controller and a few others in its process, which are \
             kube-controller-manager's beside the original; in memory, nothing waits for a disk.\n\n{table}",
            results::machine()?,
            built()?,
        ),
    )
}

/// Small requests, alone and beside many definitions.
fn requests(kind: Kind, server: &Server, measures: &mut Measures) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let most = CONNECTIONS.into_iter().max().unwrap_or_default();
        let mut connections = small::connect(&server.endpoint, most).await?;
        first_objects(kind, &mut connections[0], measures).await?;
        for n_rules in [1, 20] {
            define(&mut connections[0], payload::rules_definition(n_rules)).await?;
            accepted(&mut connections[0], &payload::rules_path(n_rules), || {
                payload::ruled("first", n_rules)
            })
            .await?;
        }
        let all = [
            Load::Create,
            Load::Get,
            Load::Update,
            Load::Apply,
            Load::PodCreate,
            Load::StatusPatch,
            Load::Ruled(1),
            Load::Ruled(20),
            Load::CreateProtobuf,
            Load::GetProtobuf,
            Load::UpdateProtobuf,
            Load::GetGzip,
        ];
        let mut drive = async |load: Load, n: usize, beside: &str, run: &str| {
            let driven = load.drive(&mut connections[..n], run, || server.cpu()).await?;
            let cpu = driven.cpu / u32::try_from(driven.took.len().max(1))?;
            let connections = if n == 1 { "a connection" } else { "16 connections" };
            let name = format!("{}, {connections}{beside}", load.name());
            let figure = Figure::of(driven.took).with_cpu(cpu);
            measures.add(kind, &name, goal_of(load), figure);
            anyhow::Ok(())
        };
        for load in all {
            for n in CONNECTIONS {
                drive(load, n, "", &format!("of-{n}")).await?;
            }
        }
        let mut definer = server.endpoint.connect().await?;
        for at in 0..DEFINITIONS {
            define(&mut definer, small_definition(at)).await?;
        }
        let last = DEFINITIONS - 1;
        accepted(&mut definer, &small_path(last), || small_object("a", last)).await?;
        tokio::time::sleep(SETTLE).await;
        let beside = format!(", {DEFINITIONS} definitions beside it");
        for load in [Load::Create, Load::Get, Load::Update, Load::StatusPatch] {
            drive(load, 16, &beside, "beside").await?;
        }
        Ok(())
    })
}

/// From a definition to its first object.
async fn first_objects(
    kind: Kind,
    connection: &mut Connection,
    measures: &mut Measures,
) -> anyhow::Result<()> {
    let mut took = Vec::new();
    for at in 0..FIRST {
        let at = DEFINITIONS + at;
        let (definition, path) = (small_definition(at), small_path(at));
        let started = Instant::now();
        define(connection, definition).await?;
        accepted(connection, &path, || small_object("a", at)).await?;
        took.push(started.elapsed());
    }
    let goal = Goal { p50: Some(0.02), ..Goal::default() };
    measures.add(kind, "first object after its definition was sent", goal, Figure::of(took));
    Ok(())
}

fn small_definition(at: usize) -> Bytes {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let (plural, kind) = (format!("smalls{at}"), format!("Small{at}"));
    definition("small.io", &plural, &kind, schema).to_string().into()
}

/// The collection of its objects.
fn small_path(at: usize) -> String {
    format!("/apis/small.io/v1/namespaces/default/smalls{at}")
}

fn small_object(name: &str, at: usize) -> Bytes {
    let kind = format!("Small{at}");
    json!({"apiVersion": "small.io/v1", "kind": kind, "metadata": {"name": name}})
        .to_string()
        .into()
}

async fn define(connection: &mut Connection, body: Bytes) -> anyhow::Result<()> {
    connection.send(Ask::write("POST", definitions::PATH), body).await?.ok()?;
    Ok(())
}

/// Creates an object, again and again until the server takes it.
async fn accepted(
    connection: &mut Connection,
    path: &str,
    body: impl Fn() -> Bytes,
) -> anyhow::Result<()> {
    while connection.send(Ask::write("POST", path), body()).await?.ok().is_err() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// Lists of many Pods, resident memory with them, and one change to many watchers.
fn large(
    kind: Kind,
    server: &Server,
    n_pods: usize,
    measures: &mut Measures,
) -> anyhow::Result<()> {
    let (endpoint, cpu) = (&server.endpoint, || server.cpu());
    large::fill(endpoint, n_pods)?;
    std::thread::sleep(SETTLE);
    let figure = Figure { mib: Some(server.resident_mib()?), ..Figure::default() };
    let name = format!("resident memory with {n_pods} Pods");
    measures.add(kind, &name, Goal::default(), figure);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut connection = endpoint.connect().await?;
        for form in [Form::JSON, Form::GZIP, Form::PROTOBUF] {
            let goal = match form.name == Form::JSON.name {
                true => Goal { p50: Some(0.06), cpu: Some(0.04), ..Goal::default() },
                false => Goal::default(),
            };
            let read = form.read(&mut connection, large::ALL_PODS, cpu).await?;
            let name = format!("LIST of {n_pods} Pods, {}", form.name);
            measures.add(kind, &name, goal, Figure::of(read.whole).with_cpu(read.cpu));
        }
        anyhow::Ok(())
    })?;
    large::fill_config_maps(endpoint, n_pods)?;
    runtime.block_on(async {
        let mut connection = endpoint.connect().await?;
        for form in [Form::JSON, Form::GZIP, Form::PROTOBUF] {
            let read = form.read(&mut connection, payload::CONFIG_MAPS, cpu).await?;
            let name = format!("LIST of {n_pods} ConfigMaps, {}", form.name);
            measures.add(kind, &name, Goal::default(), Figure::of(read.whole).with_cpu(read.cpu));
        }
        anyhow::Ok(())
    })?;
    for crowd in [Crowd::FEW, Crowd::MANY] {
        let delivered = crowd.deliver(endpoint, cpu)?;
        let name = format!("delivery of a change of 1 KiB to one of {} watchers", crowd.watchers);
        let goal = match crowd.watchers == Crowd::MANY.watchers {
            true => Goal { cpu: Some(6e-6), ..Goal::default() },
            false => Goal::default(),
        };
        measures.add(kind, &name, goal, Figure::of(delivered.took).with_cpu(delivered.cpu));
    }
    Ok(())
}
