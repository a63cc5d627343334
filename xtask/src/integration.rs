//! `cargo xtask integration`: runs Kubernetes' integration tests against `setpoint envtest serve`,
//! and renews the rows of `docs/integration.md`.
//!
//! Those tests start a kube-apiserver in their own process. They are compiled within Kubernetes'
//! source, with files of ours in the place of those that start it: they turn the options of a test
//! into flags, and start the program over an etcd that all of them share. Each test runs in a
//! process of its own, so that one that ends the process ends no other.

mod page;

use crate::go_test::{outcomes, parts};
use crate::laid_over::Source;
use crate::program;
use crate::servers::start_etcd;
use anyhow::{Context, Result, ensure};
use page::Page;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Our files, and their places in Kubernetes' source.
const LAID_OVER: [(&str, &str); 7] = [
    (
        "xtask/src/integration/server.go",
        "staging/src/k8s.io/component-base/setpointserver/server.go",
    ),
    ("xtask/src/integration/kube_apiserver.go", "cmd/kube-apiserver/app/testing/testserver.go"),
    ("xtask/src/integration/framework.go", "test/integration/framework/test_server.go"),
    ("xtask/src/integration/hooks.go", "test/integration/framework/hooks.go"),
    ("xtask/src/integration/goleak.go", "test/integration/framework/goleak.go"),
    ("xtask/src/integration/etcd.go", "test/integration/etcd/setpoint.go"),
    (
        "xtask/src/integration/extensions.go",
        "staging/src/k8s.io/apiextensions-apiserver/pkg/cmd/server/testing/testserver.go",
    ),
];

/// A file of which one of our files replaces a function, and how that function begins.
const REPLACED: (&str, &str) = ("test/integration/etcd/server.go", "func StartRealAPIServerOrDie(");
/// A test that takes longer ends as a failure. The longest ones of the original take minutes.
const TEST_TIMEOUT: &str = "10m";
/// The variable in which the tests find an etcd.
const ETCD: &str = "KUBE_INTEGRATION_ETCD_URL";
/// What our files print for each server that they start.
const STARTED: &str = " envtest serve ";

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    source: Source,
    /// The program `etcd`.
    #[arg(long, default_value = "etcd")]
    etcd: PathBuf,
    /// The built program (default: builds `setpoint` without optimization).
    #[arg(long)]
    program: Option<PathBuf>,
    /// Runs only packages whose paths contain one of these, or end with it if it ends with `$`. The
    /// page keeps the rows of others.
    #[arg(long)]
    package: Vec<String>,
    /// Runs only packages that have no row in the page.
    #[arg(long)]
    missing: bool,
    /// Runs only tests whose names contain this, prints the outcome, and leaves the page alone.
    #[arg(long)]
    test: Option<String>,
    /// Begins no further package after so many minutes. With 0, only the causes in the page are
    /// renewed.
    #[arg(long)]
    minutes: Option<u64>,
    /// The folder for programs and logs (default: a new one below the system's).
    #[arg(long)]
    work: Option<PathBuf>,
}

/// What became of a test.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    Passed,
    /// With the last that it said.
    Failed(String),
    Skipped,
    /// It passed, and started no server.
    Alone,
}

/// A test's run.
#[derive(Debug)]
struct Test {
    name: String,
    outcome: Outcome,
    n_parts_passed: usize,
    n_parts_failed: usize,
}

/// A package's run.
#[derive(Debug)]
struct Package {
    /// Its path below the source.
    name: String,
    tests: Vec<Test>,
    wall: Duration,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let program = match &args.program {
        Some(program) => program.canonicalize().context("no such program")?,
        None => program::build("dev")?,
    };
    let own = || std::env::temp_dir().join(format!("setpoint-integration-{}", std::process::id()));
    let work = args.work.clone().unwrap_or_else(own);
    fs::create_dir_all(work.join("servers")).context("make the folder")?;
    let work = work.canonicalize()?;
    let (_etcd, etcd) = start_etcd(&args.etcd, &work)?;
    println!("logs in {}", work.display());
    let lines = include_str!("integration/packages.txt").lines();
    let all: Vec<_> = lines.filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
    #[expect(clippy::disallowed_methods, reason = "the chore has a bound in real time")]
    let begin = Instant::now();
    let is_late =
        || args.minutes.is_some_and(|minutes| begin.elapsed() >= Duration::from_secs(60 * minutes));
    let before = Page::load()?;
    for name in all.iter().filter(|name| args.wants(name, &before)) {
        if is_late() {
            break;
        }
        let suite = Suite::build(&args.source, name, &work)?;
        let package = suite.run(&program, &etcd, args.test.as_deref().unwrap_or_default())?;
        package.show();
        if args.test.is_none() {
            // Read again: another run may have renewed other rows.
            let mut page = Page::load()?;
            page.put(&package)?;
            page.store(&all)?;
        }
    }
    if args.test.is_none() {
        Page::load()?.store(&all)?;
    }
    Ok(())
}

impl Args {
    /// Whether a package is run.
    fn wants(&self, package: &str, page: &Page) -> bool {
        let is_meant = |part: &String| match part.strip_suffix('$') {
            Some(end) => package.ends_with(end),
            None => package.contains(part),
        };
        let is_named = self.package.is_empty() || self.package.iter().any(is_meant);
        is_named && !(self.missing && page.has(package))
    }
}

/// A package's built tests.
#[derive(Debug)]
struct Suite<'a> {
    name: &'a str,
    program: PathBuf,
    folder: PathBuf,
    work: &'a Path,
}

