//! Programs of ours in Go that are built within Kubernetes' source, which stays as it is.

use crate::cargo::{root, target_folder};
use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::path::PathBuf;
use std::process::Command;

/// What such programs are built with.
#[derive(Debug, clap::Args)]
pub(crate) struct Source {
    /// A folder with Kubernetes' source, with its folder `vendor`.
    #[arg(long)]
    kubernetes: PathBuf,
    /// The program `go`.
    #[arg(long, default_value = "go")]
    go: PathBuf,
}

impl Source {
    /// Its folder.
    pub(crate) fn folder(&self) -> Result<PathBuf> {
        self.kubernetes.canonicalize().context("no such folder")
    }

    /// Builds `cmd/NAME` with our `files`, which are laid over their places in the source. Returns
    /// the program.
    pub(crate) fn build(&self, name: &str, files: &[(&str, &str)]) -> Result<PathBuf> {
        let source = self.folder()?;
        let folder = target_folder()?.join(name);
        std::fs::create_dir_all(&folder)?;
        let replaced: serde_json::Map<_, _> = files
            .iter()
            .map(|(file, place)| {
                (source.join(place).display().to_string(), json!(root().join(file)))
            })
            .collect();
        let (overlay, program) = (folder.join("overlay.json"), folder.join(name));
        std::fs::write(&overlay, json!({"Replace": replaced}).to_string())?;
        let status = Command::new(&self.go)
            .args(["build", "-mod=vendor", "-overlay"])
            .arg(overlay)
            .arg("-o")
            .arg(&program)
            .arg(format!("./cmd/{name}"))
            .envs([("CGO_ENABLED", "0"), ("GOTOOLCHAIN", "local")])
            .current_dir(&source)
            .status();
        ensure!(status.context("cannot start go")?.success(), "the program does not build");
        Ok(program)
    }

    /// The version of a module that the source is built with.
    pub(crate) fn version(&self, module: &str) -> Result<String> {
        let modules = std::fs::read_to_string(self.folder()?.join("go.mod")).context("go.mod")?;
        let mut lines = modules.lines().map(|line| line.trim().split_once(' '));
        let version = lines.find_map(|line| line.filter(|(name, _)| *name == module));
        let version = version.and_then(|(_, version)| version.split_whitespace().next());
        version.map(str::to_owned).with_context(|| format!("{module} in go.mod"))
    }
}
