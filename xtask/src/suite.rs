//! `cargo xtask test`: runs all tests.
//!
//! First it installs the parts that real-client tests need, while cargo builds the tests. Then
//! cargo tests the whole workspace with the feature that adds those tests. `--unit` leaves them
//! out and needs only a toolchain.
//!
//! Property tests start from a fixed seed, so that the same code always passes or fails. `--seed`
//! sets another one, to search for failures. What failed is said again at the end.

mod failures;

use crate::cargo::cargo;
use crate::parts::Parts;
use anyhow::{Context, Result, bail};
use failures::Failures;
use std::io::{BufRead, BufReader};
use std::num::NonZero;
use std::process::{Command, Stdio};

/// How many tests of a program run at once.
const THREADS: &str = "RUST_TEST_THREADS";
/// Tests with other programs wait for them half of the time.
const THREADS_PER_CORE: usize = 2;

/// Options.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Skip real clients: only tests that need nothing but a Rust toolchain.
    #[arg(long)]
    unit: bool,
    /// First seed of property tests.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    // With the façade's features, or no test would see those that no other crate enables.
    let mut features = String::from("setpoint/full");
    if !args.unit {
        features.push_str(",setpoint-cli/real-clients,network/netns-tests,port-rule/netns-tests");
    }
    let mut tests = tests_of_all(&features);
    tests.arg("--no-fail-fast");
    tests.env("PROPTEST_RNG_SEED", args.seed.to_string());
    if std::env::var_os(THREADS).is_none() {
        let n_cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        tests.env(THREADS, (THREADS_PER_CORE * n_cores).to_string());
    }
    if !args.unit {
        let parts = while_built(&features, || {
            Parts::install().context("the tests with real clients need a part that is not installed; `cargo xtask test --unit` runs the others")
        })?;
        tests.env("SETPOINT_TEST_KUBECTL", &parts.kubectl);
        tests.env("SETPOINT_TEST_KUBECTL_OLD", &parts.kubectl_old);
        tests.env("SETPOINT_TEST_HELM", &parts.helm);
        tests.env("SETPOINT_TEST_HELM_3", &parts.helm_3);
        tests.env("SETPOINT_TEST_PYTHON", &parts.python);
        tests.env("SETPOINT_TEST_PYTHON_OTHERS", &parts.python_others);
        tests.env("SETPOINT_TEST_KOPF", &parts.kopf);
        tests.env("SETPOINT_TEST_NEUTRON", &parts.neutron);
        tests.env("SETPOINT_TEST_NODE_MODULES", &parts.node_modules);
        tests.env("SETPOINT_TEST_GO_SUITE", &parts.go_suite);
        // Tests make the packages of the program that they test.
        tests.env("SETPOINT_TEST_XTASK", std::env::current_exe()?);
        tests.env("SETPOINT_TEST_ETCD", &parts.etcd);
        tests.env("SETPOINT_TEST_ETCDCTL", &parts.etcdctl);
        tests.env("SETPOINT_TEST_FIREWALL", &parts.firewall);
        tests.env("SETPOINT_TEST_JUNIT", &parts.junit);
    }
    pass(tests)
}

/// Does what mostly waits for downloads while cargo builds the tests.
///
/// # Errors
///
/// Those of `work`, which end the build at once, and tests that do not build.
fn while_built<T>(features: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let mut build = tests_of_all(features);
    build.arg("--no-run");
    let mut building = build.spawn().context("cannot start cargo")?;
    let done = work();
    if done.is_err() {
        // It may have ended by itself.
        let _ = building.kill();
    }
    let status = building.wait().context("cannot wait for cargo")?;
    let done = done?;
    if status.success() { Ok(done) } else { bail!("{build:?} failed") }
}

fn tests_of_all(features: &str) -> Command {
    let mut cargo = cargo();
    cargo.args(["test", "--workspace", "--features", features]);
    cargo
}

/// `cargo xtask tidy`: only the house rules and what holds the pages true, which are the tests of
/// this package.
pub(crate) fn tidy() -> Result<()> {
    let mut cargo = cargo();
    cargo.args(["test", "--package", "xtask"]);
    pass(cargo)
}

/// Runs tests, prints what they print, and what failed once more at the end.
fn pass(mut cargo: Command) -> Result<()> {
    let mut running = cargo.stdout(Stdio::piped()).spawn().context("cannot start cargo")?;
    let mut failures = Failures::default();
    if let Some(output) = running.stdout.take() {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        while output.read_until(b'\n', &mut line).context("cannot read what the tests print")? > 0 {
            let text = String::from_utf8_lossy(&line);
            print!("{text}");
            failures.take(text.trim_end_matches(['\r', '\n']));
            line.clear();
        }
    }
    let status = running.wait().context("cannot wait for cargo")?;
    if status.success() {
        return Ok(());
    }
    println!("{failures}");
    bail!("the tests failed")
}
