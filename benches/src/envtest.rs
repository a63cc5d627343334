//! Test environments: setpoint in the place of kube-apiserver and etcd, and the originals.
//!
//! `cargo xtask bench envtest --originals DIR`. Both are started as controller-runtime's envtest
//! starts them, with the same flags and files, and polled every millisecond where envtest polls
//! every 100 ms. Then the same 100 tests run at once: against setpoint with a control plane each,
//! in one process; against the originals with a namespace each, as a package's suite has it.

pub(crate) mod environment;

use self::environment::{Assets, Environment, client};
use crate::process;
use crate::results;
use crate::table::{Table, short};
use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube_client::Client;
use kube_client::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Path of the measured program, as built by `cargo xtask bench`.
const PROGRAM: &str = "SETPOINT_BENCH_PROGRAM";
/// Number of tests that run at once.
const TESTS: usize = 100;
/// Objects that each test creates, updates, lists and deletes.
const OBJECTS: usize = 10;
/// Starts of ours for each start of the originals.
const STARTS: usize = 4;
/// Rounds, in which ours and the originals take turns.
const ROUNDS: usize = 5;
/// Control planes that are made one after another.
const PLANES: usize = 100;
/// Idle time before memory is read.
const SETTLE: Duration = Duration::from_secs(3);

/// Options.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A folder with the original `kube-apiserver` and `etcd`. Without it, only ours are measured.
    #[arg(long, value_name = "DIR")]
    originals: Option<PathBuf>,
    /// Do not write the table.
    #[arg(long)]
    dry: bool,
}

/// Figures of several rounds.
#[derive(Debug, Default, Clone)]
struct Rounds(Vec<f64>);

impl Rounds {
    fn push(&mut self, figure: f64) {
        self.0.push(figure);
        self.0.sort_unstable_by(f64::total_cmp);
    }

    fn median(&self) -> f64 {
        self.0.get(self.0.len() / 2).copied().unwrap_or_default()
    }

    /// The median, with the lowest and the highest.
    fn show(&self, unit: fn(f64) -> String) -> String {
        let (first, last) = (self.0.first(), self.0.last());
        let end = |end: Option<&f64>| unit(end.copied().unwrap_or_default());
        format!("{} ({} to {})", unit(self.median()), end(first), end(last))
    }
}

fn seconds(figure: f64) -> String {
    short(Duration::from_secs_f64(figure))
}

fn mib(figure: f64) -> String {
    format!("{figure:.0} MiB")
}

/// The figures of one kind of binaries. Times are in seconds, memory is in MiB.
#[derive(Debug, Default)]
struct Figures {
    /// From the start of etcd until the API server is healthy and has its default namespace.
    start: Rounds,
    /// Both processes, idle.
    resident: Rounds,
    /// All tests, from the start of the environment to the end of its stop.
    tests: Rounds,
    /// The highest memory of both processes during the tests.
    peak: Rounds,
}

/// How tests are kept apart.
#[derive(Debug, Clone, Copy)]
enum Apart {
    Planes,
    Namespaces,
}

/// Runs all measurements and writes the table.
pub(crate) fn measure(args: &Args) -> anyhow::Result<()> {
    let program = std::env::var_os(PROGRAM).context("run `cargo xtask bench envtest`")?;
    let folder = tempfile::tempdir()?;
    let mut install = Command::new(program);
    install.args(["envtest", "install"]).arg(folder.path()).stdout(Stdio::null());
    ensure!(install.status().context("start setpoint")?.success(), "{install:?} failed");
    let ours = Assets(folder.path().to_owned());
    let originals = args.originals.clone().map(Assets);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (ours, originals, planes) = runtime.block_on(async {
        let (mut figures, mut peer) = (Figures::default(), Figures::default());
        for _ in 0..ROUNDS {
            for _ in 0..STARTS {
                start(&ours, &mut figures, false).await?;
            }
            start(&ours, &mut figures, true).await?;
            tests(&ours, &mut figures, Apart::Planes).await?;
            if let Some(originals) = &originals {
                start(originals, &mut peer, true).await?;
                tests(originals, &mut peer, Apart::Namespaces).await?;
            }
        }
        let planes = planes(&ours).await?;
        anyhow::Ok((figures, originals.map(|_| peer), planes))
    })?;
    let table = table(&ours, originals.as_ref(), &planes);
    println!("{table}");
    if args.dry {
        return Ok(());
    }
    let text = format!(
        "{} Command: `cargo xtask bench envtest --originals DIR`. {}; kube-apiserver 1.36.2 and etcd as the originals. \
         Both are started with the flags and files of controller-runtime's envtest and take turns; health is polled every millisecond. A start \
         ends when the default namespace can be read. A test makes a client, creates a namespace, creates, gets and updates {OBJECTS} \
         ConfigMaps, lists and deletes them; {TESTS} run at once. Those of setpoint make a control plane each first and end it. Medians of \
         {ROUNDS} rounds (starts of ours: {}), with the lowest and the highest; memory is of both processes.\n\n{table}",
        results::machine()?,
        process::built()?,
        ROUNDS * (STARTS + 1),
    );
    results::write(Some("Test environments"), &text)
}

