//! A user's controller through crashes, faults and bad luck: many plays of one scenario.
//!
//! # Theory
//!
//! A level-triggered controller owes one thing: wherever it is stopped and whatever it was told,
//! the objects end where they would have ended without. [`check`] holds it to that.
//!
//! | step | what happens |
//! |---|---|
//! | 1 | The scenario is played without a fault, twice: both plays must pass the same requests, or it is not deterministic and nothing can be replayed. |
//! | 2 | It is played by each [`Plan`]: the process dies at its n-th write and starts again a second later; requests and watches meet faults; the store fails; clocks disagree. |
//! | 3 | Every play must end in time, in the same objects as the first, and quietly: a process that goes on asking has a loop without back-off. |
//!
//! A play is a function of its plan: a failure prints the plan, and the environment variable `PLAN`
//! plays that alone, with each request on standard error.
//!
//! Objects are compared without what two plays cannot agree on: uids, versions, generations,
//! field ownership, times. Events and Leases do not count. An object with a generated name is known
//! by its prefix.

mod patient;
mod plan;
mod play;
mod state;

pub use plan::{ParsePlanError, Plan, Plans};

use crate::TestEnv;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_client::Client;
use play::Played;
use serde_json::Value;
use setpoint_control_plane::ControlPlaneBuilder;
use setpoint_object::time::Clock;
use setpoint_runtime::{BoxError, Manager, ManagerBuilder};
use std::fmt;
use tokio_util::sync::CancellationToken;

/// How much of the trace of a play that failed is printed, in lines from its end.
const TRACE_LINES_SHOWN: usize = 120;

/// What is played.
pub trait Scenario {
    /// What a play has outside of the cluster, shared by all lives of the process: a folder, a
    /// scripted back end. `()` where there is nothing.
    type World: Clone;

    /// Makes the outside of one play.
    fn world(&self) -> Self::World;

    /// One life of the process: what its `main` would do, until `life.stop`. When it is killed, its
    /// future is dropped where it waits, and with it must go everything that it began: a task
    /// without an owner would live on. One that ends with an error is started again, as one that
    /// died.
    fn live(&self, life: Life, world: Self::World) -> impl Future<Output = Result<(), BoxError>>;

    /// What users do meanwhile, and wait for. It returns when nothing more is to happen. Its
    /// client asks again where a server fails.
    fn drive(&self, env: &TestEnv, world: &Self::World) -> impl Future<Output = ()>;

    /// What must be the same at the end of every play beside the objects, of the outside. Default:
    /// nothing.
    fn outside(&self, world: &Self::World) -> Value {
        let _ = world;
        Value::Null
    }

    /// Definitions that are served from the start. Default: none.
    fn definitions(&self) -> Vec<CustomResourceDefinition> {
        Vec::new()
    }

    /// Changes the control plane, for instance turns its built-in controllers off. Default: as it
    /// is.
    fn control_plane(&self, builder: ControlPlaneBuilder) -> ControlPlaneBuilder {
        builder
    }

    /// How many requests the process may make in the 70 virtual seconds after everything was done.
    /// Default: 40: each of a few watches is made anew now and then.
    fn requests_afterwards_max(&self) -> usize {
        40
    }
}

/// What one life of the process is given.
#[non_exhaustive]
pub struct Life {
    /// The client, through the faults of the plan. It is dead once this life is.
    pub client: Client,
    /// What the process takes for the time.
    pub clock: Clock,
    /// A seed for whatever is random in this life.
    pub seed: u64,
    /// Which life it is, from 1.
    pub number: usize,
    /// When to end politely.
    pub stop: CancellationToken,
}

impl fmt::Debug for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, number, .. } = self;
        f.debug_struct("Life").field("seed", seed).field("number", number).finish_non_exhaustive()
    }
}

impl Life {
    /// A builder of managers with this life's client, clock and seed.
    pub fn manager(&self) -> ManagerBuilder {
        Manager::builder(self.client.clone()).clock(self.clock.clone()).seed(self.seed)
    }
}

/// Plays a scenario by many plans, each on a runtime of its own in virtual time, and returns how
/// many were played. With the environment variable `PLAN` it plays that plan alone.
///
/// # Panics
///
/// When a play goes wrong: with the plan, what differs, and the end of the trace. Also when `PLAN`
/// is no plan.
pub fn check<S: Scenario>(scenario: &S, plans: &Plans) -> usize {
    let clean = Plan::clean(plans.first_seed());
    let first = play::play(scenario, clean, false);
    let again = play::play(scenario, clean, false);
    if let Some((n, (first, again))) =
        first.trace.lines().zip(again.trace.lines()).enumerate().find(|(_, (a, b))| a != b)
    {
        panic!(
            "the scenario is not deterministic; line {n} of the trace was\n{first}\nand then\n{again}"
        );
    }
    let asked = std::env::var("PLAN").ok().map(|text| match text.parse::<Plan>() {
        Ok(plan) => plan,
        Err(error) => panic!("PLAN is {text:?}: {error}"),
    });
    let (plans, is_shown) = match asked {
        Some(plan) => (vec![plan], true),
        None => (plans.of(first.n_writes), false),
    };
    for plan in &plans {
        let _failing = Failing(*plan);
        let played = play::play(scenario, *plan, is_shown);
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

/// Names the plan of a play that fails.
struct Failing(Plan);

impl Drop for Failing {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("replay: PLAN='{}' cargo test … -- --nocapture", self.0);
        }
    }
}

/// What is wrong with how a play ended, if anything.
fn fault<S: Scenario>(scenario: &S, played: &Played, clean: &Played) -> Option<String> {
    let differences = state::differences(&clean.objects, &played.objects);
    if !differences.is_empty() {
        return Some(format!("objects ended otherwise:\n{}", differences.join("\n")));
    }
    if played.outside != clean.outside {
        return Some(format!(
            "the outside ended as\n{:#}\nrather than\n{:#}",
            played.outside, clean.outside
        ));
    }
    let max = scenario.requests_afterwards_max();
    (played.n_afterwards > max)
        .then(|| format!("{} requests after the end, more than {max}", played.n_afterwards))
}
