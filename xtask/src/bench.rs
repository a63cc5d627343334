//! `cargo xtask bench`: measures, and writes the tables that are committed.

use crate::pages;
use crate::parts::GoParts;
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;

/// What to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Arguments of the bench program: `api`, `informer`, `workqueue`, `runtime`, `storage`,
    /// `watch`, `planes` or `scaling` for their tables, the peers included; none: the API server's.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let what = args.rest.first().map(String::as_str);
    let is_informer = what == Some("informer");
    let is_queue = what == Some("workqueue");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["run", "--release", "--package", "setpoint-benches", "--"]).args(&args.rest);
    if is_informer {
        match go_program("client-go") {
            Ok(path) => {
                cargo.env("SETPOINT_BENCH_CLIENT_GO", path);
            }
            Err(error) => eprintln!("client-go is left out: {error:#}"),
        }
    }
    if is_queue {
        match go_program("workqueue") {
            Ok(path) => {
                cargo.env("SETPOINT_BENCH_WORKQUEUE_GO", path);
            }
            Err(error) => eprintln!("client-go is left out: {error:#}"),
        }
    }
    let counts = ["api", "crds", "informer", "workqueue", "runtime", "scaling", "watch", "planes"];
    if what.is_some_and(|what| counts.contains(&what)) {
        // With those that count their allocations.
        build("setpoint-benches", "release")?;
    }
    if matches!(what, None | Some("api" | "crds" | "storage" | "watch")) {
        // What is measured from outside is what is shipped.
        build("setpoint-cli", "dist")?;
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(
            || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"),
            std::path::PathBuf::from,
        );
        cargo.env("SETPOINT_BENCH_PROGRAM", target.join("dist/setpoint"));
    }
    if !cargo.status().context("cannot start cargo")?.success() {
        bail!("the measurement failed")
    }
    pages::run()
}

/// A peer in Go, built.
fn go_program(name: &str) -> Result<std::path::PathBuf> {
    let peers = concat!(env!("CARGO_MANIFEST_DIR"), "/../benches/peers");
    GoParts::install()?.build(&Path::new(peers).join(name), name)
}

fn build(package: &str, profile: &str) -> Result<()> {
    let status = Command::new(env!("CARGO"))
        .args(["build", "--profile", profile, "--package", package])
        .status();
    if status.context("cannot start cargo")?.success() {
        Ok(())
    } else {
        bail!("{package} does not build")
    }
}
