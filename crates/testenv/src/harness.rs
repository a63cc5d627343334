//! The runtime part of `#[setpoint::test]`.

use crate::TestEnv;
use futures::future::LocalBoxFuture;
use setpoint_object::error::chain;

/// The arguments of the attribute.
#[derive(Debug, Clone, Copy)]
pub struct TestSettings {
    /// The test's name with its module.
    pub name: &'static str,
    /// The package of the test.
    pub package: &'static str,
    /// Whether to use the wall clock instead of virtual time.
    pub real_time: bool,
    /// The first seed.
    pub seed: u64,
    /// The number of seeds.
    pub seeds: u64,
}

/// The return type of a test.
pub trait Outcome {
    /// Whether the test has failed.
    fn is_failure(&self) -> bool;
}

impl Outcome for () {
    fn is_failure(&self) -> bool {
        false
    }
}

impl<E> Outcome for Result<(), E> {
    fn is_failure(&self) -> bool {
        self.is_err()
    }
}

/// Prints how to replay a seed if the test fails with it.
struct Replay<'a> {
    settings: &'a TestSettings,
    seed: u64,
}

impl Replay<'_> {
    fn print(&self) {
        let TestSettings { name, package, real_time, .. } = self.settings;
        // The first part of a module path is the crate.
        let test = name.split_once("::").map_or(*name, |(_, test)| test);
        match real_time {
            true => eprintln!("run again: cargo test -p {package} {test}"),
            false => eprintln!("replay: SEED={} cargo test -p {package} {test}", self.seed),
        }
    }
}

impl Drop for Replay<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.print();
        }
    }
}

/// Runs a test with each of its seeds, each on its own runtime and control plane, and returns the
/// first failure.
///
/// # Panics
///
/// If the test panics, the environment does not start, or a manager fails; also if `SEED` is not a
/// number.
pub fn run_test<T: Outcome>(
    settings: TestSettings,
    test: impl for<'a> Fn(&'a TestEnv) -> LocalBoxFuture<'a, T>,
) -> T {
    let requested = std::env::var("SEED").ok();
    let requested = requested.map(|text| match text.parse::<u64>() {
        Ok(seed) => seed,
        Err(error) => panic!("SEED is {text:?}: {error}"),
    });
    let seeds = match requested {
        _ if settings.real_time => settings.seed..settings.seed + 1,
        Some(seed) => seed..seed + 1,
        None => settings.seed..settings.seed + settings.seeds.max(1),
    };
    let last = seeds.end - 1;
    for seed in seeds {
        let replay = Replay { settings: &settings, seed };
        let outcome = run_once(&settings, seed, &test);
        if outcome.is_failure() {
            replay.print();
            return outcome;
        }
        if seed == last {
            return outcome;
        }
    }
    unreachable!("there is at least one seed")
}

fn run_once<T: Outcome>(
    settings: &TestSettings,
    seed: u64,
    test: &impl for<'a> Fn(&'a TestEnv) -> LocalBoxFuture<'a, T>,
) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(!settings.real_time)
        .build();
    let runtime = runtime.unwrap_or_else(|error| panic!("build a runtime: {error}"));
    runtime.block_on(async {
        let builder = match settings.real_time {
            true => TestEnv::builder(),
            false => TestEnv::builder().simulated(seed),
        };
        let started = builder.start().await;
        let env = started.unwrap_or_else(|error| panic!("start: {}", chain(&error)));
        let outcome = test(&env).await;
        if outcome.is_failure() {
            eprintln!("timeline:\n{}", env.timeline());
            return outcome;
        }
        if let Err(error) = env.stop().await {
            panic!("{}", chain(&error));
        }
        outcome
    })
}
