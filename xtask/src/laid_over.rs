//! Programs of ours in Go that are built within Kubernetes' source, which stays as it is.

use crate::cargo::{root, target_folder};
use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::path::{Path, PathBuf};
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
        let folder = target_folder()?.join(name);
        std::fs::create_dir_all(&folder)?;
        let program = folder.join(name);
        self.go(&["build"], &format!("./cmd/{name}"), files, &program)?;
        Ok(program)
    }

    /// Builds `cmd/NAME` with flags of `go build`.
    pub(crate) fn build_as(&self, flags: &[&str], name: &str, program: &Path) -> Result<()> {
        self.go(&[&["build"], flags].concat(), &format!("./cmd/{name}"), &[], program)
    }

    /// Builds the program of a package's tests, with our `files` laid over the source.
    pub(crate) fn build_tests(
        &self,
        package: &str,
        files: &[(&str, &str)],
        program: &Path,
    ) -> Result<()> {
        self.go(&["test", "-c", "-vet=off"], package, files, program)
    }

    /// Builds a program at a path, whose folder gets the list of what is laid over.
    fn go(
        &self,
        command: &[&str],
        package: &str,
        files: &[(&str, &str)],
        program: &Path,
    ) -> Result<()> {
        let source = self.folder()?;
        let replaced: serde_json::Map<_, _> = files
            .iter()
            .map(|(file, place)| {
                (source.join(place).display().to_string(), json!(root().join(file)))
            })
            .collect();
        let overlay = program.with_extension("overlay.json");
        std::fs::write(&overlay, json!({"Replace": replaced}).to_string())?;
        let mut go = Command::new(&self.go);
        go.args(command).args(["-mod=vendor", "-overlay"]).arg(overlay);
        go.arg("-o").arg(program).arg(package);
        go.envs([("CGO_ENABLED", "0"), ("GOTOOLCHAIN", "local")]).current_dir(&source);
        let status = go.status().context("cannot start go")?;
        ensure!(status.success(), "{package} does not build");
        Ok(())
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