impl<'a> Suite<'a> {
    fn build(source: &Source, name: &'a str, work: &'a Path) -> Result<Self> {
        let program = work.join(name.replace('/', "-") + ".test");
        let (place, function) = REPLACED;
        let text = fs::read_to_string(source.folder()?.join(place)).context(place)?;
        let without = work.join("replaced.go");
        fs::write(&without, text.replacen(function, "func startOriginal(", 1))?;
        let without = without.to_str().context("the path is no text")?;
        let files = [&LAID_OVER[..], &[(without, place)]].concat();
        source.build_tests(&package(name), &files, &program)?;
        Ok(Self { name, program, folder: source.folder()?.join(name), work })
    }

    /// Runs the tests whose names contain a word, and removes the program.
    fn run(&self, server: &Path, etcd: &str, word: &str) -> Result<Package> {
        // Without an etcd, some start one even for a list.
        let mut list = Command::new(&self.program);
        list.args(["-test.list", "."]).env(ETCD, etcd).current_dir(&self.folder);
        let list = list.output().context("list the tests")?;
        ensure!(list.status.success(), "{}: no list of its tests", self.name);
        let list = String::from_utf8_lossy(&list.stdout).into_owned();
        #[expect(clippy::disallowed_methods, reason = "real time is measured")]
        let begin = Instant::now();
        let mut tests = Vec::new();
        for name in list.lines().filter(|name| name.starts_with("Test") && name.contains(word)) {
            tests.push(self.run_test(name, server, etcd)?);
        }
        fs::remove_file(&self.program)?;
        Ok(Package { name: self.name.to_owned(), tests, wall: begin.elapsed() })
    }

    fn run_test(&self, name: &str, server: &Path, etcd: &str) -> Result<Test> {
        let log = self.work.join(format!("{}-{name}.log", self.name.replace('/', "-")));
        let file = fs::File::create(&log).context("make a log")?;
        let mut command = Command::new(&self.program);
        command.args(["-test.v", "-test.timeout", TEST_TIMEOUT, "-test.run"]);
        command.arg(format!("^{name}$")).current_dir(&self.folder);
        command.env("SETPOINT_PROGRAM", server).env("SETPOINT_LOGS", self.work.join("servers"));
        command.env(ETCD, etcd);
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        command.status().with_context(|| format!("start the tests of {}", self.name))?;
        Ok(Test::read(name, &String::from_utf8_lossy(&fs::read(&log)?)))
    }
}

/// The import path of a folder below the source.
fn package(folder: &str) -> String {
    let staging = folder.strip_prefix("staging/src/");
    staging.map_or_else(|| format!("k8s.io/kubernetes/{folder}"), str::to_owned)
}

impl Test {
    /// Reads what a test printed.
    fn read(name: &str, output: &str) -> Self {
        let outcome = outcomes(output).find(|(_, test)| *test == name).map(|(outcome, _)| outcome);
        let outcome = match outcome {
            Some("PASS") if output.contains(STARTED) => Outcome::Passed,
            Some("PASS") => Outcome::Alone,
            Some("SKIP") => Outcome::Skipped,
            _ => Outcome::Failed(last_said(output)),
        };
        let count = |wanted| parts(output).filter(|(outcome, _)| *outcome == wanted).count();
        Self {
            name: name.to_owned(),
            outcome,
            n_parts_passed: count("PASS"),
            n_parts_failed: count("FAIL"),
        }
    }
}

/// The last line that the test itself wrote, or why its process ended.
fn last_said(output: &str) -> String {
    let panic = output.lines().find(|line| line.starts_with("panic: "));
    // Of a library of assertions, whose first line has only a place.
    let asserted = output.lines().find_map(|line| line.trim().strip_prefix("Error:"));
    let own = output.lines().rfind(|line| line.contains("_test.go:"));
    let said = panic.or(asserted).or(own);
    said.map_or_else(|| "see its log".to_owned(), |line| line.trim().to_owned())
}

impl Package {
    /// How many tests have an outcome.
    fn count(&self, is: impl Fn(&Outcome) -> bool) -> usize {
        self.tests.iter().filter(|test| is(&test.outcome)).count()
    }

    fn show(&self) {
        println!(
            "{}: {} passed, {} failed; {:.1} s",
            self.name,
            self.count(|outcome| *outcome == Outcome::Passed),
            self.count(|outcome| matches!(outcome, Outcome::Failed(_))),
            self.wall.as_secs_f64()
        );
        for test in &self.tests {
            if let Outcome::Failed(said) = &test.outcome {
                println!("    failed: {}\n        {said}", test.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Outcome, Test, package};

    #[test]
    fn folders_have_import_paths() {
        assert_eq!(package("test/integration/auth"), "k8s.io/kubernetes/test/integration/auth");
        assert_eq!(package("staging/src/k8s.io/a/test"), "k8s.io/a/test");
    }

    #[test]
    fn a_test_without_a_server_is_not_counted_and_a_panic_is_a_failure() {
        let read = |output: &str| Test::read("TestA", output).outcome;
        let started = "    server.go:90: setpoint envtest serve --x; its log is y\n";
        assert_eq!(read(&format!("{started}--- PASS: TestA (0.1s)\nPASS\n")), Outcome::Passed);
        assert_eq!(read("--- PASS: TestA (0.1s)\nPASS\n"), Outcome::Alone);
        let said = "    a_test.go:7: expected 1\n--- FAIL: TestA (0.1s)\n";
        assert_eq!(read(said), Outcome::Failed("a_test.go:7: expected 1".to_owned()));
        let asserted = "    a_test.go:7: \n\tError Trace:\t/a_test.go:7\n\tError:      \tAn error\n--- FAIL: TestA\n";
        assert_eq!(read(asserted), Outcome::Failed("An error".to_owned()));
        let panics = "    a_test.go:7: begins\npanic: test timed out\n";
        assert_eq!(read(panics), Outcome::Failed("panic: test timed out".to_owned()));
    }
}
