//! `cargo xtask fuzz`: looks for bytes for which something that must hold does not.
//!
//! The programs in `fuzz/libfuzzer` are built with counters at every branch, which the stable
//! compiler can do, and run for a while, two at a time. They start from the committed corpus and
//! leave it as it is: new inputs stay in the target folder, and later runs start from them too. A
//! search finds what it finds when it finds it, so it decides nothing about a change: what lands is
//! tested with the corpus and with mutants of it that are the same each time (`fuzz/tests`).

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How long each target runs.
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// Searches nothing: each target reads the committed corpus once.
    #[arg(long, conflicts_with = "seconds")]
    replay: bool,
    /// Only these targets; none: all.
    targets: Vec<String>,
}

impl Args {
    fn length(&self) -> String {
        if self.replay { "its corpus".to_owned() } else { format!("{} s", self.seconds) }
    }
}

/// What is fuzzed: each is a program in `fuzz/libfuzzer` and a folder of `fuzz/corpus`.
const TARGETS: &[&str] =
    &["cel", "encryption", "frames", "list", "pattern", "resource_version", "review", "skim"];

/// Targets that run at the same time.
const TARGETS_AT_ONCE: usize = 2;

/// Counters at the edges of branches, a table of where they are, and the operands of comparisons.
const FLAGS: &[&str] = &[
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// The largest input, bytes: objects of interest are small.
const INPUT_BYTES_MAX: u32 = 4096;
/// The most memory a target may take, MiB: what it reads is small, so more is a finding.
const MEMORY_MIB_MAX: u32 = 1024;
/// The longest that one input may take, seconds.
const INPUT_SECONDS_MAX: u32 = 10;

pub(crate) fn run(args: &Args) -> Result<()> {
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

/// Builds all targets; the folder with the programs.
fn build() -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("no root")?;
    let target = std::env::var_os("CARGO_TARGET_DIR");
    let target = target.map_or_else(|| root.join("target"), PathBuf::from).join("fuzz");
    let host = host()?;
    let status = Command::new(env!("CARGO"))
        // A target that is named keeps the flags from build scripts and macros. Not `--locked`:
        // that workspace follows what the crates of this one depend on, and this one is what pins
        // it.
        .args(["build", "--release", "--target", &host, "--manifest-path"])
        .arg(root.join("fuzz/libfuzzer/Cargo.toml"))
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
    let told = Command::new(rustc).arg("-vV").output().context("cannot start rustc")?;
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    let host = told.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc does not say what its host is")
}

fn start(programs: &Path, target: &str, args: &Args) -> Result<Child> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("no root")?;
    let (learned, found) = (programs.join("learned").join(target), programs.join("found"));
    for folder in [&learned, &found] {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let mut program = Command::new(programs.join(target));
    if args.replay {
        program.arg("-runs=0");
    } else {
        // New inputs go into the first folder.
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
