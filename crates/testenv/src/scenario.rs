//! Runs a user's controller through crashes and faults: many plays of one scenario.
//!
//! # Theory
//!
//! A level-triggered controller must converge: wherever it is stopped and whatever faults it meets,
//! the objects must reach the same final state as without faults. [`check`] verifies that.
//!
//! | step | action |
//! |---|---|
//! | 1 | The scenario is played twice without faults. Both plays must make the same requests; otherwise the scenario is not deterministic and cannot be replayed. |
//! | 2 | The scenario is played with each [`Plan`]: the process is killed at its n-th write and restarts a second later; requests and watches meet faults; the store fails; clocks differ. Plans in which the store fails are played twice, as the first one. |
//! | 3 | Every play must end in time, with the same objects as the first, and become quiet: a process that keeps sending requests has a loop without back-off. |
//!
//! A play is a function of its plan. A failure prints the plan; the environment variable `PLAN`
//! plays that plan alone, twice, with each request on standard error.
//!
//! A search plays more plans than a test has time for:
//!
//! | variable | effect |
//! |---|---|
//! | `SEEDS=1000` | a crash before and after every write, and this many storms. A failed play does not end the search |
//! | `SEEDS_FROM=85` | begins with this storm, and after as many crashes, where an earlier search has ended. `test=85,…` for some tests of a program |
//! | `SEEDS_TIME=600` | ends the search after this many seconds |
//! | `SEEDS_REPORT=file` | appends a line of JSON to the file: what was played, and the plans that failed |
//!
//! The comparison ignores what differs between any two plays: uids, versions, generations, field
//! ownership, times. Events and Leases are ignored too. An object with a generated name is
//! identified by its prefix, also where other objects have its name as a text or as a part of
//! `namespace/name`.

mod patient;
mod plan;
mod play;
mod search;
mod state;

pub use plan::{ParsePlanError, Plan, Plans};

use crate::TestEnv;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_client::Client;
use play::Played;
use search::Search;
use serde_json::Value;
use setpoint_control_plane::ControlPlaneBuilder;
use setpoint_object::time::Clock;
use setpoint_runtime::{BoxError, Manager, ManagerBuilder};
use std::fmt;
use tokio_util::sync::CancellationToken;

/// Number of trace lines, from the end, that are printed for a failed play.
const TRACE_LINES_SHOWN: usize = 120;

/// The scenario to play.
pub trait Scenario {
    /// State outside of the cluster, shared by all lives of the process: a folder, a scripted back
    /// end. `()` if there is none.
    type World: Clone;

    /// Creates the outside state of one play.
    fn world(&self) -> Self::World;

    /// One life of the process: the work of its `main`, until `life.stop`. A crash drops the future
    /// at its current await point, so the future must own everything that it starts: a detached
    /// task would survive. If it returns an error, the process is restarted as after a crash.
    fn live(&self, life: Life, world: Self::World) -> impl Future<Output = Result<(), BoxError>>;

    /// The actions of users, and their waits. Returns when the scenario is complete. Its client
    /// retries when a server fails.
    fn drive(&self, env: &TestEnv, world: &Self::World) -> impl Future<Output = ()>;

    /// The outside state that must be the same at the end of every play, in addition to the
    /// objects. Default: none.
    fn outside(&self, world: &Self::World) -> Value {
        let _ = world;
        Value::Null
    }

    /// Definitions that are installed at the start. Default: none.
    fn definitions(&self) -> Vec<CustomResourceDefinition> {
        Vec::new()
    }

    /// Changes the control plane, for example disables its built-in controllers. Default:
    /// unchanged.
    fn control_plane(&self, builder: ControlPlaneBuilder) -> ControlPlaneBuilder {
        builder
    }

    /// Maximum number of requests that the process may make in the 150 virtual seconds after the
    /// scenario is complete. Default: 40, which allows for a few watches that are renewed.
    fn requests_afterwards_max(&self) -> usize {
        40
    }
}

/// The inputs of one life of the process.
#[non_exhaustive]
pub struct Life {
    /// The client, with the faults of the plan. It stops working when this life ends.
    pub client: Client,
    /// The process's clock.
    pub clock: Clock,
    /// A seed for the randomness of this life.
    pub seed: u64,
    /// The number of this life, from 1.
    pub number: usize,
    /// Requests a graceful stop.
    pub stop: CancellationToken,
}

impl fmt::Debug for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, number, .. } = self;
        f.debug_struct("Life").field("seed", seed).field("number", number).finish_non_exhaustive()
    }
}

impl Life {
    /// A builder for managers with this life's client, clock and seed.
    pub fn manager(&self) -> ManagerBuilder {
        Manager::builder(self.client.clone()).clock(self.clock.clone()).seed(self.seed)
    }
}

/// Plays a scenario with many plans, each on its own runtime in virtual time, and returns the
/// number of plays. With the environment variable `PLAN` it plays only that plan; with `SEEDS` it
/// searches.
///
/// # Panics
///
/// If a play fails: prints the plan, the difference and the end of the trace. Also if `PLAN` is not
/// a plan.
pub fn check<S: Scenario>(scenario: &S, plans: &Plans) -> usize {
    let clean = Plan::clean(plans.first_seed());
    let first = play::play(scenario, clean, false);
    if let Some(fault) = first.difference(&play::play(scenario, clean, false)) {
        panic!("{fault}");
    }
    let requested = std::env::var("PLAN").ok().map(|text| match text.parse::<Plan>() {
        Ok(plan) => plan,
        Err(error) => panic!("PLAN is {text:?}: {error}"),
    });
    if let (None, Some(search)) = (&requested, Search::requested()) {
        return search.run(scenario, plans, &first);
    }
    let (plans, is_shown) = match requested {
        Some(plan) => (vec![plan], true),
        None => (plans.of(first.n_writes), false),
    };
    for plan in &plans {
        let _failing = Failing(*plan);
        let played = play::play(scenario, *plan, is_shown);
        if is_shown || plan.is_played_twice() {
            let again = play::play(scenario, *plan, false);
            if let Some(fault) = played.difference(&again) {
                panic!("{fault}");
            }
        }
        if let Some(fault) = fault(scenario, &played, &first) {
            let n_lines = played.trace.lines().count();
            let skipped = n_lines.saturating_sub(TRACE_LINES_SHOWN);
            let end: Vec<&str> = played.trace.lines().skip(skipped).collect();
            panic!(
                "{fault}\ntimeline:\n{}trace, from line {skipped}:\n{}",
                played.timeline,
                end.join("\n")
            );
        }
    }
    plans.len()
}

/// Prints the plan of a play that panics.
struct Failing(Plan);

impl Drop for Failing {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("replay: PLAN='{}' cargo test … -- --nocapture", self.0);
        }
    }
}

/// Compares a play's end with the clean play; returns the first difference.
fn fault<S: Scenario>(scenario: &S, played: &Played, clean: &Played) -> Option<String> {
    let differences = state::differences(&clean.objects, &played.objects);
    if !differences.is_empty() {
        return Some(format!(
            "the final objects differ from those without faults:\n{}",
            differences.join("\n")
        ));
    }
    if played.outside != clean.outside {
        return Some(format!(
            "the outside state is\n{:#}\ninstead of\n{:#}",
            played.outside, clean.outside
        ));
    }
    let max = scenario.requests_afterwards_max();
    (played.n_afterwards > max)
        .then(|| format!("{} requests after the end, more than {max}", played.n_afterwards))
}
