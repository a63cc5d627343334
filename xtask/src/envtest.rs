//! `cargo xtask envtest PROJECT`: runs the suites of a Go project that use controller-runtime's
//! envtest, unchanged, against the binaries that `setpoint envtest install` places, and writes
//! `docs/envtest/PROJECT.md`.
//!
//! The suites are programs, as `go test -c` makes them in the folder of each package. They run one
//! after another, each in its package's folder, or all in the checkout's with `--in-root`. With
//! `--peer` they run against the original binaries too, and the page has both; with
//! `--failures-only` the original binaries run only what failed.

mod page;

use crate::cargo::{cargo, root, target_folder};
use crate::ginkgo::{self, first_lines};
use crate::go_test;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The folder of the pages, below the workspace's.
pub(crate) const PAGES: &str = "docs/envtest";
/// The failure of a program without a failure of its specs and tests.
const WHOLE: &str = "the whole package";
/// The failure of a step around specs.
const STEP: &str = "a suite's step";
/// The longest argument of a program; Linux has 128 KiB.
const ARGUMENT_BYTES_MAX: usize = 100 << 10;
/// The programs of a test environment that suites start.
const BINARIES: [&str; 3] = ["kube-apiserver", "etcd", "kubectl"];

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The project's name, of letters, digits and `-`: that of its page.
    project: String,
    /// A checkout of the project with the test program of each package in its folder.
    #[arg(long)]
    source: PathBuf,
    /// The version of the checkout, for the page.
    #[arg(long, default_value = "unknown")]
    version: String,
    /// Leaves out specs without these labels, in Ginkgo's syntax.
    #[arg(long, value_name = "QUERY")]
    label_filter: Option<String>,
    /// Runs the programs in the checkout's folder instead of those of their packages.
    #[arg(long)]
    in_root: bool,
    /// The built program (default: builds `setpoint` without optimization).
    #[arg(long)]
    program: Option<PathBuf>,
    /// A folder of original binaries, whose figures stand beside ours.
    #[arg(long, value_name = "DIR")]
    peer: Option<PathBuf>,
    /// Runs only what failed against the original binaries.
    #[arg(long, requires = "peer")]
    failures_only: bool,
    /// Runs only packages whose paths contain this, prints the outcome, and leaves the page alone.
    #[arg(long)]
    package: Option<String>,
    /// The folder for binaries, reports and logs (default: a new one below the system's).
    #[arg(long)]
    work: Option<PathBuf>,
}

/// Outcomes by number.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Count {
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl Count {
    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// A package's run.
#[derive(Debug, Default)]
struct Run {
    /// Ginkgo's specs.
    specs: Count,
    /// Top-level tests of Go.
    tests: Count,
    /// Starts of an API server.
    n_starts: usize,
    wall: Duration,
    /// The names of what failed, each with the beginning of its message.
    failures: Vec<(String, String)>,
}

/// The test program of a package.
#[derive(Debug)]
struct Suite {
    program: PathBuf,
    /// The folder in which it runs: that of its package or the checkout's.
    folder: PathBuf,
    /// Its package: the path below the checkout.
    name: String,
}

/// How a suite is run.
#[derive(Debug, Default, Clone, Copy)]
struct Options<'a> {
    /// Ginkgo's query for labels.
    label_filter: Option<&'a str>,
    /// An earlier run: only what failed there.
    failures_of: Option<&'a Run>,
}

/// A package with its runs.
#[derive(Debug)]
struct Package {
    /// Its path below the checkout.
    name: String,
    ours: Run,
    peer: Option<Run>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let source = args.source.canonicalize().context("no such checkout")?;
    let program = match &args.program {
        Some(program) => program.canonicalize().context("no such program")?,
        None => build()?,
    };
    let work = match &args.work {
        Some(work) => work.clone(),
        None => std::env::temp_dir().join(format!("setpoint-suites-{}", std::process::id())),
    };
    fs::create_dir_all(&work).context("make the folder")?;
    let work = work.canonicalize()?;

    let mut suites = Vec::new();
    find(&source, &source, &mut suites)?;
    suites.sort_by(|a, b| a.name.cmp(&b.name));
    if let Some(part) = &args.package {
        suites.retain(|suite| suite.name.contains(part));
    }
    ensure!(!suites.is_empty(), "no test program below {}", source.display());
    if args.in_root {
        suites.iter_mut().for_each(|suite| suite.folder = source.clone());
    }

