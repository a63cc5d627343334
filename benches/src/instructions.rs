//! Instructions per request, in process: counts that do not depend on the machine's speed, so that
//! runs on different days can be compared.
//!
//! Each step runs twice under valgrind, with a few requests and with a thousand more. The
//! difference is the cost of the thousand, without that of the start. What the kernel does,
//! waiting, and misses of caches are not in it.

use crate::api::payload;
use crate::definitions;
use crate::in_process::{plane_ready, send};
use crate::results;
use anyhow::{Context, ensure};
use bytes::Bytes;
use clap::ValueEnum;
use setpoint::ControlPlane;
use setpoint::apiserver::ApiServer;
use setpoint::prelude::*;
use std::fmt::Write;
use std::process::Command;

/// Requests before those that count: tables are filled, what is made lazily is there.
const N_BEFORE: u64 = 200;
/// Requests that count.
const N_COUNTED: u64 = 1000;

const JSON: &str = "application/json";
/// Stands for a number in the body of a request.
const N: &str = "{n}";
const N_RULES: usize = 20;
const N_LISTED: u64 = 100;

/// A request that is repeated.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Step {
    Get,
    Create,
    Update,
    Apply,
    PodCreate,
    PodUpdate,
    StatusPatch,
    Ruled,
    RuledPatch,
    List,
}

impl Step {
    fn title(self) -> &'static str {
        match self {
            Self::Get => "get of a ConfigMap (1 KiB)",
            Self::Create => "create of a ConfigMap",
            Self::Update => "update of a ConfigMap",
            Self::Apply => "server-side apply of a change to a ConfigMap",
            Self::PodCreate => "create of a Pod (4 KB)",
            Self::PodUpdate => "update of a Pod, as it was read",
            Self::StatusPatch => "merge patch of a Pod's status",
            Self::Ruled => "create of a custom object with 20 CEL rules",
            Self::RuledPatch => "merge patch of one of its numbers",
            Self::List => "LIST of 100 Pods (4.4 KB each)",
        }
    }
    /// What is there before the requests, in order.
    fn prepared(self) -> Vec<Request> {
        let account = Request::post(payload::SERVICE_ACCOUNTS, r#"{"metadata":{"name":"web"}}"#);
        match self {
            Self::Create => Vec::new(),
            Self::Get | Self::Update | Self::Apply => {
                vec![Request::post(payload::CONFIG_MAPS, payload::config_map("it", 0))]
            }
            Self::Ruled | Self::RuledPatch => {
                vec![Request::post(definitions::PATH, payload::rules_definition(N_RULES))]
            }
            Self::PodCreate => vec![account],
            Self::PodUpdate | Self::StatusPatch => {
                vec![account, Request::post(payload::PODS, payload::pod("it"))]
            }
            Self::List => {
                let pods = (0..N_LISTED).map(|n| payload::listed_pod(&format!("pod-{n}")));
                let pods = pods.map(|pod| Request::post(payload::PODS, pod));
                std::iter::once(account).chain(pods).collect()
            }
        }
    }
    /// The requests that are repeated in turn. In their bodies, [`N`] is replaced by a number.
    fn repeated(self) -> Vec<Request> {
        let config_map = format!("{}/it", payload::CONFIG_MAPS);
        let (named, turns) = (format!("it-{N}"), [1, 2]);
        match self {
            Self::Get => vec![Request::get(config_map)],
            Self::Create => {
                vec![Request::post(payload::CONFIG_MAPS, payload::config_map(&named, 0))]
            }
            Self::Update => {
                let put = |n| Request::put(&config_map, payload::config_map("it", n));
                turns.map(put).into()
            }
            Self::Apply => {
                let apply = |n| Request {
                    method: "PATCH",
                    path: format!("{config_map}?fieldManager=bench&force=true"),
                    content_type: "application/apply-patch+yaml",
                    body: payload::applied("it", n),
                };
                turns.map(apply).into()
            }
            Self::PodCreate => vec![Request::post(payload::PODS, payload::pod(&named))],
            // Made of what was read before.
            Self::PodUpdate => Vec::new(),
            Self::StatusPatch => {
                let patch = |n| Request {
                    method: "PATCH",
                    path: format!("{}/it/status", payload::PODS),
                    content_type: "application/merge-patch+json",
                    body: payload::status_patch(n),
                };
                turns.map(patch).into()
            }
            Self::Ruled => {
                vec![Request::post(&payload::rules_path(N_RULES), payload::ruled(&named, N_RULES))]
            }
            Self::RuledPatch => {
                let patch = |n| Request {
                    method: "PATCH",
                    path: format!("{}/it", payload::rules_path(N_RULES)),
                    content_type: "application/merge-patch+json",
                    body: payload::ruled_patch(N_RULES, n),
                };
                turns.map(patch).into()
            }
            Self::List => vec![Request::get(payload::PODS.to_owned())],
        }
    }
}

