//! `cargo xtask audit`: checks licences, versions and sources of dependencies, and finds unused
//! ones.

use crate::cargo::cargo;
use crate::parts::cache_folder;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) fn run() -> Result<()> {
    let tools = cache_folder()?.join("tools");
    // Advisories need a database from the network, which may be unavailable: run `cargo deny check
    // advisories` where it is.
    check(Command::new(tool(&tools, "cargo-deny")?).args([
        "--all-features",
        "check",
        "bans",
        "licenses",
        "sources",
    ]))?;
    check(&mut Command::new(tool(&tools, "cargo-machete")?))
}

/// Builds a tool once, in a cache folder.
fn tool(tools: &Path, name: &str) -> Result<PathBuf> {
    let binary = tools.join("bin").join(name);
    if !binary.exists() {
        check(cargo().args(["install", "--locked", "--root"]).arg(tools).arg(name))?;
    }
    Ok(binary)
}

fn check(command: &mut Command) -> Result<()> {
    let status =
        command.status().with_context(|| format!("cannot start {:?}", command.get_program()))?;
    if status.success() { Ok(()) } else { bail!("{command:?} found something") }
}
