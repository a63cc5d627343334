//! `cargo xtask patches`: patches generated objects here and with Kubernetes' own libraries, and
//! writes how the results differ in `docs/patches.md`.
//!
//! The four ways of patching are cases of one program of ours, in Go, which is laid over
//! Kubernetes' source for the build. The cases are made by `crates/schema/tests/it/patches`.

use crate::cargo::{cargo, root};
use crate::laid_over::Source;
use crate::machine::{date, hardware};
use anyhow::{Context, Result, ensure};

/// The cases to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    source: Source,
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
    let program = args.source.build("patch-oracle", &LAID_OVER)?;
    let source = args.source.folder()?;
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
        .env("PATCHES_PROGRAM", program)
        .env("PATCHES_OPEN_API", std::env::join_paths(open_api)?)
        .env("PATCHES_CASES", args.cases.to_string())
        .env("PATCHES_SEED", args.seed.to_string())
        .env("PATCHES_VERSIONS", versions(&args.source)?)
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
fn versions(source: &Source) -> Result<String> {
    Ok(format!(
        "json-patch {}, structured-merge-diff {}, and `strategicpatch` and `managedfields` of \
         Kubernetes 1.36",
        source.version("gopkg.in/evanphx/json-patch.v4")?,
        source.version("sigs.k8s.io/structured-merge-diff/v6")?
    ))
}
