//! Watchers: the cost of watchers that a change does not concern, the latency to those it does, and
//! the memory of the watch cache.
//!
//! `cargo xtask bench watch`. Client and server share the cores. Memory is the allocated bytes in a
//! separate process that counts them.

mod crowd;
mod delivery;
mod floor;

use crate::process;
use crate::results;
use crate::table::Table;
use crate::watch_memory::Weighed;

/// Options.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run only this measurement, and write nothing.
    #[arg(long)]
    only: Option<Measure>,
    /// Do not write the table.
    #[arg(long)]
    dry: bool,
}

/// The measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Measure {
    Crowd,
    Delivery,
    Https,
    Memory,
}

/// Goal for the heap of 10,000 idle watchers.
const IDLE_GOAL_MIB: f64 = 64.0;

/// Runs all measurements and writes the table.
pub(crate) fn measure(args: &Args) -> anyhow::Result<()> {
    let wants = |what| args.only.is_none_or(|only| only == what);
    let mut table = Table::with_verdicts();
    if wants(Measure::Crowd) {
        crowd::measure(&mut table)?;
    }
    if wants(Measure::Delivery) {
        delivery::in_process(&mut table)?;
    }
    if wants(Measure::Https) {
        delivery::over_https(&mut table)?;
    }
    if wants(Measure::Memory) {
        memory(&mut table)?;
    }
    println!("{table}");
    if args.dry || args.only.is_some() {
        return Ok(());
    }
    results::write(
        Some("Watch"),
        &format!(
            "{} Command: `cargo xtask bench watch`. {}; client and server on the same cores.\n\n{table}",
            results::machine()?,
            process::built()?
        ),
    )
}

/// Results of the counting program.
fn memory(table: &mut Table) -> anyhow::Result<()> {
    let weighed: Weighed = process::counted(&["watch-memory"])?;
    for engine in &weighed.engines {
        let most = 1.15 * engine.object_bytes + 200.0;
        let how = if engine.is_shared { "its bytes shared with the store" } else { "its own copy" };
        for (after, found) in [("filled", engine.filled), ("after a LIST of all", engine.listed)] {
            let what = format!(
                "watch cache over `{}`, {} ConfigMaps of {:.0} B: memory per object, {how}, {after}",
                engine.name, engine.n_objects, engine.object_bytes
            );
            let formatted = format!("{found:.0} B");
            let goal = format!("≤ 1.15 × its bytes + 200 B = {most:.0} B");
            table.judged(&what, formatted, &goal, Some(found <= most));
        }
    }
    let mib = weighed.idle_bytes / f64::from(1 << 20);
    table.judged(
        &format!(
            "{} idle watches, each of another node's Pods, as HTTP answers in process: memory",
            weighed.n_idle
        ),
        format!("{mib:.1} MiB"),
        &format!("≤ {IDLE_GOAL_MIB} MiB"),
        Some(mib <= IDLE_GOAL_MIB),
    );
    Ok(())
}
