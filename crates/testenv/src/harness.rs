//! What `#[setpoint::test]` expands to.

use crate::TestEnv;
use crate::env::chain;
use futures::future::LocalBoxFuture;

/// What the attribute says.
#[derive(Debug, Clone, Copy)]
pub struct TestSettings {
    /// The test's name with its module.
    pub name: &'static str,
    /// The package that the test belongs to.
    pub package: &'static str,
    /// The wall clock instead of virtual time.
    pub real_time: bool,
    /// The first seed.
    pub seed: u64,
    /// How many seeds.
    pub seeds: u64,
}

/// What a test may return.
pub trait Outcome {
    /// Whether the test has failed by it.
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

/// Says how to play a seed again, when the test fails with it.
struct Replay<'a> {
    settings: &'a TestSettings,
    seed: u64,
}

impl Replay<'_> {
    fn say(&self) {
        let TestSettings { name, package, real_time, .. } = self.settings;
        // The first part of a module's path is the crate.
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
            self.say();
        }
    }
}

/// Runs a test with each of its seeds, on a runtime and a control plane of its own, and returns
/// the first failure.
///
/// # Panics
///
/// When the test does, the environment does not start, or a manager ended badly; and when `SEED`
/// is no number.
pub fn run_test<T: Outcome>(
    settings: TestSettings,
    test: impl for<'a> Fn(&'a TestEnv) -> LocalBoxFuture<'a, T>,
) -> T {
    let asked = std::env::var("SEED").ok();
    let asked = asked.map(|text| match text.parse::<u64>() {
        Ok(seed) => seed,
        Err(error) => panic!("SEED is {text:?}: {error}"),
    });
    let seeds = match asked {
        _ if settings.real_time => settings.seed..settings.seed + 1,
        Some(seed) => seed..seed + 1,
        None => settings.seed..settings.seed + settings.seeds.max(1),
    };
    let last = seeds.end - 1;
    for seed in seeds {
        let replay = Replay { settings: &settings, seed };
        let outcome = run_once(&settings, seed, &test);
        if outcome.is_failure() {
            replay.say();
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
