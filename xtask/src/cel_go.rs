//! `cargo xtask cel-go`: runs generated expressions here and in cel-go with Kubernetes'
//! environment, and writes the committed record.

use crate::cargo::{cargo, root, target_folder};
use crate::machine::{date, hardware};
use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The cases to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A folder with Kubernetes' source, with its folder `vendor`.
    #[arg(long)]
    kubernetes: PathBuf,
    /// The program `go`.
    #[arg(long, default_value = "go")]
    go: PathBuf,
    /// How many expressions.
    #[arg(long, default_value_t = 100_000)]
    cases: usize,
    /// The seed of the generator.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let source = args.kubernetes.canonicalize().context("no such folder")?;
    let folder = target_folder()?.join("cel-go");
    std::fs::create_dir_all(&folder)?;
    // The source stays as it is: the program is laid over it.
    let program = root().join("xtask/src/cel_go/main.go");
    let place = source.join("cmd/cel-oracle/main.go").display().to_string();
    let overlay = json!({"Replace": {place: program}});
    std::fs::write(folder.join("overlay.json"), overlay.to_string())?;
    let status = Command::new(&args.go)
        .args(["build", "-mod=vendor", "-overlay"])
        .arg(folder.join("overlay.json"))
        .arg("-o")
        .arg(folder.join("cel-oracle"))
        .arg("./cmd/cel-oracle")
        .envs([("CGO_ENABLED", "0"), ("GOTOOLCHAIN", "local")])
        .current_dir(&source)
        .status();
    ensure!(status.context("cannot start go")?.success(), "the program does not build");
    let status = cargo()
        .args(["test", "--package", "setpoint-cel", "--test", "it"])
        .args(["--", "--ignored", "--nocapture", "expressions_are_as_in_cel_go"])
        .env("CEL_GO_PROGRAM", folder.join("cel-oracle"))
        .env("CEL_GO_CASES", args.cases.to_string())
        .env("CEL_GO_SEED", args.seed.to_string())
        .env("CEL_GO_RECORD", root().join("crates/cel/differences.md"))
        .env("CEL_GO_VERSION", version(&source)?)
        .env("CEL_GO_WHERE", format!("{}, {}.", date()?, hardware()?))
        .status();
    ensure!(status.context("cannot start cargo")?.success(), "there are unknown differences");
    Ok(())
}

/// The version of cel-go that the source is built with.
fn version(source: &Path) -> Result<String> {
    let modules = std::fs::read_to_string(source.join("go.mod")).context("go.mod")?;
    let line = modules.lines().find(|line| line.contains("github.com/google/cel-go "));
    let version = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(version.context("cel-go in go.mod")?.to_owned())
}
