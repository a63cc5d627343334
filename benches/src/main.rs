//! What is measured, and the table it goes into.
//!
//! `cargo xtask bench` builds the program and this one for release, runs every measurement and rewrites `benches/RESULTS.md`.
//! Figures of one run compare; figures of different machines or days do not. Each goal stands beside its figure.
#![allow(clippy::disallowed_methods, reason = "a stopwatch reads the real clock")]

mod client;
mod https;
mod in_process;
mod pods;
mod process;
mod source;
mod table;

use clap::{Parser, Subcommand};
use table::Table;

/// The command line.
#[derive(Debug, Parser)]
#[command(name = "setpoint-benches", about = "What is measured")]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

/// What to run; nothing: the API server's table.
#[derive(Debug, Subcommand)]
enum Command {
    /// Serve Pods on the loopback address, for clients to be measured with.
    Source(source::Args),
    /// Run one client of the source and print what it found.
    Client(client::Args),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        None => server(),
        Some(Command::Source(args)) => source::run(&args),
        Some(Command::Client(args)) => client::run(&args, || 0),
    }
}

/// The API server, in process and as a program.
fn server() -> anyhow::Result<()> {
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
