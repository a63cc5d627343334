//! `cargo xtask fuzz`: searches for inputs that violate a property.
//!
//! Builds the programs in `fuzz/libfuzzer` with branch counters, which the stable compiler
//! supports, and runs them for a while, two at a time. They start from the committed corpus and do
//! not change it: new inputs are stored in the target folder, and later runs start from them too.
//! Because a search is random, it does not gate a change: changes are tested with the corpus and
//! with deterministic mutants of it (`fuzz/tests`).

use crate::cargo::{cargo, root, target_folder};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// Options.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How long each target runs, in seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// Do not search: each target reads the committed corpus once.
    #[arg(long, conflicts_with = "seconds")]
    replay: bool,
    /// Only check that all targets compile. What they check is tested with the corpus by
    /// `cargo xtask test`.
    #[arg(long, conflicts_with_all = ["seconds", "replay", "targets"])]
    check: bool,
    /// Only these targets. Default: all.
    targets: Vec<String>,
}

impl Args {
    fn length(&self) -> String {
        if self.replay { "its corpus".to_owned() } else { format!("{} s", self.seconds) }
    }
}

/// The targets: each is a program in `fuzz/libfuzzer` and a folder of `fuzz/corpus`.
const TARGETS: &[&str] = &[
    "admission",
    "apply",
    "audit_policy",
    "authentication_config",
    "authorization_config",
    "body",
    "cbor",
    "cel",
    "certificate",
    "certificate_request",
    "crd_schema",
    "cron",
    "egress_config",
    "encryption",
    "field_selector",
    "field_set",
    "frames",
    "grpc_frames",
    "json_path",
    "jwks",
    "label_selector",
    "list",
    "patch",
    "pattern",
    "policy",
    "protobuf",
    "quantity",
    "request_header",
    "resource_version",
    "review",
    "saved",
    "shard_selector",
    "skim",
    "token",
    "traceparent",
    "tracing_config",
    "webhook_answer",
];

/// Number of targets that run at the same time.
const TARGETS_AT_ONCE: usize = 2;

/// Counters at branch edges, a table of their positions, and the operands of comparisons.
const FLAGS: &[&str] = &[
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// Maximum input size in bytes: relevant objects are small.
const INPUT_BYTES_MAX: u32 = 4096;
/// Maximum memory of a target in MiB: its inputs are small, so more is a finding.
const MEMORY_MIB_MAX: u32 = 1024;
/// Maximum time for one input in seconds.
const INPUT_SECONDS_MAX: u32 = 10;

pub(crate) fn run(args: &Args) -> Result<()> {
    if args.check {
        return check();
    }
    if let Some(unknown) = args.targets.iter().find(|name| !TARGETS.contains(&name.as_str())) {
        bail!("no target {unknown}; there are {}", TARGETS.join(", "));
    }
    let is_wanted =
        |name: &&&str| args.targets.is_empty() || args.targets.iter().any(|t| t == **name);
    let targets: Vec<&str> = TARGETS.iter().filter(is_wanted).copied().collect();
    let programs = build()?;
    let mut found = Vec::new();
    for some in targets.chunks(TARGETS_AT_ONCE) {
        let running: Result<Vec<(&str, Child)>> =
            some.iter().map(|target| Ok((*target, start(&programs, target, args)?))).collect();
        for (target, mut program) in running? {
            if program.wait().context("cannot wait for a fuzzer")?.success() {
                println!("{target}: no finding in {}", args.length());
            } else {
                found.push(target);
            }
        }
    }
    if found.is_empty() {
        return Ok(());
    }
    bail!(
        "findings in {}: the inputs are in {}; run the program beside it with one as its argument",
        found.join(", "),
        programs.join("found").display()
    )
}

/// Checks that all targets compile, with what the workspace's own checks have left in the target
/// folder.
fn check() -> Result<()> {
    let status = cargo()
        .args(["check", "--manifest-path"])
        .arg(root().join("fuzz/libfuzzer/Cargo.toml"))
        .env("CARGO_TARGET_DIR", target_folder()?)
        .status();
    if !status.context("cannot start cargo")?.success() {
        bail!("the fuzzers do not compile");
    }
    Ok(())
}

/// Builds all targets; returns the folder with the programs.
fn build() -> Result<PathBuf> {
    let target = target_folder()?.join("fuzz");
    let host = host()?;
    let status = cargo()
        // An explicit target keeps the flags away from build scripts and macros. Not `--locked`:
        // the dependencies of that workspace are pinned through this one.
        .args(["build", "--release", "--target", &host, "--manifest-path"])
        .arg(root().join("fuzz/libfuzzer/Cargo.toml"))
        .env("CARGO_TARGET_DIR", &target)
        .env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\x1f"))
        .status();
    if !status.context("cannot start cargo")?.success() {
        bail!("the fuzzers do not build");
    }
    Ok(target.join(host).join("release"))
}

fn host() -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("-vV").output().context("cannot start rustc")?;
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc does not print its host")
}

fn start(programs: &Path, target: &str, args: &Args) -> Result<Child> {
    let root = root();
    let (learned, found) = (programs.join("learned").join(target), programs.join("found"));
    for folder in [&learned, &found] {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let mut program = Command::new(programs.join(target));
    if args.replay {
        program.arg("-runs=0");
    } else {
        // New inputs are stored in the first folder.
        program.arg(learned).arg(format!("-max_total_time={}", args.seconds));
    }
    program
        .arg(root.join("fuzz/corpus").join(target))
        .arg(format!("-max_len={INPUT_BYTES_MAX}"))
        .arg(format!("-timeout={INPUT_SECONDS_MAX}"))
        .arg(format!("-rss_limit_mb={MEMORY_MIB_MAX}"))
        .arg(format!("-artifact_prefix={}/{target}-", found.display()))
        .args(["-verbosity=0", "-print_funcs=0"])
        .spawn()
        .with_context(|| format!("cannot start the fuzzer {target}"))
}
