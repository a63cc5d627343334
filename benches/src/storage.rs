//! Storage: the cost of durability, and the time until a control plane serves stored objects.
//!
//! `cargo xtask bench storage`. All compared measurements alternate in one run, in new folders on
//! the same disk, so that other load on the machine affects all.

mod api;
mod commits;
mod payload;
mod start;

use crate::process;
use crate::results;
use crate::table::Table;

/// Options.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run only this measurement, and write nothing.
    #[arg(long)]
    only: Option<Measure>,
    /// Number of objects at a start.
    #[arg(long, default_value_t = 1_000_000)]
    objects: u64,
    /// Do not write the table.
    #[arg(long)]
    dry: bool,
}

/// The measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Measure {
    Commits,
    Api,
    Start,
}

/// Runs all measurements and writes the table.
pub(crate) fn measure(args: &Args) -> anyhow::Result<()> {
    let wants = |what| args.only.is_none_or(|only| only == what);
    let mut table = Table::with_verdicts();
    if wants(Measure::Commits) {
        commits::measure(&mut table)?;
    }
    if wants(Measure::Api) {
        api::measure(&mut table)?;
    }
    if wants(Measure::Start) {
        start::measure(&mut table, args.objects)?;
    }
    println!("{table}");
    if args.dry || args.only.is_some() {
        return Ok(());
    }
    results::write(
        Some("Storage"),
        &format!(
            "{} Command: `cargo xtask bench storage`. {}. Values are ConfigMaps of settings, which pack to seven tenths. Medians of three turns, \
             in new folders beside each other on one disk.\n\n\
             Commits: redb's figure is its own group commit, the same rows as they are into one table by a thread behind a queue, one transaction with \
             `Durability::Immediate` for all that waits. Ours also looks whether the key is free, packs the value, and keeps history. Creates: the program as a \
             process, the client on the same cores; kube-apiserver 1.36 with etcd 3.5 is in no package registry at hand, so its figure is one of another \
             run, on a machine of this kind. Starts: from the program's start to its ready line, the file in the page cache; killed by SIGKILL while 16 \
             connections create.\n\n{table}",
            results::machine()?,
            process::built()?
        ),
    )
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_unstable_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}
