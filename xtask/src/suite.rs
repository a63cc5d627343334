//! `cargo xtask test`: every test there is.
//!
//! First the parts that real-client tests need are installed, then cargo runs the whole workspace
//! with the feature that adds those tests; last, the simulations are tried on rules that are broken
//! on purpose. `--unit` leaves both out and needs nothing but a toolchain.
//!
//! Property tests start from one seed, so that the same code passes or fails each time; `--seed`
//! gives another, to search.

use crate::parts::Parts;
use anyhow::{Context, Result, bail};
use std::process::Command;

/// What to leave out.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only what needs nothing beside a Rust toolchain: no real clients.
    #[arg(long)]
    unit: bool,
    /// Where property tests start.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--workspace", "--no-fail-fast"]);
    cargo.env("PROPTEST_RNG_SEED", args.seed.to_string());
    if !args.unit {
        let parts = Parts::install()
            .context("the tests with real clients need a part that is not here; `cargo xtask test --unit` runs the others")?;
        cargo.args(["--features", "setpoint-cli/real-clients,network/netns-tests"]);
        cargo.env("SETPOINT_TEST_KUBECTL", &parts.kubectl);
        cargo.env("SETPOINT_TEST_KUBECTL_OLD", &parts.kubectl_old);
        cargo.env("SETPOINT_TEST_PYTHON", &parts.python);
        cargo.env("SETPOINT_TEST_ETCD", &parts.etcd);
        cargo.env("SETPOINT_TEST_ETCDCTL", &parts.etcdctl);
    }
    pass(cargo)?;
    pass(traces())?;
    pass(mutations("setpoint-informer"))?;
    pass(mutations("setpoint"))
}

/// The feature that no other crate turns on: passes as spans of OpenTelemetry.
fn traces() -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--package", "setpoint-runtime", "--features", "otel"]);
    cargo.args(["--test", "it", "telemetry"]);
    cargo
}

/// A simulation's test of itself: informers, or controllers, that break one rule each, in a build
/// of their own.
fn mutations(package: &str) -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--package", package, "--features", "broken-rules"]);
    cargo.args(["--test", "simulation", "mutations"]);
    cargo
}

/// `cargo xtask tidy`: the house rules alone.
pub(crate) fn tidy() -> Result<()> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--package", "xtask", "tidy"]);
    pass(cargo)
}

fn pass(mut cargo: Command) -> Result<()> {
    let status = cargo.status().context("cannot start cargo")?;
    if status.success() { Ok(()) } else { bail!("{cargo:?} failed") }
}