    let installed = work.join("installed");
    let mut install = Command::new(&program);
    install.args(["envtest", "install"]).arg(&installed).stdout(Stdio::null());
    ensure!(install.status().context("start setpoint")?.success(), "{install:?} failed");
    let ours = Assets::new(&work.join("ours"), &installed)?;
    let peer = args.peer.as_ref().map(|peer| {
        let peer = peer.canonicalize().context("no such folder of binaries")?;
        Assets::new(&work.join("peer"), &peer)
    });
    let peer = peer.transpose()?;

    println!("{} packages; logs in {}", suites.len(), work.display());
    let options = Options { label_filter: args.label_filter.as_deref(), ..Options::default() };
    let mut packages = Vec::new();
    for suite in suites {
        let run = ours.run(&suite, options)?;
        run.show(&suite.name);
        let failures_of = args.failures_only.then_some(&run);
        let is_wanted = failures_of.is_none() || !run.failures.is_empty();
        let peer = peer.as_ref().filter(|_| is_wanted);
        let peer = peer.map(|peer| peer.run(&suite, Options { failures_of, ..options }));
        let peer = peer.transpose()?;
        if let Some(peer) = &peer {
            peer.show("    originals");
        }
        packages.push(Package { name: suite.name, ours: run, peer });
    }
    if args.package.is_none() {
        let page = root().join(PAGES).join(format!("{}.md", args.project));
        let text = page::page(&packages, args)?;
        fs::write(&page, text).with_context(|| page.display().to_string())?;
    }
    Ok(())
}

/// Builds the program.
fn build() -> Result<PathBuf> {
    let status = cargo().args(["build", "--package", "setpoint-cli"]).status();
    ensure!(status.context("cannot start cargo")?.success(), "setpoint-cli does not build");
    target_folder()?.join("debug/setpoint").canonicalize().context("the built program")
}

/// Finds the test programs in and below a folder of a checkout: `client/client.test`.
fn find(source: &Path, folder: &Path, suites: &mut Vec<Suite>) -> Result<()> {
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let program = folder.join(format!("{name}.test"));
    if program.is_file() {
        let name = folder.strip_prefix(source).unwrap_or(folder).display().to_string();
        suites.push(Suite { program, folder: folder.to_owned(), name });
    }
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        if entry.file_type()?.is_dir() && entry.file_name() != "vendor" {
            find(source, &entry.path(), suites)?;
        }
    }
    Ok(())
}

/// A folder of binaries for suites that counts their starts.
#[derive(Debug)]
struct Assets {
    folder: PathBuf,
}

impl Assets {
    /// Makes a folder whose programs note their start and become those of `real`.
    fn new(folder: &Path, real: &Path) -> Result<Self> {
        fs::create_dir_all(folder.join("bin"))?;
        for name in BINARIES {
            let binary = real.join(name);
            if !binary.exists() {
                // Few suites start kubectl; without it they fail with Go's error.
                ensure!(name == "kubectl", "{} is missing", binary.display());
                continue;
            }
            let script = format!(
                "#!/bin/sh\n[ \"$1\" = --help ] || echo {name} >> '{}'\nexec '{}' \"$@\"\n",
                folder.join("starts").display(),
                binary.display(),
            );
            let path = folder.join("bin").join(name);
            fs::write(&path, script)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        }
        Ok(Self { folder: folder.to_owned() })
    }

