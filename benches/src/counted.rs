//! The clients of the source in a program that counts its allocations. Counting costs time, so
//! timings use the other program.
#![allow(clippy::disallowed_methods, reason = "a stopwatch reads the real clock")]

mod client;
mod definitions;
mod definitions_memory;
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

/// Other measurements with counting.
#[derive(Debug, Subcommand)]
#[expect(clippy::enum_variant_names, reason = "they are the names of the commands")]
enum Command {
    /// Print the memory of the watch cache and its watchers.
    WatchMemory,
    /// Print the memory of definitions and their first objects.
    DefinitionsMemory,
    /// Print the memory of idle control planes.
    PlanesMemory {
        /// With their built-in controllers.
        #[arg(long)]
        controllers: bool,
    },
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
        (Some(Command::DefinitionsMemory), _) => {
            println!("{}", serde_json::to_string(&definitions_memory::weigh(heap)?)?);
            Ok(())
        }
        (Some(Command::PlanesMemory { controllers }), _) => {
            println!("{}", serde_json::to_string(&planes_memory::weigh(controllers, heap)?)?);
            Ok(())
        }
        (None, Some(client)) => client::run(&client, heap),
        (None, None) => anyhow::bail!("nothing to count: see --help"),
    }
}

#[cfg(test)]
mod tests {
    use setpoint::ControlPlane;
    use setpoint::prelude::CancellationToken;
    use std::time::Duration;
    use tokio::task::JoinSet;

    /// Maximum memory of another idle control plane, including its controllers.
    const IDLE_BYTES_MAX: u64 = 160 << 10;

    /// The only test of this program, because another one would allocate concurrently.
    #[test]
    fn idle_control_planes_are_small() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build().unwrap();
        let bytes = runtime.block_on(async {
            let (stop, mut running, mut bytes) =
                (CancellationToken::new(), JoinSet::new(), Vec::new());
            for seed in 0..4 {
                let before = super::heap();
                let plane = ControlPlane::builder().simulated(seed).build();
                running.spawn(plane.run(stop.clone()));
                // The clock stands still while any task has work.
                tokio::time::sleep(Duration::from_secs(10)).await;
                bytes.push(super::heap().saturating_sub(before));
            }
            stop.cancel();
            for ended in running.join_all().await {
                ended.unwrap();
            }
            bytes
        });
        // The first also makes the state that a process has only once.
        assert!(bytes[1..].iter().all(|bytes| *bytes <= IDLE_BYTES_MAX), "{bytes:?}");
    }
}
