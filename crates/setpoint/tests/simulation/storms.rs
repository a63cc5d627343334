//! The reference controller under all faults at once. In the end every key is in the expected state
//! and was seen in its newest version, no key was processed by two replicas at once, nothing was
//! retried too often, and nothing is left over.

use crate::harness::{Faults, Replay, Setting, Started, Tally, World, maps, seeds};
use crate::reference::{Seen, Temper, converge, define_networks, manager, network, networks};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use setpoint::runtime::{ManagerError, manager::GRACE_PERIOD};
use setpoint::store::fault;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Number of seeds, unless `SEEDS` is set.
const SEEDS: u64 = 150;
/// Number of events in one storm.
const ACTS: usize = 30;
/// Longer than two of the longest back-offs, 1000 s each.
const QUIET: Duration = Duration::from_secs(2500);
/// Maximum lag of a watch at the storm's end, including a hung connection.
const SETTLED: Duration = Duration::from_secs(30);
/// How often each fault and each action must have happened over all seeds.
const SEEN_MIN: u64 = 5;
const NAMES: &[&str] = &["a", "b", "c", "d", "e"];

type Ended = Started<Result<(), ManagerError>>;

/// A process with a manager, and its stop token.
struct Life {
    process: Ended,
    stop: CancellationToken,
}

/// One storm.
struct Storm {
    world: World,
    rng: SmallRng,
    seen: Seen,
    temper: Temper,
    life: Life,
    n_lives: u64,
    tally: Tally,
}

fn begin(world: &mut World, seen: &Seen, temper: Temper) -> Life {
    let stop = CancellationToken::new();
    let (seen, asked) = (seen.clone(), stop.clone());
    let process = world.start("manager", move |ground| async move {
        let manager = manager(&ground, &seen, temper);
        manager.run(asked).await
    });
    Life { process, stop }
}

impl Storm {
    fn new(seed: u64) -> Self {
        let mut world = World::new(Setting::of(seed));
        define_networks(&mut world);
        let mut rng = SmallRng::seed_from_u64(seed.wrapping_add(1 << 42));
        let seen = Seen::default();
        let temper = Temper { error: 0.03, panic: 0.03, slow: rng.random_range(0.0..0.3) };
        let life = begin(&mut world, &seen, temper);
        Self { world, rng, seen, temper, life, n_lives: 1, tally: Tally::default() }
    }

    fn some_time(&mut self, max_ms: u64) -> Duration {
        Duration::from_millis(self.rng.random_range(0..=max_ms))
    }

    /// A user's write.
    fn write(&mut self) {
        let name = NAMES[self.rng.random_range(0..NAMES.len())];
        let cidr = format!("10.{}.0.0/16", self.rng.random_range(0..200));
        let what = self.rng.random_range(0..10);
        self.world.ask(move |person| async move {
            match what {
                0..4 => person.create(&networks(""), &network(name, &cidr)).await,
                4..7 => person.patch(&networks(name), &json!({"spec": {"cidr": cidr}})).await,
                7 => person.patch(&maps("default", name), &json!({"data": {"cidr": "mine"}})).await,
                8 => person.delete(&maps("default", name)).await,
                _ => person.delete(&networks(name)).await,
            }
        });
    }

    /// Stops the manager, checks that it stops in time and leaves nothing, and starts another one.
    fn restart(&mut self) {
        self.tally.note("clean stop");
        self.life.stop.cancel();
        let id = self.life.process.id();
        self.world.run_until("the manager has stopped", GRACE_PERIOD + SETTLED, |world| {
            world.has_ended(id)
        });
        match self.life.process.take_output().unwrap() {
            Ok(()) => {}
            // A write without a response delays its pass.
            Err(ManagerError::GraceExpired { .. }) => self.tally.note("grace expired"),
            Err(error) => panic!("the manager failed: {error:?}"),
        }
        self.end_of_life();
    }

    fn end_of_life(&mut self) {
        let id = self.life.process.id();
        // The tasks of clients need a poll to notice that their handles were dropped.
        self.world.run_for(Duration::from_millis(2));
        assert_eq!(self.world.n_tasks(id), 0, "tasks are left");
        let n_passes = self.world.journal().n_passes();
        let pause = self.some_time(2000);
        self.world.run_for(pause);
        assert_eq!(self.world.journal().n_passes(), n_passes, "a pass began after the end");
        self.world.kill(id);
        self.again();
    }

    fn again(&mut self) {
        self.life = begin(&mut self.world, &self.seen, self.temper);
        self.n_lives += 1;
    }

