//! What is measured, and the table it goes into.
//!
//! `cargo xtask bench` builds the program and this one for release, runs every measurement and rewrites `benches/RESULTS.md`.
//! Figures of one run compare; figures of different machines or days do not. Each goal stands beside its figure.
#![allow(clippy::disallowed_methods, reason = "a stopwatch reads the real clock")]

mod https;
mod in_process;
mod process;
mod table;

use table::Table;

fn main() -> anyhow::Result<()> {
    let mut table = Table::default();
    in_process::measure(&mut table)?;
    process::measure(&mut table)?;
    https::measure(&mut table)?;
    println!("{table}");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/RESULTS.md");
    std::fs::write(path, table.document()?)?;
    println!("written to benches/RESULTS.md");
    Ok(())
}
