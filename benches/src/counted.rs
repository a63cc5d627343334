//! The clients of the source in a program that counts what it allocates. Counting takes time: what is timed runs in the other one.
#![allow(clippy::disallowed_methods, reason = "a stopwatch reads the real clock")]

mod client;
mod planes_memory;
mod watch_memory;

use clap::{Parser, Subcommand};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::alloc::System;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "setpoint-benches-counted",
    about = "One client, or the watch cache, its heap counted",
    args_conflicts_with_subcommands = true
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    client: Option<client::Args>,
}

/// What else is counted.
#[derive(Debug, Subcommand)]
enum Command {
    /// Print what the watch cache and its watchers weigh.
    WatchMemory,
    /// Print what idle control planes weigh.
    PlanesMemory,
}

fn heap() -> u64 {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated.saturating_sub(stats.bytes_deallocated) as u64
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    match (cli.command, cli.client) {
        (Some(Command::WatchMemory), _) => {
            println!("{}", serde_json::to_string(&watch_memory::weigh(heap)?)?);
            Ok(())
        }
        (Some(Command::PlanesMemory), _) => {
            println!("{}", serde_json::to_string(&planes_memory::weigh(heap)?)?);
            Ok(())
        }
        (None, Some(client)) => client::run(&client, heap),
        (None, None) => anyhow::bail!("nothing to count: see --help"),
    }
}
