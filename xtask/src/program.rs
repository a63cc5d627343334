//! Building the program.

use crate::cargo::{cargo, root, target_folder};
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::Command;

/// Builds the program with a profile; returns its path.
pub(crate) fn build(profile: &str) -> Result<PathBuf> {
    run(&mut command("build", profile))?;
    // The one profile whose folder has another name.
    let folder = if profile == "dev" { "debug" } else { profile };
    Ok(target_folder()?.join(folder).join("setpoint"))
}

/// The command of cargo, `build` or `rustc`, that builds the program with a profile.
pub(crate) fn command(build: &str, profile: &str) -> Command {
    let mut cargo = cargo();
    cargo.args([build, "--locked", "--package", "setpoint-cli", "--bin", "setpoint"]);
    cargo.args(["--profile", profile]).current_dir(root());
    cargo
}

/// Runs a command that must succeed.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    if !status.success() {
        bail!("{command:?} failed");
    }
    Ok(())
}
