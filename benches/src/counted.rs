//! The clients of the source in a program that counts what it allocates. Counting takes time: what is timed runs in the other one.
#![allow(clippy::disallowed_methods, reason = "a stopwatch reads the real clock")]

mod client;

use clap::Parser;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::alloc::System;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The command line.
#[derive(Debug, Parser)]
#[command(name = "setpoint-benches-counted", about = "One client, its heap counted")]
struct Cli {
    #[command(flatten)]
    client: client::Args,
}

fn main() -> anyhow::Result<()> {
    client::run(&Cli::parse().client, || {
        let stats = ALLOCATOR.stats();
        stats.bytes_allocated.saturating_sub(stats.bytes_deallocated) as u64
    })
}
