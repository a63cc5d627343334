//! `cargo xtask cel-go`: runs generated expressions here and in cel-go with Kubernetes'
//! environment, and writes the committed record.

use crate::cargo::{cargo, root};
use crate::laid_over::Source;
use crate::machine::{date, hardware};
use anyhow::{Context, Result, ensure};

/// The cases to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    source: Source,
    /// How many expressions.
    #[arg(long, default_value_t = 100_000)]
    cases: usize,
    /// The seed of the generator.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let program = [("xtask/src/cel_go/main.go", "cmd/cel-oracle/main.go")];
    let program = args.source.build("cel-oracle", &program)?;
    let status = cargo()
        .args(["test", "--package", "setpoint-cel", "--test", "it"])
        .args(["--", "--ignored", "--nocapture", "expressions_are_as_in_cel_go"])
        .env("CEL_GO_PROGRAM", program)
        .env("CEL_GO_CASES", args.cases.to_string())
        .env("CEL_GO_SEED", args.seed.to_string())
        .env("CEL_GO_RECORD", root().join("crates/cel/differences.md"))
        .env("CEL_GO_VERSION", args.source.version("github.com/google/cel-go")?)
        .env("CEL_GO_WHERE", format!("{}, {}.", date()?, hardware()?))
        .status();
    ensure!(status.context("cannot start cargo")?.success(), "there are unknown differences");
    Ok(())
}
