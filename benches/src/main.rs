//! The benchmarks, and the tables of their results.
//!
//! `cargo xtask bench` builds the shipped program and this one for release, measures the API server
//! and rewrites its part of `benches/RESULTS.md`. With one of `api`, `load`, `informer`,
//! `workqueue`, `runtime`, `storage`, `watch`, `planes`, `envtest`, `scale`, `crowd`, `scaling` and
//! `instructions` it does the same for the API over HTTPS, the API beside kube-apiserver,
//! informers, the work queue, controllers, storage, watchers, idle control planes, test
//! environments, thousands of pods, crowded namespaces, the growth of operations with their
//! objects, and the instructions of requests.
//! Figures of one run can be compared; figures of different machines or days cannot. Each figure is
//! shown with its goal.
#![allow(clippy::disallowed_methods, reason = "a stopwatch reads the real clock")]

mod api;
mod client;
mod conversion;
mod crds;
mod crowd;
mod definitions;
mod definitions_memory;
mod envtest;
mod explain;
mod gate;
mod https;
mod in_process;
mod informer;
mod instructions;
mod originals;
mod planes;
mod planes_memory;
mod pods;
mod process;
mod results;
mod runtime;
mod scale;
mod scaling;
mod scan;
mod source;
mod storage;
mod table;
mod watch;
mod watch_memory;
mod workqueue;

use clap::{Parser, Subcommand};
use table::Table;

/// The command line.
#[derive(Debug, Parser)]
#[command(name = "setpoint-benches", about = "What is measured")]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

/// The benchmark; by default, the API server's table.
#[derive(Debug, Subcommand)]
enum Command {
    /// Measure the API over HTTPS, and write its table.
    Api(api::Args),
    /// Serve fixed bytes, as the lower bound of small requests.
    Up(api::bare::Args),
    /// Measure the API beside kube-apiserver and etcd, and write its table.
    Load(api::load::Args),
    /// Serve Pods on the loopback address, as the source for measured clients.
    Source(source::Args),
    /// Run one client of the source and print its results.
    Client(client::Args),
    /// Print the seconds from `build()` to the first acknowledged create of this process.
    FirstCreate,
    /// Print the cost of explanations of reconciles.
    Explain(explain::Args),
    /// Print the cost of authorization, tokens, audit and admission.
    Gate(gate::Args),
    /// Print the latency of deliveries to informers in this process.
    Deliveries,
    /// Run every client, and write the informer table.
    Informer(informer::Args),
    /// Count the instructions of requests, and write their table.
    Instructions,
    /// Send requests of one kind in this process.
    Step(instructions::StepArgs),
    /// Measure test environments, and write their table.
    Envtest(envtest::Args),
    /// Measure large and many CustomResourceDefinitions, and write their table.
    Crds(crds::Args),
    /// Measure many objects of a kind in one namespace, and write their table.
    Crowd(crowd::Args),
    /// Print the cost of scanning one Pod's bytes.
    Scan,
    /// Measure the work queue, and write its table.
    Workqueue(workqueue::Args),
    /// Measure controllers, and write their tables.
    Runtime(runtime::Args),
    /// Run one controller that writes statuses, and print its results.
    StatusWrites(runtime::writes::Args),
    /// Measure storage, and write its table.
    Storage(storage::Args),
    /// Measure many control planes in one process, and write their table.
    Planes(planes::Args),
    /// Measure watchers and the watch cache, and write their table.
    Watch(watch::Args),
    /// Measure thousands of pods and nodes, and write their table.
    Scale(scale::Args),
    /// Run nodes and the scheduler as a process of their own, as clients of a cluster.
    ScaleNodes(scale::nodes::Args),
    /// Measure how operations on one object grow with its size, and write their table.
    Scaling(scaling::Args),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        None => server(),
        Some(Command::Api(args)) => api::measure(&args),
        Some(Command::Up(args)) => api::bare::serve(&args),
        Some(Command::Load(args)) => api::load::measure(&args),
        Some(Command::Source(args)) => source::run(&args),
        Some(Command::Client(args)) => client::run(&args, || 0),
        Some(Command::FirstCreate) => {
            println!("{}", in_process::first_create()?.as_secs_f64());
            Ok(())
        }
        Some(Command::Explain(args)) => explain::measure(&args),
        Some(Command::Gate(args)) => gate::measure(&args),
        Some(Command::Deliveries) => {
            let mut table = Table::with_verdicts();
            in_process::Server::start()?.deliveries(&mut table)?;
            println!("{table}");
            Ok(())
        }
        Some(Command::Informer(args)) => informer::measure(&args),
        Some(Command::Instructions) => instructions::measure(),
        Some(Command::Step(args)) => instructions::run(&args),
        Some(Command::Envtest(args)) => envtest::measure(&args),
        Some(Command::Crds(args)) => crds::measure(&args),
        Some(Command::Crowd(args)) => crowd::measure(&args),
        Some(Command::Scan) => {
            scan::measure();
            Ok(())
        }
        Some(Command::Workqueue(args)) => workqueue::measure(&args),
        Some(Command::Runtime(args)) => runtime::measure(&args),
        Some(Command::StatusWrites(args)) => runtime::writes::run(&args),
        Some(Command::Storage(args)) => storage::measure(&args),
        Some(Command::Planes(args)) => planes::measure(&args),
        Some(Command::Watch(args)) => watch::measure(&args),
        Some(Command::Scale(args)) => scale::measure(&args),
        Some(Command::ScaleNodes(args)) => scale::nodes::run(&args),
        Some(Command::Scaling(args)) => scaling::measure(&args),
    }
}

/// What the figures stand beside.
const PEER: &str = "For comparison, not like for like: kube-apiserver 1.36 with etcd 3.5, measured in another run on a machine of this kind, is ready after \
                    2.3 s and takes 320 MiB when idle.";

/// The API server, in process and as a program.
fn server() -> anyhow::Result<()> {
    let mut table = Table::default();
    in_process::measure(&mut table)?;
    process::measure(&mut table)?;
    println!("{table}");
    results::write(
        None,
        &format!(
            "{} Command: `cargo xtask bench`. {}; client and server on the same cores. Medians unless said otherwise. Objects are kept in memory: \
             nothing here waits for a disk. {PEER}\n\n{table}",
            results::machine()?,
            process::built()?,
        ),
    )
}
