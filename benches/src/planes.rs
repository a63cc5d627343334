//! Many control planes in one process: the cost of another idle one, and of a thousand.
//!
//! `cargo xtask bench planes`. Memory is the allocated bytes in a separate process that counts
//! them, and that process's resident memory.

use crate::planes_memory::{PLANES, Planes};
use crate::process;
use crate::results;
use crate::table::{Table, short};
use std::time::Duration;

/// Goal for the heap of another idle control plane, including its controllers.
const PLANE_GOAL_KIB: f64 = 256.0;
/// Goal for its start, until its controllers have nothing to do.
const START_GOAL: Duration = Duration::from_millis(1);

/// Options.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Do not write the table.
    #[arg(long)]
    dry: bool,
}

/// Runs all measurements and writes the table.
pub(crate) fn measure(args: &Args) -> anyhow::Result<()> {
    // In processes of their own: memory that one kind has freed would serve the other.
    let bare: Planes = process::counted(&["planes-memory"])?;
    let with_controllers: Planes = process::counted(&["planes-memory", "--controllers"])?;
    let mut table = Table::with_verdicts();
    let rows = [
        ("without controllers", &bare, None, None),
        ("with its controllers", &with_controllers, Some(PLANE_GOAL_KIB), Some(START_GOAL)),
    ];
    for (how, planes, goal, start_goal) in rows {
        let kib = |bytes: f64| format!("{:.0} KiB", bytes / 1024.0);
        let goal_text = goal.map_or("–".to_owned(), |goal| format!("≤ {goal} KiB"));
        table.judged(
            &format!("idle control plane {how}, one more in the process: heap"),
            kib(planes.heap_bytes),
            &goal_text,
            goal.map(|goal| planes.heap_bytes <= goal * 1024.0),
        );
        table.judged(
            &format!("the first of the process, {how}: heap"),
            kib(planes.first_heap_bytes as f64),
            "–",
            None,
        );
        table.judged(
            &format!("{PLANES} of them, {how}: resident memory of each"),
            kib(planes.resident_bytes),
            "–",
            None,
        );
        let start = Duration::from_secs_f64(planes.wall_seconds / PLANES as f64);
        let start_goal_text =
            start_goal.map_or("–".to_owned(), |goal| format!("≤ {}", short(goal)));
        table.judged(
            &format!("{PLANES} of them, {how}: start of each, one after the other"),
            short(start),
            &start_goal_text,
            start_goal.map(|goal| start <= goal),
        );
        table.judged(
            &format!("{PLANES} of them, {how}: processor time in a second of idleness"),
            format!("{:.1} ms", planes.idle_cpu_seconds * 1e3),
            "–",
            None,
        );
    }
    println!("{table}");
    if args.dry {
        return Ok(());
    }
    results::write(
        Some("Control planes"),
        &format!(
            "{} Command: `cargo xtask bench planes`. Release build; one thread; the memory engine.\n\n{table}",
            results::machine()?
        ),
    )
}
