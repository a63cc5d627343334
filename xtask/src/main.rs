//! The chores of this repository: `cargo xtask <chore>`.
//!
//! One module per chore. A chore is a plain function over the working copy; it prints what it
//! changed.

mod audit;
mod bench;
mod facts;
mod fuzz;
mod pages;
mod parts;
mod suite;
#[cfg(test)]
mod tidy;

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
    /// Run every test, the ones with real clients and with etcd included; installs the parts they
    /// need.
    Test(suite::Args),
    /// Install the parts that tests with real clients need, and print where they are.
    Parts,
    /// Generate the tables of built-in types in crates/facts from the published Kubernetes schemas.
    Facts(facts::Args),
    /// Check the house rules: layers, names, sizes (also part of `test`).
    Tidy,
    /// Check licences, versions and sources of dependencies (deny) and unused ones (machete).
    Audit,
    /// Measure, and write the result table and the figures on pages.
    Bench(bench::Args),
    /// Copy measured figures from benches/RESULTS.md into the pages that state them.
    Pages,
    /// Look for bytes for which something that must hold does not.
    Fuzz(fuzz::Args),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().chore {
        Chore::Test(args) => suite::run(&args),
        Chore::Parts => parts::Parts::install().map(|parts| println!("{parts:#?}")),
        Chore::Facts(args) => facts::run(&args),
        Chore::Tidy => suite::tidy(),
        Chore::Audit => audit::run(),
        Chore::Bench(args) => bench::run(&args),
        Chore::Pages => pages::run(),
        Chore::Fuzz(args) => fuzz::run(&args),
    }
}
