//! `cargo xtask bench`: measures, and writes the tables that are committed.

use crate::parts::GoParts;
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;

/// What to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Arguments of the bench program: `informer` for the informer table, its peers included; none: the API server's.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let is_informer = args.rest.first().is_some_and(|first| first == "informer");
    // The program that is measured from outside, or the one that counts its allocations.
    build(if is_informer { "setpoint-benches" } else { "setpoint" })?;
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["run", "--release", "--package", "setpoint-benches", "--"]).args(&args.rest);
    if is_informer {
        match client_go() {
            Ok(path) => {
                cargo.env("SETPOINT_BENCH_CLIENT_GO", path);
            }
            Err(error) => eprintln!("client-go is left out: {error:#}"),
        }
    }
    if cargo.status().context("cannot start cargo")?.success() {
        Ok(())
    } else {
        bail!("the measurement failed")
    }
}

/// The client in Go, built.
fn client_go() -> Result<std::path::PathBuf> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../benches/peers/client-go");
    GoParts::install()?.build(Path::new(folder), "client-go")
}

fn build(package: &str) -> Result<()> {
    let status =
        Command::new(env!("CARGO")).args(["build", "--release", "--package", package]).status();
    if status.context("cannot start cargo")?.success() {
        Ok(())
    } else {
        bail!("{package} does not build")
    }
}
