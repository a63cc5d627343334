//! The API over HTTPS: server CPU and latency of each kind of request, and the effect of many large
//! lists on small requests.
//!
//! `cargo xtask bench api`. The program runs as a separate process, whose CPU time is the kernel's
//! figure. Client and server share the cores. With `--before PATH`, another build gets the same
//! load in the same run, alternating with this one, and the table has a column for each.

pub(crate) mod bare;
mod beside;
mod client;
mod collection;
mod fan_out;
mod floods;
mod held;
mod large;
pub(crate) mod load;
pub(crate) mod payload;
mod resident;
mod small;

use crate::process::{self, Program};
use crate::results;
use client::Endpoint;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::PathBuf;

/// The controllers that any control plane has. Those of workloads would remove Pods whose node does
/// not exist, and kube-apiserver has none of them either.
const CONTROLLERS: &str = "--controllers=namespace,garbagecollector,resourcequota,pvc-protection,serviceaccount,serviceaccount-token,clusterrole-aggregation";

/// Options.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Another build of the `setpoint` program to compare with in the same run.
    #[arg(long, value_name = "FILE")]
    before: Option<PathBuf>,
    /// The build to measure. Default: the one made by `cargo xtask bench`.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Run only this measurement, and write nothing.
    #[arg(long)]
    only: Option<Measure>,
    /// Number of Pods in the large lists.
    #[arg(long, default_value_t = 10_000)]
    pods: usize,
    /// Number of turns of each build.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Do not write the table.
    #[arg(long)]
    dry: bool,
}

/// The measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Measure {
    /// Small requests, with objects in memory.
    Small,
    /// The same requests of a server that does nothing but answer.
    Bare,
    /// Writes with a data folder.
    Disk,
    /// Lists of many Pods.
    Large,
    /// Small requests during large lists.
    Beside,
    /// One request that deletes many objects, in memory and with a data folder.
    Collection,
    /// Small requests during floods of other kinds.
    Floods,
    /// One change to many watchers.
    FanOut,
    /// How long each kind of request holds a thread, of this build only.
    Held,
    /// Resident memory after a load, of this build only.
    Resident,
}

/// The unit of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Micros,
    Millis,
    PerSecond,
    Mebibytes,
    Count,
    Times,
}

impl Unit {
    fn format(self, figure: f64) -> String {
        match self {
            Self::Micros => format!("{figure:.1} µs"),
            Self::Millis => format!("{figure:.1} ms"),
            Self::PerSecond => format!("{figure:.0} /s"),
            Self::Mebibytes => format!("{figure:.0} MiB"),
            Self::Count => format!("{figure:.0}"),
            Self::Times => format!("{figure:.2}×"),
        }
    }
}

/// The goal of a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Goal {
    None,
    /// At most this value.
    Most(f64),
    /// At most this share of the other build's figure.
    Share(f64),
}

/// The figures of all turns, in the order in which they were first measured.
#[derive(Debug, Default)]
struct Figures {
    names: Vec<(String, Unit, Goal)>,
    /// By name and build.
    turns: BTreeMap<(String, usize), Vec<f64>>,
    /// The build whose turn it is.
    build: usize,
}

impl Figures {
    fn add(&mut self, name: &str, unit: Unit, goal: Goal, figure: f64) {
        eprintln!("[{}] {name}: {}", self.build, unit.format(figure));
        if !self.names.iter().any(|(known, ..)| known == name) {
            self.names.push((name.to_owned(), unit, goal));
        }
        self.turns.entry((name.to_owned(), self.build)).or_default().push(figure);
    }

    fn median(&self, name: &str, build: usize) -> Option<f64> {
        let mut figures = self.turns.get(&(name.to_owned(), build))?.clone();
        figures.sort_unstable_by(f64::total_cmp);
        figures.get(figures.len() / 2).copied()
    }

    /// The table, with the other build if there is one.
    fn table(&self, has_before: bool) -> String {
        let mut out = String::from(if has_before {
            "| measure | before | after | after ÷ before | goal | verdict |\n|---|---|---|---|---|---|"
        } else {
            "| measure | figure | goal | verdict |\n|---|---|---|---|"
        });
        for (name, unit, goal) in &self.names {
            let after = self.median(name, 0);
            let before = self.median(name, 1);
            let formatted =
                |figure: Option<f64>| figure.map_or("–".to_owned(), |figure| unit.format(figure));
            let both = before.zip(after).filter(|(before, _)| *before > 0.0);
            let ratio = both.map(|(before, after)| after / before);
            let (wanted, is_met) = match *goal {
                Goal::None => ("–".to_owned(), None),
                Goal::Most(most) => (format!("≤ {}", unit.format(most)), after.map(|a| a <= most)),
                Goal::Share(share) => (format!("≤ {share:.2}×"), ratio.map(|ratio| ratio <= share)),
            };
            let verdict = match is_met {
                Some(true) => "met",
                Some(false) => "**missed**",
                None => "–",
            };
            let _ = if has_before {
                let ratio = ratio.map_or("–".to_owned(), |ratio| format!("{ratio:.2}×"));
                write!(
                    out,
                    "\n| {name} | {} | {} | {ratio} | {wanted} | {verdict} |",
                    formatted(before),
                    formatted(after)
                )
            } else {
                write!(out, "\n| {name} | {} | {wanted} | {verdict} |", formatted(after))
            };
        }
        out
    }
}

