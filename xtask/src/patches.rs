//! `cargo xtask patches`: patches generated objects here and with Kubernetes' own libraries, and
//! writes how the results differ in `docs/patches.md`.
//!
//! The four ways of patching are cases of one program of ours, in Go, which is laid over
//! Kubernetes' source for the build. The cases are made by `crates/schema/tests/it/patches`.

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
    /// How many cases of each of the four ways.
    #[arg(long, default_value_t = 100_000)]
    cases: usize,
    /// The seed of the generator.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only cases of this way: `json`, `merge`, `strategic` or `ownership`. Prints the
    /// differences, and leaves the page alone.
    #[arg(long)]
    way: Option<String>,
}

/// Our files, and their places in Kubernetes' source.
const LAID_OVER: [(&str, &str); 2] = [
    ("xtask/src/patches/main.go", "cmd/patch-oracle/main.go"),
    (
        "xtask/src/patches/handlers.go",
        "staging/src/k8s.io/apiserver/pkg/endpoints/handlers/patch_oracle.go",
    ),
];

/// The published schemas that the types of the cases are made from.
const OPEN_API: [&str; 2] = ["api__v1_openapi.json", "apis__apps__v1_openapi.json"];

pub(crate) fn run(args: &Args) -> Result<()> {
    let source = args.kubernetes.canonicalize().context("no such folder")?;
    let folder = target_folder()?.join("patches");
    std::fs::create_dir_all(&folder)?;
    // The source stays as it is: the program is laid over it.
    let replaced: serde_json::Map<_, _> = LAID_OVER
        .iter()
        .map(|(file, place)| (source.join(place).display().to_string(), json!(root().join(file))))
        .collect();
    std::fs::write(folder.join("overlay.json"), json!({"Replace": replaced}).to_string())?;
    let status = Command::new(&args.go)
        .args(["build", "-mod=vendor", "-overlay"])
        .arg(folder.join("overlay.json"))
        .arg("-o")
        .arg(folder.join("patch-oracle"))
        .arg("./cmd/patch-oracle")
        .envs([("CGO_ENABLED", "0"), ("GOTOOLCHAIN", "local")])
        .current_dir(&source)
        .status();
    ensure!(status.context("cannot start go")?.success(), "the program does not build");
    let open_api = OPEN_API.map(|name| source.join("api/openapi-spec/v3").join(name));
    let command = format!(
        "`cargo xtask patches --go PATH --kubernetes SOURCE --cases {} --seed {}`. {}, {}.",
        args.cases,
        args.seed,
        date()?,
        hardware()?
    );
    let mut test = cargo();
    test.args(["test", "--package", "setpoint-schema", "--test", "it"])
        .args(["--", "--ignored", "--nocapture", "patches_are_as_in_the_original"])
        .env("PATCHES_PROGRAM", folder.join("patch-oracle"))
        .env("PATCHES_OPEN_API", std::env::join_paths(open_api)?)
        .env("PATCHES_CASES", args.cases.to_string())
        .env("PATCHES_SEED", args.seed.to_string())
        .env("PATCHES_VERSIONS", versions(&source)?)
        .env("PATCHES_COMMAND", command);
    match &args.way {
        Some(way) => test.env("PATCHES_WAY", way),
        None => test.env("PATCHES_PAGE", root().join("docs/patches.md")),
    };
    let status = test.status().context("cannot start cargo")?;
    ensure!(status.success(), "there are unknown differences");
    Ok(())
}

/// The versions of the libraries that the source is built with.
fn versions(source: &Path) -> Result<String> {
    let modules = std::fs::read_to_string(source.join("go.mod")).context("go.mod")?;
    let version = |module: &str| {
        let line = modules.lines().find(|line| line.contains(module));
        let version = line.and_then(|line| line.split_whitespace().nth(1));
        version.map(str::to_owned).with_context(|| format!("{module} in go.mod"))
    };
    Ok(format!(
        "json-patch {}, structured-merge-diff {}, and `strategicpatch` and `managedfields` of \
         Kubernetes 1.36",
        version("gopkg.in/evanphx/json-patch.v4 ")?,
        version("sigs.k8s.io/structured-merge-diff/v6 ")?
    ))
}
