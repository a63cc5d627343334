//! `cargo xtask audit`: what the dependencies are allowed to be, and whether each is used.

use crate::parts::cache_folder;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) fn run() -> Result<()> {
    let tools = cache_folder()?.join("tools");
    // Advisories need a database from the network, which not every machine may fetch: run `cargo
    // deny check advisories` where it can.
    check(Command::new(tool(&tools, "cargo-deny")?).args([
        "--all-features",
        "check",
        "bans",
        "licenses",
        "sources",
    ]))?;
    check(&mut Command::new(tool(&tools, "cargo-machete")?))
}

/// Builds a tool once, outside the system.
fn tool(tools: &Path, name: &str) -> Result<PathBuf> {
    let binary = tools.join("bin").join(name);
    if !binary.exists() {
        check(
            Command::new(env!("CARGO"))
                .args(["install", "--locked", "--root"])
                .arg(tools)
                .arg(name),
        )?;
    }
    Ok(binary)
}

fn check(command: &mut Command) -> Result<()> {
    let status =
        command.status().with_context(|| format!("cannot start {:?}", command.get_program()))?;
    if status.success() { Ok(()) } else { bail!("{command:?} found something") }
}