#[derive(Debug, Clone)]
struct Request {
    method: &'static str,
    path: String,
    content_type: &'static str,
    body: Bytes,
}

impl Request {
    fn get(path: String) -> Self {
        Self { method: "GET", path, content_type: JSON, body: Bytes::new() }
    }
    fn post(path: &str, body: impl Into<Bytes>) -> Self {
        Self { method: "POST", path: path.to_owned(), content_type: JSON, body: body.into() }
    }
    fn put(path: &str, body: Bytes) -> Self {
        Self { method: "PUT", ..Self::post(path, body) }
    }
    /// The same, with a number for [`N`] in its body.
    fn numbered(&self, n: u64) -> anyhow::Result<Self> {
        let body = std::str::from_utf8(&self.body)?.replace(N, &n.to_string());
        Ok(Self { body: body.into(), ..self.clone() })
    }
    async fn send(self, server: &ApiServer) -> anyhow::Result<()> {
        let Self { method, path, content_type, body } = self;
        send(server, method, &path, content_type, body).await?;
        // The watch cache follows.
        tokio::task::yield_now().await;
        Ok(())
    }
}

/// The step to run in this process.
#[derive(Debug, clap::Args)]
pub(crate) struct StepArgs {
    step: Step,
    n_requests: u64,
}

/// Runs one step.
pub(crate) fn run(args: &StepArgs) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let plane = ControlPlane::builder().simulated(0).controllers(false).build();
        let server = plane.server().clone();
        let stop = CancellationToken::new();
        let (ended, repeated) = tokio::join!(plane.run(stop.clone()), async {
            plane_ready(&server).await;
            let repeated = repeat(&server, args.step, args.n_requests).await;
            stop.cancel();
            repeated
        });
        ended?;
        repeated
    })
}

async fn repeat(server: &ApiServer, step: Step, n_requests: u64) -> anyhow::Result<()> {
    for request in step.prepared() {
        request.send(server).await?;
    }
    if matches!(step, Step::Ruled | Step::RuledPatch) {
        // Served some turns after the definition is there.
        while Request::get(payload::rules_path(N_RULES)).send(server).await.is_err() {
            tokio::task::yield_now().await;
        }
    }
    if matches!(step, Step::RuledPatch) {
        let (path, object) = (payload::rules_path(N_RULES), payload::ruled("it", N_RULES));
        Request::post(&path, object).send(server).await?;
    }
    if matches!(step, Step::PodUpdate) {
        return update_as_read(server, n_requests).await;
    }
    let requests = step.repeated();
    for (n, request) in (0..n_requests).zip(requests.iter().cycle()) {
        request.numbered(n)?.send(server).await?;
    }
    Ok(())
}

/// Changes a label of a Pod as most clients do: in the object as it was read.
async fn update_as_read(server: &ApiServer, n_requests: u64) -> anyhow::Result<()> {
    let path = format!("{}/it", payload::PODS);
    let mut read = send(server, "GET", &path, JSON, Bytes::new()).await?;
    let turns = [r#""tier":"frontend""#, r#""tier":"backend""#];
    for n in 0..n_requests as usize {
        let object = std::str::from_utf8(&read)?;
        let changed = object.replacen(turns[n % 2], turns[(n + 1) % 2], 1);
        ensure!(changed != object, "no label in {object}");
        read = send(server, "PUT", &path, JSON, changed).await?;
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// Measures every step, and writes the table.
pub(crate) fn measure() -> anyhow::Result<()> {
    let mut table = String::from("| request, in process, memory | instructions |\n|---|---|\n");
    for step in Step::value_variants() {
        let count = (counted(*step, N_BEFORE + N_COUNTED)? - counted(*step, N_BEFORE)?) / N_COUNTED;
        println!("{}: {count}", step.title());
        writeln!(table, "| {} | {} thousand |", step.title(), (count + 500) / 1000)?;
    }
    let text = format!(
        "{} Command: `cargo xtask bench instructions`. Instructions of the whole process outside the kernel, as valgrind's callgrind counts them, by \
         request: the mean of {N_COUNTED} after {N_BEFORE}. They do not depend on the machine's speed, so that tables of different days can be \
         compared. Built for release, without the counts of a training, with the allocator of the C library: the program has another.\n\n{table}",
        results::machine()?
    );
    results::write(Some("Instructions"), &text)
}

/// Instructions of a process that sends so many requests.
fn counted(step: Step, n_requests: u64) -> anyhow::Result<u64> {
    let name = step.to_possible_value().context("a step without a name")?;
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe()?)
        .args(["step", name.get_name(), &n_requests.to_string()]);
    let output = command.output().context("start valgrind: `apt-get install valgrind`")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} failed: {said}");
    let line = said.lines().find_map(|line| line.split_once("Collected :"));
    let (_, count) = line.context("valgrind has not said how many instructions it counted")?;
    Ok(count.trim().parse()?)
}