fn table(ours: &Figures, originals: Option<&Figures>, planes: &PlaneFigures) -> Table {
    let mut table = Table::with_verdicts();
    let mut row = |what: &str, of: fn(&Figures) -> &Rounds, unit: fn(f64) -> String, goal: &str| {
        table.row(&format!("{what}: setpoint"), of(ours).show(unit), goal);
        let Some(originals) = originals else { return };
        table.row(&format!("{what}: originals"), of(originals).show(unit), "–");
        let times = of(originals).median() / of(ours).median();
        table.row(&format!("{what}: less by"), format!("{times:.0}×"), "–");
    };
    row("environment start to healthy", |f| &f.start, seconds, "≤ 30 ms");
    row("resident memory, idle for 3 s", |f| &f.resident, mib, "–");
    row("100 tests at once, with start and stop", |f| &f.tests, seconds, "–");
    row("100 tests at once: highest resident memory", |f| &f.peak, mib, "–");
    let made = planes.made.show(seconds);
    table.row("a control plane of a running process, POST to its answer, ready", made, "≤ 1 ms");
    let kib = format!("{:.0} KiB", planes.resident_kib);
    table.row("each of 100 idle planes with its port: resident memory", kib, "≤ 256 KiB");
    table
}

/// Starts and stops an environment once.
async fn start(assets: &Assets, figures: &mut Figures, is_weighed: bool) -> anyhow::Result<()> {
    let (environment, wall) = Environment::start(assets).await?;
    figures.start.push(wall.as_secs_f64());
    if is_weighed {
        tokio::time::sleep(SETTLE).await;
        figures.resident.push(environment.resident_kib()? as f64 / 1024.0);
    }
    environment.stop()
}

/// Runs all tests in an environment of their own.
async fn tests(assets: &Assets, figures: &mut Figures, apart: Apart) -> anyhow::Result<()> {
    let began = Instant::now();
    let (environment, _) = Environment::start(assets).await?;
    let admin = client(&environment.kubeconfig).await?;
    let mut running = JoinSet::new();
    for n in 0..TESTS {
        let (admin, kubeconfig) = (admin.clone(), environment.kubeconfig.clone());
        running.spawn(async move {
            match apart {
                Apart::Namespaces => test(client(&kubeconfig).await?, n).await,
                Apart::Planes => {
                    let plane = page(&admin, "POST", "planes", json!({})).await?;
                    let kubeconfig = plane["kubeconfig"].as_str().context("no kubeconfig")?;
                    test(client(kubeconfig).await?, n).await?;
                    page(&admin, "DELETE", &format!("planes/{}", plane["id"]), json!({})).await?;
                    Ok(())
                }
            }
        });
    }
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    figures.peak.push(environment.peak_kib()? as f64 / 1024.0);
    environment.stop()?;
    figures.tests.push(began.elapsed().as_secs_f64());
    Ok(())
}

/// What each test does.
async fn test(client: Client, n: usize) -> anyhow::Result<()> {
    let namespace = format!("test-{n}");
    let object: Namespace = serde_json::from_value(json!({"metadata": {"name": namespace}}))?;
    Api::all(client.clone()).create(&PostParams::default(), &object).await?;
    let maps: Api<ConfigMap> = Api::namespaced(client, &namespace);
    for n in 0..OBJECTS {
        let name = format!("map-{n}");
        let map = serde_json::from_value(json!({"metadata": {"name": name}, "data": {"a": "b"}}))?;
        maps.create(&PostParams::default(), &map).await?;
        let mut map = maps.get(&name).await?;
        map.data.get_or_insert_default().insert("a".to_owned(), "c".to_owned());
        maps.replace(&name, &PostParams::default(), &map).await?;
    }
    let listed = maps.list(&ListParams::default()).await?.items;
    let listed = listed.iter().filter_map(|map| map.metadata.name.as_deref());
    for name in listed.filter(|name| name.starts_with("map-")) {
        maps.delete(name, &DeleteParams::default()).await?;
    }
    Ok(())
}

/// Asks one of the program's own pages.
async fn page(admin: &Client, method: &str, path: &str, body: Value) -> anyhow::Result<Value> {
    let uri = format!("/setpoint/{path}");
    let request = http::Request::builder().method(method).uri(uri);
    Ok(admin.request(request.body(body.to_string().into_bytes())?).await?)
}

/// What control planes of a process cost.
#[derive(Debug)]
struct PlaneFigures {
    /// From the request to the answer.
    made: Rounds,
    /// Of one, idle.
    resident_kib: f64,
}

/// Makes control planes one after another and weighs them.
async fn planes(assets: &Assets) -> anyhow::Result<PlaneFigures> {
    let (environment, _) = Environment::start(assets).await?;
    let admin = client(&environment.kubeconfig).await?;
    // The first has what a process has once.
    page(&admin, "POST", "planes", json!({})).await?;
    tokio::time::sleep(SETTLE).await;
    let before = environment.resident_kib()?;
    let mut made = Rounds::default();
    for _ in 0..PLANES {
        let began = Instant::now();
        page(&admin, "POST", "planes", json!({})).await?;
        made.push(began.elapsed().as_secs_f64());
    }
    tokio::time::sleep(SETTLE).await;
    let after = environment.resident_kib()?;
    environment.stop()?;
    Ok(PlaneFigures { made, resident_kib: after.saturating_sub(before) as f64 / PLANES as f64 })
}
