//! `cargo xtask test`: runs all tests.
//!
//! First it installs the parts that real-client tests need. Then cargo tests the whole workspace
//! with the feature that adds those tests. `--unit` skips the first step and needs only a
//! toolchain.
//!
//! Property tests start from a fixed seed, so that the same code always passes or fails. `--seed`
//! sets another one, to search for failures.

use crate::cargo::cargo;
use crate::parts::Parts;
use anyhow::{Context, Result, bail};
use std::process::Command;

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
    let mut cargo = cargo();
    cargo.args(["test", "--workspace", "--no-fail-fast"]);
    cargo.env("PROPTEST_RNG_SEED", args.seed.to_string());
    if !args.unit {
        let parts = Parts::install()
            .context("the tests with real clients need a part that is not installed; `cargo xtask test --unit` runs the others")?;
        cargo.args([
            "--features",
            "setpoint-cli/real-clients,network/netns-tests,port-rule/netns-tests",
        ]);
        cargo.env("SETPOINT_TEST_KUBECTL", &parts.kubectl);
        cargo.env("SETPOINT_TEST_KUBECTL_OLD", &parts.kubectl_old);
        cargo.env("SETPOINT_TEST_PYTHON", &parts.python);
        cargo.env("SETPOINT_TEST_KOPF", &parts.kopf);
        cargo.env("SETPOINT_TEST_NEUTRON", &parts.neutron);
        cargo.env("SETPOINT_TEST_NODE_MODULES", &parts.node_modules);
        cargo.env("SETPOINT_TEST_GO_SUITE", &parts.go_suite);
        // Tests make the packages of the program that they test.
        cargo.env("SETPOINT_TEST_XTASK", std::env::current_exe()?);
        cargo.env("SETPOINT_TEST_ETCD", &parts.etcd);
        cargo.env("SETPOINT_TEST_ETCDCTL", &parts.etcdctl);
        cargo.env("SETPOINT_TEST_FIREWALL", &parts.firewall);
        cargo.env("SETPOINT_TEST_JUNIT", &parts.junit);
    }
    pass(cargo)?;
    pass(traces())
}

/// Tests the feature that no other crate enables: passes as OpenTelemetry spans.
fn traces() -> Command {
    let mut cargo = cargo();
    cargo.args(["test", "--package", "setpoint-runtime", "--features", "otel"]);
    cargo.args(["--test", "it", "telemetry"]);
    cargo
}

/// `cargo xtask tidy`: only the house rules and what holds the pages true, which are the tests of
/// this package.
pub(crate) fn tidy() -> Result<()> {
    let mut cargo = cargo();
    cargo.args(["test", "--package", "xtask"]);
    pass(cargo)
}

fn pass(mut cargo: Command) -> Result<()> {
    let status = cargo.status().context("cannot start cargo")?;
    if status.success() { Ok(()) } else { bail!("{cargo:?} failed") }
}
