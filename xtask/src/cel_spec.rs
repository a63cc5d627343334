//! `cargo xtask cel-spec`: runs the cases of the CEL specification and writes the committed record.

use crate::cargo::{cargo, root};
use anyhow::{Context, Result, bail};
use std::path::PathBuf;

/// The cases to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The directory `tests/simple/testdata` of a checkout of google/cel-spec.
    directory: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let directory = args.directory.canonicalize().context("no such directory")?;
    let record = root().join("crates/cel/conformance.md");
    let status = cargo()
        .args(["test", "--package", "setpoint-cel", "--test", "it", "--", "--ignored"])
        .env("CEL_SPEC_TESTDATA", directory)
        .env("CEL_SPEC_RECORD", record)
        .status();
    if !status.context("cannot start cargo")?.success() {
        bail!("cases fail that are not listed as known")
    }
    Ok(())
}
