//! The work queue beside client-go's: the same work, in turns, in one run.
//!
//! `cargo xtask bench workqueue`. Each measure of each queue is a process of its own, so that none
//! finds memory that another one has warmed, and both take turns, so that what else the machine
//! does falls on both. Figures are medians of the rounds, in nanoseconds of processor time a piece;
//! where several threads work, of wall time too.

mod measures;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use crate::results;
use crate::table::Table;

/// How much to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How often each measure is taken.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Take this one measure once, and print what it found.
    #[arg(long)]
    one: Option<String>,
    /// Write nothing.
    #[arg(long)]
    dry: bool,
}

/// What one measure found, in nanoseconds (and bytes) a piece.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(default)]
struct Figure {
    /// Processor time of the whole process.
    cpu: f64,
    wall: f64,
    /// Timers: processor time of firing and draining.
    fire: f64,
    /// Timers: resident memory.
    bytes: f64,
}

/// A row: what is told of a measure, how it is named, which of its figures, what the goal is.
struct Row {
    what: &'static str,
    measure: &'static str,
    unit: &'static str,
    figure: fn(&Figure) -> f64,
    /// How many times better than client-go it is to be.
    goal: Option<f64>,
    has_peer: bool,
}

const fn row(what: &'static str, measure: &'static str, goal: Option<f64>) -> Row {
    Row { what, measure, unit: "ns", figure: |figure| figure.cpu, goal, has_peer: true }
}

const ROWS: &[Row] = &[
    row("add, get, done: one key on one thread", "cycle", Some(3.0)),
    row("add, get, done: 1,024 keys in turn", "cycle-1024", Some(3.0)),
    Row {
        has_peer: false,
        ..row("add, get, done: 1,024 keys in turn, strict priorities", "priorities", None)
    },
    Row { has_peer: false, ..row("add, get, done: 1,024 keys in turn, 16 groups", "groups", None) },
    Row { has_peer: false, ..row("add, get, done: 1,024 keys in turn, with ages", "ages", None) },
    row("1M distinct keys, filled then drained", "fill", Some(3.0)),
    row("2 producers, 2 workers, 1M keys", "pairs", Some(3.0)),
    Row {
        figure: |figure| figure.wall,
        ..row("2 producers, 2 workers, 1M keys: wall time", "pairs", Some(3.0))
    },
    row("rate limited add, get, forget, done", "limited", None),
    row("1M timers: added", "timers", Some(5.0)),
    Row {
        figure: |figure| figure.fire,
        ..row("1M timers: fired and drained", "timers", Some(5.0))
    },
    Row { unit: "B", figure: |figure| figure.bytes, ..row("1M timers: resident", "timers", None) },
];

/// Takes every measure and writes the table.
pub(crate) fn measure(args: &Args) -> anyhow::Result<()> {
    if let Some(one) = &args.one {
        println!("{}", serde_json::to_string(&measures::take(one)?)?);
        return Ok(());
    }
    let own = std::env::current_exe()?;
    let peer = std::env::var_os("SETPOINT_BENCH_WORKQUEUE_GO").map(PathBuf::from);
    let mut table = Table::default();
    let mut taken: Vec<(&str, Vec<Figure>, Vec<Figure>)> = Vec::new();
    for row in ROWS {
        if !taken.iter().any(|(measure, ..)| *measure == row.measure) {
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for _ in 0..args.rounds {
                ours.push(run(Command::new(&own).args(["workqueue", "--one", row.measure]))?);
                if let Some(peer) = peer.as_ref().filter(|_| row.has_peer) {
                    theirs.push(run(Command::new(peer).arg(row.measure))?);
                }
            }
            taken.push((row.measure, ours, theirs));
        }
        let Some((_, ours, theirs)) = taken.iter().find(|(measure, ..)| *measure == row.measure)
        else {
            continue;
        };
        let ours = median(ours, row.figure).unwrap_or(f64::NAN);
        let figure = format!("{ours:.0} {}", row.unit);
        match median(theirs, row.figure) {
            Some(theirs) => {
                let ratio = theirs / ours;
                let figure = format!("{figure}; client-go {theirs:.0} {}: {ratio:.1}×", row.unit);
                let goal = row.goal.map_or("–".to_owned(), |goal| format!("≥ {goal}×"));
                table.judged(row.what, figure, &goal, row.goal.map(|goal| ratio >= goal));
            }
            None => table.judged(row.what, figure, "–", None),
        }
    }
    println!("{table}");
    if args.dry {
        return Ok(());
    }
    results::write(
        Some("Work queue"),
        &format!(
            "{} Command: `cargo xtask bench workqueue`. Release build against client-go's queue, in turns, each measure in a process of its own. Medians of {} \
             rounds, of processor time a piece unless said otherwise. Keys are 64-bit integers; no metrics.\n\n{table}",
            results::machine()?,
            args.rounds
        ),
    )
}

fn run(command: &mut Command) -> anyhow::Result<Figure> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).with_context(|| format!("what {command:?} prints"))
}

fn median(figures: &[Figure], figure: fn(&Figure) -> f64) -> Option<f64> {
    let mut figures: Vec<f64> = figures.iter().map(figure).collect();
    figures.sort_unstable_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied()
}
