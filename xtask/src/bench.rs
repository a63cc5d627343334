//! `cargo xtask bench`: runs the benchmarks and writes the committed tables.

use crate::cargo::{cargo, root};
use crate::guided;
use crate::pages;
use crate::parts::GoParts;
use crate::program;
use anyhow::Result;
use std::path::PathBuf;

/// The benchmark to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Measure the program of `cargo xtask dist --guided`, which is built with the counts of the
    /// last training. Stands before the other arguments.
    #[arg(long)]
    guided: bool,
    /// Arguments of the bench program: `api`, `load`, `informer`, `workqueue`, `runtime`,
    /// `storage`, `watch`, `planes`, `envtest`, `gate`, `scale`, `crowd`, `scaling` or
    /// `instructions` for their tables, including peers; none: the API server's.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let what = args.rest.first().map(String::as_str);
    let is_informer = what == Some("informer");
    let is_queue = what == Some("workqueue");
    let mut bench = cargo();
    bench.args(["run", "--release", "--package", "setpoint-benches", "--"]).args(&args.rest);
    if is_informer {
        match go_program("client-go") {
            Ok(path) => {
                bench.env("SETPOINT_BENCH_CLIENT_GO", path);
            }
            Err(error) => eprintln!("skipping client-go: {error:#}"),
        }
    }
    if is_queue {
        match go_program("workqueue") {
            Ok(path) => {
                bench.env("SETPOINT_BENCH_WORKQUEUE_GO", path);
            }
            Err(error) => eprintln!("skipping client-go: {error:#}"),
        }
    }
    let counts = ["api", "crds", "informer", "workqueue", "runtime", "scaling", "watch", "planes"];
    if what.is_some_and(|what| counts.contains(&what)) {
        // Including those that count their allocations.
        let mut all = cargo();
        all.args(["build", "--release", "--package", "setpoint-benches"]);
        program::run(&mut all)?;
    }
    if matches!(
        what,
        None | Some("api" | "crds" | "crowd" | "envtest" | "load" | "scale" | "storage" | "watch")
    ) {
        // Measurements from outside use the shipped build.
        let program = if args.guided { guided::build()? } else { program::build("dist")? };
        bench.env("SETPOINT_BENCH_PROGRAM", program);
    }
    program::run(&mut bench)?;
    pages::run()
}

/// Builds a peer written in Go.
fn go_program(name: &str) -> Result<PathBuf> {
    GoParts::install()?.build(&root().join("benches/peers").join(name), name)
}
