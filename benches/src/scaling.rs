//! Growth of the time of an operation on one object with the object's size.
//!
//! `cargo xtask bench scaling`. Each operation gets inputs of n, 2n, 4n and 8n members, in a
//! program that does nothing else. Linear-logarithmic time grows by a factor of 2.2 with each
//! doubling; quadratic time by four.

use crate::table::short;
use crate::{process, results};
use std::time::Duration;

/// Maximum growth from n to 8n that counts as linear-logarithmic: 8 × log(20,000) / log(2,500) is
/// 10, plus effects of caches and the allocator. Quadratic is 64.
const GROWTH_MAX: f64 = 20.0;

/// Options.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of measurements of each size; the fastest counts.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Do not write the table.
    #[arg(long)]
    dry: bool,
}

pub(crate) fn measure(args: &Args) -> anyhow::Result<()> {
    let measured: Vec<(String, Vec<(usize, Duration)>)> = process::growth(args.rounds)?;
    let sizes = measured.first().map_or(&[][..], |(_, times)| times);
    let header: String = sizes.iter().map(|(n, _)| format!(" {n} |")).collect();
    let mut text =
        format!("| operation |{header} growth | |\n|---|{}---|---|", "---|".repeat(sizes.len()));
    for (what, times) in &measured {
        let growth = match times.as_slice() {
            [(_, first), .., (_, last)] => last.as_secs_f64() / first.as_secs_f64(),
            _ => 0.0,
        };
        let shown: String = times.iter().map(|(_, time)| format!(" {} |", short(*time))).collect();
        let verdict = if growth <= GROWTH_MAX { "met" } else { "**missed**" };
        text = format!("{text}\n| {what} |{shown} {growth:.1}× | {verdict} |");
    }
    println!("{text}");
    if args.dry {
        return Ok(());
    }
    results::write(
        Some("Scaling"),
        &format!(
            "{} Command: `cargo xtask bench scaling`. Time of one operation on an object with so many members, on one thread, with the allocator of the shipped program; the fastest of {} rounds. \
             Goal: eight times the members take at most {GROWTH_MAX} times as long, where quadratic would be 64. Leaving the cache of a core counts as growth too.\n\n{text}",
            results::machine()?,
            args.rounds
        ),
    )
}