    /// Runs a package's test program.
    fn run(&self, suite: &Suite, options: Options<'_>) -> Result<Run> {
        let name = suite.name.replace('/', "-");
        let file = |end: &str| self.folder.join(name.clone() + end);
        let (log, report) = (file(".log"), file(".json"));
        // A report of an earlier run must not be read as this one's.
        if report.exists() {
            fs::remove_file(&report)?;
        }
        let starts = self.folder.join("starts");
        fs::write(&starts, "")?;
        let mut command = Command::new(&suite.program);
        command.args(["-test.v", "-test.timeout=60m"]).current_dir(&suite.folder);
        // Only programs with Ginkgo have its flags.
        let help = Command::new(&suite.program).arg("-h").output().context("ask for the flags")?;
        let help = [help.stdout, help.stderr].concat();
        let has_specs = String::from_utf8_lossy(&help).contains("ginkgo.json-report");
        if has_specs {
            command.args(["--ginkgo.no-color", "--ginkgo.timeout=60m"]);
            command.arg(format!("--ginkgo.json-report={}", report.display()));
            command.args(options.label_filter.map(|it| format!("--ginkgo.label-filter={it}")));
        }
        if let Some(run) = options.failures_of {
            command.args(only(run, has_specs));
        }
        command.env("KUBEBUILDER_ASSETS", self.folder.join("bin"));
        command.env("XDG_CACHE_HOME", self.folder.join("cache"));
        let output = fs::File::create(&log).context("make a log")?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        #[expect(clippy::disallowed_methods, reason = "real time is measured")]
        let begin = Instant::now();
        let status = command.status().with_context(|| format!("start {name}"))?;
        let mut run = Run { wall: begin.elapsed(), ..Run::default() };
        let starts = fs::read_to_string(&starts)?;
        run.n_starts = starts.lines().filter(|line| *line == BINARIES[0]).count();
        run.tests(&String::from_utf8_lossy(&fs::read(&log)?));
        if has_specs && report.exists() {
            run.specs(&report)?;
        }
        if !status.success() && run.failures.is_empty() {
            run.failures.push((WHOLE.to_owned(), status.to_string()));
        }
        Ok(run)
    }
}

/// The flags that leave out what passed, unless something outside of specs and tests failed.
fn only(run: &Run, has_specs: bool) -> Vec<String> {
    let names: Vec<&str> = run.failures.iter().map(|(name, _)| &**name).collect();
    if names.iter().any(|name| [WHOLE, STEP].contains(name)) {
        return Vec::new();
    }
    let all = names.iter().map(|name| format!("{}$", regex_escaped(name)));
    let all = all.collect::<Vec<_>>().join("|");
    if all.len() > ARGUMENT_BYTES_MAX {
        return Vec::new();
    }
    let flag = if has_specs { "--ginkgo.focus" } else { "-test.run" };
    vec![format!("{flag}={all}")]
}

/// A name as a pattern of Go that matches it alone.
fn regex_escaped(name: &str) -> String {
    let mut pattern = String::new();
    for character in name.chars() {
        if r"\.+*?()|[]{}^$".contains(character) {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern
}

impl Run {
    /// Counts the top-level tests of Go in an output.
    fn tests(&mut self, output: &str) {
        for (outcome, test) in go_test::outcomes(output) {
            match outcome {
                "PASS" => self.tests.passed += 1,
                "SKIP" => self.tests.skipped += 1,
                "FAIL" => {
                    self.tests.failed += 1;
                    self.failures.push((test.to_owned(), "see its log".to_owned()));
                }
                _ => {}
            }
        }
    }

    /// Counts the specs of a report. A failed step around specs is a failure, too.
    fn specs(&mut self, report: &Path) -> Result<()> {
        for report in ginkgo::read(report)? {
            let (is_spec, name) = (report.is_spec(), report.name().trim().to_owned());
            let failed = match &*report.state {
                "passed" => {
                    self.specs.passed += usize::from(is_spec);
                    continue;
                }
                "skipped" | "pending" => {
                    self.specs.skipped += usize::from(is_spec);
                    continue;
                }
                _ => first_lines(&report.failure.unwrap_or_default().message),
            };
            self.specs.failed += usize::from(is_spec);
            self.failures.push((if is_spec { name } else { STEP.to_owned() }, failed));
        }
        Ok(())
    }

    fn show(&self, name: &str) {
        println!(
            "{name}: {} specs passed, {} failed; {} tests passed, {} failed; {:.1} s, {} starts",
            self.specs.passed,
            self.specs.failed,
            self.tests.passed,
            self.tests.failed,
            self.wall.as_secs_f64(),
            self.n_starts
        );
        for (name, message) in &self.failures {
            println!("    failed: {name}\n        {message}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Count, Run};

    #[test]
    fn tests_of_go_are_counted_without_their_parts() {
        let output = "=== RUN TestA\n    --- PASS: TestA/x (0.00s)\n--- PASS: TestA (0.00s)\n\
                      --- FAIL: TestB (0.10s)\n--- SKIP: TestC (0.00s)\nFAIL\n";
        let mut run = Run::default();
        run.tests(output);
        assert_eq!(run.tests, Count { passed: 1, failed: 1, skipped: 1 });
        assert_eq!(run.failures, [("TestB".to_owned(), "see its log".to_owned())]);
    }
}