/// Raises the limit of open files: there is a socket per watcher, in the program and here.
fn raise_open_files() -> anyhow::Result<()> {
    let (_, most) = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE)?;
    Ok(nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE, most, most)?)
}

/// Runs all measurements and writes the table.
pub(crate) fn measure(args: &Args) -> anyhow::Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    raise_open_files()?;
    let wants = |what| args.only.is_none_or(|only| only == what);
    // The build made by `cargo xtask bench` is first in the figures, and second in turns.
    let builds = [args.before.clone().map(|path| (1, Some(path))), Some((0, args.program.clone()))];
    let mut figures = Figures::default();
    for _ in 0..args.rounds {
        for (build, path) in builds.iter().flatten() {
            figures.build = *build;
            let start = |more: &[&OsStr]| -> anyhow::Result<(Program, Endpoint)> {
                let more: Vec<&OsStr> =
                    [OsStr::new(CONTROLLERS)].into_iter().chain(more.iter().copied()).collect();
                let program = match path {
                    Some(path) => Program::start_binary(path, &more)?,
                    None => Program::start_with(&more)?,
                };
                let endpoint = Endpoint::of(&program.kubeconfig)?;
                payload::prepare(&endpoint)?;
                Ok((program, endpoint))
            };
            if wants(Measure::Small) {
                let (program, endpoint) = start(&[])?;
                small::measure(&program, &endpoint, &mut figures)?;
            }
            if wants(Measure::Disk) {
                let folder = tempfile::tempdir()?;
                let (program, endpoint) =
                    start(&[OsStr::new("--data"), folder.path().as_os_str()])?;
                small::measure_writes(&program, &endpoint, &mut figures, ", `--data`")?;
            }
            if wants(Measure::Collection) {
                let (_program, endpoint) = start(&[])?;
                collection::measure(&endpoint, &mut figures, "")?;
                let folder = tempfile::tempdir()?;
                let (_program, endpoint) =
                    start(&[OsStr::new("--data"), folder.path().as_os_str()])?;
                collection::measure(&endpoint, &mut figures, ", `--data`")?;
            }
            if wants(Measure::Large) || wants(Measure::Beside) || wants(Measure::Floods) {
                let (program, endpoint) = start(&[])?;
                large::fill(&endpoint, args.pods)?;
                if wants(Measure::Large) {
                    large::measure(&program, &endpoint, &mut figures, args.pods)?;
                }
                if wants(Measure::Beside) {
                    beside::measure(&program, &endpoint, &mut figures, args.pods)?;
                }
                if wants(Measure::Floods) {
                    floods::measure(&program, &endpoint, &mut figures)?;
                }
            }
            if wants(Measure::FanOut) {
                let (program, endpoint) = start(&[])?;
                fan_out::measure(&program, &endpoint, &mut figures)?;
            }
        }
    }
    if wants(Measure::Bare) {
        figures.build = 0;
        for _ in 0..args.rounds {
            bare::measure(&mut figures)?;
        }
    }
    if wants(Measure::Resident) {
        figures.build = 0;
        resident::measure(&mut figures, args.pods)?;
    }
    if wants(Measure::Held) {
        figures.build = 0;
        held::measure(&mut figures, args.pods)?;
    }
    let table = figures.table(args.before.is_some());
    println!("{table}");
    if args.dry || args.only.is_some() {
        return Ok(());
    }
    let compared = if args.before.is_some() {
        " Before and after are two builds of the program, in turns in one run."
    } else {
        ""
    };
    results::write(
        Some("API"),
        &format!(
            "{} Command: `cargo xtask bench api`. {}; client and server on the same cores, HTTPS with HTTP/2; no controllers of workloads. Medians of {} turns.{compared} CPU is the \
             server process's, user and system, per request.\n\n{table}",
            results::machine()?,
            process::built()?,
            args.rounds
        ),
    )
}