    /// One random event.
    fn act(&mut self) {
        let id = self.life.process.id();
        match self.rng.random_range(0..40) {
            0 => {
                self.tally.note("kill");
                self.world.kill(id);
                let pause = self.some_time(3000);
                self.world.run_for(pause);
                self.again();
            }
            1 => self.restart(),
            2 => {
                self.world.stall(id);
                let pause = self.some_time(30_000);
                self.world.run_for(pause);
                self.write();
                self.world.resume(id);
            }
            3 => {
                self.world.cut_off(id);
                let pause = self.some_time(40_000);
                self.world.run_for(pause);
                self.write();
                self.world.heal(id);
            }
            4 => {
                let chance = self.rng.random_range(0.0..0.05);
                let faults =
                    fault::Faults { unavailable: chance, answer_lost: 0.0, feed_broken: chance };
                self.world.set_store_faults(faults);
                let pause = self.some_time(5000);
                self.world.run_for(pause);
                self.world.set_store_faults(fault::Faults::default());
            }
            _ => self.write(),
        }
        // Often immediately, sometimes long enough for everything to settle.
        let max = [0, 0, 20, 200, 2000, 20_000][self.rng.random_range(0..6)];
        let pause = self.some_time(max);
        self.world.run_for(pause);
    }

    /// Runs the storm and checks its end.
    fn rage(mut self) -> Tally {
        let chance = self.rng.random_range(0.0..0.25);
        self.world.set_faults(Faults::stormy(chance));
        for _ in 0..ACTS {
            self.act();
        }
        self.world.set_faults(Faults::default());
        let id = self.life.process.id();
        converge(&mut self.world, &self.seen, QUIET, |_| id);
        self.world.run_for(SETTLED);
        let quiet = (self.world.journal().n_passes(), self.world.journal().writes().len());
        self.world.run_for(SETTLED * 2);
        let after = (self.world.journal().n_passes(), self.world.journal().writes().len());
        assert_eq!(after, quiet, "passes and writes although nothing changes");
        self.bound_passes();
        self.restart();
        assert_eq!(self.world.journal().overlaps(), [], "a key in two hands");
        self.tally.add(&self.world.tally());
        self.tally
    }

    /// Every pass has a cause: a change, a start, or a failure before it.
    fn bound_passes(&mut self) {
        let writes = self.world.journal().writes();
        let is_made = |code: http::StatusCode| code.is_success();
        let n_changes = writes
            .iter()
            .filter(|write| write.answered.is_none_or(|(_, code)| is_made(code)))
            .count();
        let n_refused = writes.len() - n_changes;
        let stats: Vec<_> = self.seen.handles().iter().map(|handle| handle.stats()).collect();
        let n_errors: u64 = stats.iter().map(|stats| stats.error).sum();
        self.tally.note_n("panics", stats.iter().map(|stats| stats.panics).sum());
        self.tally.note_n("errors", n_errors);
        let n_passes = self.world.journal().n_passes() as u64;
        // A change of a ConfigMap concerns both controllers; a start lists at most this many keys
        // for each, twice for a child.
        let at_starts = self.n_lives * 3 * NAMES.len() as u64;
        let max = 2 * n_changes as u64 + at_starts + n_errors;
        assert!(n_passes <= max, "{n_passes} passes for {n_changes} changes, {n_errors} errors");
        let n_faults = self.world.tally().total() - self.world.tally().count("pass");
        let max = self.seen.n_injected() + n_faults + 2 * n_refused as u64 + 20;
        assert!(n_errors <= max, "{n_errors} errors for {n_faults} faults, {n_refused} refused");
    }
}

/// A storm; panics if it violates a rule.
pub(crate) fn storm(seed: u64) -> Tally {
    Storm::new(seed).rage()
}

#[test]
fn all_keys_converge_after_a_storm() {
    let mut tally = Tally::default();
    for seed in seeds(SEEDS) {
        let _replay = Replay::of(seed, "all_keys_converge");
        tally.add(&storm(seed));
    }
    println!("{tally:?}");
    tally.assert_seen(
        &[
            "injected conflict",
            "too many requests",
            "service unavailable",
            "internal error",
            "unreachable",
            "request lost",
            "write never answered",
            "answer to a write lost",
            "answer to a read lost",
            "slow",
            "watch ends",
            "watch breaks",
            "watch expires",
            "watch lags",
            "request into a partition",
            "watch cut off",
            "stall",
            "kill",
            "clean stop",
            "panics",
            "errors",
        ],
        SEEN_MIN,
    );
}
