//! `cargo xtask bench`: runs the benchmarks and writes the committed tables.

use crate::cargo::{cargo, root, target_folder};
use crate::pages;
use crate::parts::GoParts;
use anyhow::{Context, Result, bail};
use std::path::PathBuf;

/// The benchmark to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Arguments of the bench program: `api`, `load`, `informer`, `workqueue`, `runtime`,
    /// `storage`, `watch`, `planes`, `envtest`, `gate`, `scale` or `scaling` for their tables,
    /// including peers; none: the API server's.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let what = args.rest.first().map(String::as_str);
    let is_informer = what == Some("informer");
    let is_queue = what == Some("workqueue");
    let mut cargo = cargo();
    cargo.args(["run", "--release", "--package", "setpoint-benches", "--"]).args(&args.rest);
    if is_informer {
        match go_program("client-go") {
            Ok(path) => {
                cargo.env("SETPOINT_BENCH_CLIENT_GO", path);
            }
            Err(error) => eprintln!("skipping client-go: {error:#}"),
        }
    }
    if is_queue {
        match go_program("workqueue") {
            Ok(path) => {
                cargo.env("SETPOINT_BENCH_WORKQUEUE_GO", path);
            }
            Err(error) => eprintln!("skipping client-go: {error:#}"),
        }
    }
    let counts = ["api", "crds", "informer", "workqueue", "runtime", "scaling", "watch", "planes"];
    if what.is_some_and(|what| counts.contains(&what)) {
        // Including those that count their allocations.
        build("setpoint-benches", "release")?;
    }
    if matches!(
        what,
        None | Some("api" | "crds" | "envtest" | "load" | "scale" | "storage" | "watch")
    ) {
        // Measurements from outside use the shipped build.
        build("setpoint-cli", "dist")?;
        cargo.env("SETPOINT_BENCH_PROGRAM", target_folder()?.join("dist/setpoint"));
    }
    if !cargo.status().context("cannot start cargo")?.success() {
        bail!("the measurement failed")
    }
    pages::run()
}

/// Builds a peer written in Go.
fn go_program(name: &str) -> Result<PathBuf> {
    GoParts::install()?.build(&root().join("benches/peers").join(name), name)
}

fn build(package: &str, profile: &str) -> Result<()> {
    let status = cargo().args(["build", "--profile", profile, "--package", package]).status();
    if status.context("cannot start cargo")?.success() {
        Ok(())
    } else {
        bail!("{package} does not build")
    }
}
