//! The chores of this repository: `cargo xtask <chore>`.
//!
//! One module per chore. A chore is a plain function over the working copy; it prints what it changed.

mod facts;

use clap::{Parser, Subcommand};

/// The command line.
#[derive(Debug, Parser)]
#[command(name = "xtask", about = "The chores of this repository")]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

/// What there is to do.
#[derive(Debug, Subcommand)]
enum Chore {
    /// Generate the tables of built-in types in crates/facts from the published Kubernetes schemas.
    Facts(facts::Args),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().chore {
        Chore::Facts(args) => facts::run(&args),
    }
}
