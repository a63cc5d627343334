//! One play of a scenario.

use super::patient::patient;
use super::state;
use super::{Life, Plan, Scenario};
use crate::wire::{Trace, Wire};
use crate::{TestEnv, Timeline};
use kube_client::Client;
use serde_json::Value;
use setpoint_object::error::chain;
use setpoint_object::time::{Clock, Timestamp};
use setpoint_store::MemoryStore;
use setpoint_store::fault::{FaultStore, Faults};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long a killed process stays down.
const RESTART_PAUSE: Duration = Duration::from_secs(1);
/// How long the users of a scenario wait. Every fault of a storm may double the back-off of one
/// key, up to 1000 s: its passes can meet all of them in a row.
const PATIENCE: Duration = Duration::from_secs(45_000);
/// How long a play continues after the scenario is complete. A watch whose requests have failed
/// waits for up to a minute, may then learn that its revision is too old, and waits as long again
/// before it lists.
const AFTERWARDS: Duration = Duration::from_secs(150);

/// The result of a play.
pub(super) struct Played {
    /// The final objects, normalized, by key.
    pub objects: BTreeMap<String, Value>,
    /// The final outside state.
    pub outside: Value,
    /// Every request and watch frame.
    pub trace: String,
    pub timeline: Timeline,
    /// Number of write requests of the process.
    pub n_writes: usize,
    /// Number of requests it made after the scenario was complete.
    pub n_afterwards: usize,
}

impl Played {
    /// The first difference between two plays of one plan, which must not differ.
    pub(super) fn difference(&self, again: &Self) -> Option<String> {
        let first = first_difference(&self.trace, &again.trace).map(|found| ("trace", found));
        let timelines =
            || first_difference(&self.timeline.to_string(), &again.timeline.to_string());
        let first = first.or_else(|| timelines().map(|found| ("timeline", found)));
        first.map(|(what, (n, one, other))| {
            format!(
                "the scenario is not deterministic; line {n} of the {what} was\n{one}\nand then\n{other}"
            )
        })
    }
}

/// The first line in which two texts differ: its number from 0, and the line in both. The shorter
/// text may lack it.
fn first_difference(one: &str, other: &str) -> Option<(usize, String, String)> {
    let n = one.lines().zip(other.lines()).take_while(|(one, other)| one == other).count();
    let (one, other) = (one.lines().nth(n), other.lines().nth(n));
    let text = |line: Option<&str>| line.unwrap_or("(its end)").to_owned();
    (one != other).then(|| (n, text(one), text(other)))
}

/// Plays a scenario in virtual time.
pub(super) fn play<S: Scenario>(scenario: &S, plan: Plan, is_shown: bool) -> Played {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let runtime = runtime.unwrap_or_else(|error| panic!("build a runtime: {error}"));
    runtime.block_on(async {
        let trace = Trace::new(is_shown);
        let store = FaultStore::new(MemoryStore::default(), Faults::default(), plan.seed);
        let builder = TestEnv::builder()
            .simulated(plan.seed)
            .patience(PATIENCE)
            .store(Arc::new(store.clone()))
            .definitions(scenario.definitions())
            .control_plane(|builder| scenario.control_plane(builder));
        let started = builder.start().await;
        let mut env = started.unwrap_or_else(|error| panic!("start: {}", chain(&error)));
        let direct = env.client();
        let user = Wire::clean(direct.clone(), "user", trace.clone());
        env.replace_client(patient(user.client()));
        let world = scenario.world();
        let process = Process {
            wire: Wire::new(direct, "process", trace.clone(), plan.faults(), plan.crash),
            trace: trace.clone(),
            plan,
            stop: CancellationToken::new(),
        };

        let chance = plan.store_chance;
        let faults = Faults { unavailable: chance, answer_lost: chance, feed_broken: chance };
        let acting = async {
            store.set_faults(faults);
            scenario.drive(&env, &world).await;
            store.set_faults(Faults::default());
            process.wire.stop_faults();
            let n_requests = process.wire.n_requests();
            tokio::time::sleep(AFTERWARDS).await;
            let n_afterwards = process.wire.n_requests() - n_requests;
            process.stop.cancel();
            n_afterwards
        };
        let living = process.live(scenario, &world, env.clock());
        let (n_afterwards, ()) = tokio::join!(acting, living);
        let objects = state::of(&**env.store()).await;
        let objects = objects.unwrap_or_else(|error| panic!("read the end: {}", chain(&error)));
        let timeline = env.timeline().clone();
        let outside = scenario.outside(&world);
        if let Err(error) = env.stop().await {
            panic!("{}", chain(&error));
        }
        let n_writes = process.wire.n_writes();
        Played { objects, outside, trace: trace.text(), timeline, n_writes, n_afterwards }
    })
}

/// The process under test over all its lives.
struct Process {
    wire: Wire,
    trace: Trace,
    plan: Plan,
    stop: CancellationToken,
}

impl Process {
    async fn live<S: Scenario>(&self, scenario: &S, world: &S::World, clock: &Clock) {
        for number in 1.. {
            let life = self.life(self.wire.client(), clock, number);
            tokio::select! {
                biased;
                () = self.wire.crashed() => {}
                ended = scenario.live(life, world.clone()) => match ended {
                    Ok(()) if self.stop.is_cancelled() => return,
                    Ok(()) => self.trace.line("process ends by itself"),
                    Err(error) => {
                        self.trace.line(format_args!("process fails: {}", chain(&*error)));
                    }
                },
            }
            if self.stop.is_cancelled() {
                return;
            }
            tokio::time::sleep(RESTART_PAUSE).await;
        }
    }

    fn life(&self, client: Client, clock: &Clock, number: usize) -> Life {
        let base = Timestamp(self.plan.skewed(clock.now().0));
        Life {
            client,
            clock: Clock::starting_at(base),
            // A new seed for each life: a process that restarts does not repeat its random numbers.
            seed: self.plan.seed.wrapping_mul(1_000).wrapping_add(number as u64),
            number,
            stop: self.stop.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::first_difference;

    #[test]
    fn first_line_that_differs_is_found_also_behind_the_end() {
        let found = |one, other| first_difference(one, other).map(|(n, ..)| n);
        assert_eq!(found("a\nb", "a\nb"), None);
        assert_eq!(found("a\nb\nc", "a\nx\nc"), Some(1));
        assert_eq!(found("a", "a\nb"), Some(1));
        assert_eq!(found("a\nb", "a"), Some(1));
    }
}
