//! `cargo xtask bench`: measures, and writes the table that is committed.

use anyhow::{Context, Result, bail};
use std::process::Command;

/// What to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Arguments of the bench program; none: everything, into benches/RESULTS.md.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    build("setpoint")?;
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["run", "--release", "--package", "setpoint-benches", "--"]).args(&args.rest);
    if cargo.status().context("cannot start cargo")?.success() {
        Ok(())
    } else {
        bail!("the measurement failed")
    }
}

/// The program that is measured from outside.
fn build(package: &str) -> Result<()> {
    let status =
        Command::new(env!("CARGO")).args(["build", "--release", "--package", package]).status();
    if status.context("cannot start cargo")?.success() {
        Ok(())
    } else {
        bail!("{package} does not build")
    }
}
