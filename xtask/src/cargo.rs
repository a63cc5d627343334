//! The workspace's folder, and starting cargo.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of the workspace: the one that cargo sets at the start of this program, which another
/// checkout with the same target folder may have built.
pub(crate) fn root() -> PathBuf {
    let built = || OsString::from(env!("CARGO_MANIFEST_DIR"));
    let package = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(built);
    Path::new(&package).parent().map(Path::to_owned).unwrap_or_default()
}

/// The folder that cargo builds in.
pub(crate) fn target_folder() -> Result<PathBuf> {
    let mut metadata = cargo();
    metadata.args(["metadata", "--format-version=1", "--no-deps", "--locked"]);
    let output = metadata.current_dir(root()).output().context("cannot start cargo")?;
    if !output.status.success() {
        bail!("{metadata:?}\n{}", String::from_utf8_lossy(&output.stderr));
    }
    let metadata: Value =
        serde_json::from_slice(&output.stdout).context("read cargo's metadata")?;
    metadata["target_directory"].as_str().map(PathBuf::from).context("cargo names no target folder")
}

/// Cargo, without the variables that it set for this program. Build scripts that read them, such as
/// `ring`'s, would run again, and most of the workspace would be compiled again after them.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    for (name, _) in std::env::vars_os() {
        let is_of_this_program =
            |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
        if name.to_str().is_some_and(is_of_this_program) {
            cargo.env_remove(name);
        }
    }
    cargo
}
