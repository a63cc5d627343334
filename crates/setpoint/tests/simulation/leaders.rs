//! Managers with leader election: no controller's write leaves a process whose lease has expired,
//! no key is processed by two replicas at once, and there is a new leader soon, whatever happens to
//! the old one and when.
//!
//! The lease is judged only from the server's responses: [`Reign`] does not use fences or electors.

use crate::harness::{
    Faults, HANG_MAX, ProcessId, Replay, Setting, Started, Tally, World, WriteEntry, seeds,
};
use crate::reference::{Seen, Temper, converge, define_networks, manager_with, network, networks};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use setpoint::runtime::election::Timings;
use setpoint::runtime::{ElectionOptions, ManagerError, manager::GRACE_PERIOD};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const SECOND: Duration = Duration::from_secs(1);
const TIMINGS: Timings = Timings {
    lease: Duration::from_secs(15),
    renew: Duration::from_secs(10),
    retry: Duration::from_secs(2),
};
/// How long a take-over may take beyond the lease: a wait of up to 2.2 retries, and the candidate's
/// first requests.
const TAKE_OVER_SLACK: Duration = Duration::from_secs(6);
/// Number of storms, unless `SEEDS` is set.
const SEEDS: u64 = 40;
const ACTS: usize = 20;
const QUIET: Duration = Duration::from_secs(2500);
const NAMES: &[&str] = &["a", "b", "c"];
const WHO: &[&str] = &["x", "y", "z"];

/// A process with a manager that takes part in the election, and its stop token.
struct Candidate {
    process: Started<Result<(), ManagerError>>,
    stop: CancellationToken,
}

fn stand(world: &mut World, who: &'static str, seen: &Seen, temper: Temper) -> Candidate {
    let stop = CancellationToken::new();
    let (seen, asked) = (seen.clone(), stop.clone());
    let process = world.start(who, move |ground| async move {
        // A new identity for each life, because an identity belongs to one process.
        let identity = format!("{who}-{}", ground.seed);
        let options = ElectionOptions::new("managers")
            .identity(identity)
            .namespace("default")
            .timings(TIMINGS)
            .release_on_stop(true)
            .seed(ground.seed);
        let manager = manager_with(&ground, &seen, temper, |builder| {
            builder.leader_election(options).unwrap()
        });
        manager.run(asked).await
    });
    Candidate { process, stop }
}

/// The holders of the lease over time, from the server's responses.
struct Reign {
    /// The writes that acquired or renewed the lease: holder, time sent, time answered.
    renewals: Vec<(ProcessId, Duration, Duration)>,
}

impl Reign {
    fn of(world: &World) -> Self {
        let writes = world.journal().writes();
        let leases = writes.iter().filter(|write| write.path.contains("/leases"));
        let renewals = leases.filter_map(|write| {
            let (answered, status) = write.answered?;
            let lease: Value = serde_json::from_slice(&write.body).ok()?;
            let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
            let is_held = status.is_success() && !holder.is_empty();
            is_held.then_some((write.process, write.left, answered))
        });
        Self { renewals: renewals.collect() }
    }

    /// The process that wrote the lease last.
    fn holder(&self) -> ProcessId {
        self.renewals.last().unwrap().0
    }

    /// Why a controller's write left too late; `None` if it did not.
    fn fault(&self, write: &WriteEntry) -> Option<String> {
        let last = self
            .renewals
            .iter()
            .rev()
            .find(|(process, left, _)| *process == write.process && *left <= write.left);
        let Some((_, left, _)) = last else {
            return Some("before it held the lease".to_owned());
        };
        let deadline = *left + TIMINGS.renew;
        if write.left > deadline {
            return Some(format!("after its deadline {deadline:?}"));
        }
        let theirs = self.renewals.iter().filter(|(process, ..)| *process != write.process);
        let taken = theirs.filter(|(_, _, answered)| answered > left && *answered < write.left);
        taken.last().map(|(other, _, at)| format!("after {other:?} had taken the lease at {at:?}"))
    }
}

/// Checks the rules that hold at any time.
#[track_caller]
fn assert_fenced(world: &World) {
    let reign = Reign::of(world);
    for write in world.journal().writes().iter().filter(|write| write.origin.is_some()) {
        if let Some(fault) = reign.fault(write) {
            panic!("{}\na write left {fault}: {write:?}", world.journal().render());
        }
    }
    let overlaps = world.journal().overlaps_awake();
    assert!(overlaps.is_empty(), "{}\n{overlaps:#?}", world.journal().render());
}

/// A storm over three candidates.
struct Storm {
    world: World,
    rng: SmallRng,
    seen: Seen,
    temper: Temper,
    candidates: Vec<Candidate>,
    tally: Tally,
}

impl Storm {
    fn new(seed: u64) -> Self {
        let mut world = World::new(Setting::of(seed));
        define_networks(&mut world);
        let mut rng = SmallRng::seed_from_u64(seed.wrapping_add(1 << 43));
        let slow = rng.random_range(0.1..0.6);
        let temper = Temper { error: 0.02, panic: 0.02, slow };
        let seen = Seen::default();
        let candidates = WHO.iter().map(|who| stand(&mut world, who, &seen, temper)).collect();
        Self { world, rng, seen, temper, candidates, tally: Tally::default() }
    }

    fn write(&mut self) {
        let name = NAMES[self.rng.random_range(0..NAMES.len())];
        let cidr = format!("10.{}.0.0/16", self.rng.random_range(0..200));
        let what = self.rng.random_range(0..8);
        self.world.ask(move |person| async move {
            match what {
                0..3 => person.create(&networks(""), &network(name, &cidr)).await,
                3..7 => person.patch(&networks(name), &json!({"spec": {"cidr": cidr}})).await,
                _ => person.delete(&networks(name)).await,
            }
        });
    }

    /// The process that wrote the lease last, if it still runs.
    fn leader(&self) -> Option<usize> {
        let last = Reign::of(&self.world).renewals.last()?.0;
        self.candidates.iter().position(|candidate| candidate.process.id() == last)
    }

    fn again(&mut self, which: usize) {
        self.candidates[which] = stand(&mut self.world, WHO[which], &self.seen, self.temper);
    }

    /// Restarts ended candidates: a manager that lost the lead exits.
    fn restart_ended(&mut self) {
        for which in 0..WHO.len() {
            let id = self.candidates[which].process.id();
            if !self.world.has_ended(id) {
                continue;
            }
            match self.candidates[which].process.take_output() {
                Some(Err(ManagerError::LeadershipLost { .. })) => {
                    self.tally.note("leadership lost");
                }
                // A hanging request delays a stop; meanwhile the lease may be lost.
                Some(Err(ManagerError::GraceExpired { .. })) => self.tally.note("grace expired"),
                Some(Ok(())) | None => {}
                Some(Err(error)) => panic!("{error:?}"),
            }
            self.world.run_for(Duration::from_millis(2));
            assert_eq!(self.world.n_tasks(id), 0, "tasks are left");
            self.world.kill(id);
            self.again(which);
        }
    }

    fn act(&mut self) {
        let which = self.leader().unwrap_or_default();
        let id = self.candidates[which].process.id();
        match self.rng.random_range(0..14) {
            0 => {
                self.tally.note("kill");
                self.world.kill(id);
                self.again(which);
            }
            1 => {
                self.tally.note("clean stop");
                self.candidates[which].stop.cancel();
            }
            2 | 3 => {
                // At any point.
                let n = self.rng.random_range(0..20);
                self.world.creep(id, n, SECOND / 20);
                self.world.stall(id);
                self.write();
                let pause = Duration::from_millis(self.rng.random_range(0..40_000));
                self.world.run_for(pause);
                self.write();
                self.world.resume(id);
            }
            4 | 5 => {
                self.world.cut_off(id);
                let pause = Duration::from_millis(self.rng.random_range(0..40_000));
                self.world.run_for(pause / 2);
                self.write();
                self.world.run_for(pause / 2);
                self.world.heal(id);
            }
            _ => self.write(),
        }
        let max = [0, 20, 200, 2000, 20_000][self.rng.random_range(0..5)];
        let pause = Duration::from_millis(self.rng.random_range(0..=max));
        self.world.run_for(pause);
        self.restart_ended();
    }

    fn rage(mut self) -> Tally {
        let chance = self.rng.random_range(0.0..0.15);
        self.world.set_faults(Faults::stormy(chance));
        for _ in 0..ACTS {
            self.act();
        }
        self.world.set_faults(Faults::default());
        self.world.run_for(TIMINGS.lease + TAKE_OVER_SLACK);
        self.restart_ended();
        self.world.run_for(TIMINGS.lease + TAKE_OVER_SLACK);
        converge(&mut self.world, &self.seen, QUIET, |world| Reign::of(world).holder());
        assert_fenced(&self.world);
        let mut reigns: Vec<_> = Reign::of(&self.world).renewals.iter().map(|r| r.0).collect();
        reigns.dedup();
        self.tally.note_n("leaders", reigns.len() as u64);
        for candidate in &self.candidates {
            candidate.stop.cancel();
        }
        self.world.run_for(GRACE_PERIOD + HANG_MAX);
        for candidate in &self.candidates {
            assert!(self.world.has_ended(candidate.process.id()), "it does not end");
            assert_eq!(self.world.n_tasks(candidate.process.id()), 0, "tasks are left");
        }
        self.tally.add(&self.world.tally());
        self.tally
    }
}

/// A storm; panics if it violates a rule.
pub(crate) fn storm(seed: u64) -> Tally {
    Storm::new(seed).rage()
}

#[test]
fn only_one_leader_writes_in_storms() {
    let mut tally = Tally::default();
    for seed in seeds(SEEDS) {
        let _replay = Replay::of(seed, "only_one_leader_writes");
        tally.add(&storm(seed));
    }
    println!("{tally:?}");
    let seen =
        ["leadership lost", "kill", "clean stop", "stall", "partition", "watch cut off", "leaders"];
    tally.assert_seen(&seen, SEEDS / 4);
}

/// What happens to the leader.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fall {
    Killed,
    Stalled,
    CutOff,
    Stopped,
}

/// Runs a leader and a candidate; the leader falls after `n` polls from the moment at which it has
/// work. Returns false if there are fewer polls.
fn fall(fall: Fall, n: u64) -> bool {
    let mut world = World::new(Setting::of(11));
    define_networks(&mut world);
    world.set_faults(Faults { connection_busy_max: Duration::from_millis(2), ..Faults::default() });
    let seen = Seen::default();
    let leader = stand(&mut world, "x", &seen, Temper::default());
    let id = leader.process.id();
    world.run_until("x leads", SECOND * 10, |world| !Reign::of(world).renewals.is_empty());
    let _candidate = stand(&mut world, "y", &seen, Temper::default());
    world.run_for(SECOND * 3);
    // Just before a renewal.
    let renewed = Reign::of(&world).renewals.last().unwrap().1;
    world.run_for((renewed + TIMINGS.retry).saturating_sub(world.now() + SECOND / 50));
    world.ask(|person| async move {
        person.create(&networks(""), &network("a", "10.0.0.0/16")).await;
        person.create(&networks(""), &network("b", "10.1.0.0/16")).await;
    });
    if !world.creep(id, n, SECOND / 5) {
        return false;
    }
    let fell = world.now();
    match fall {
        Fall::Killed => world.kill(id),
        Fall::Stalled => world.stall(id),
        Fall::CutOff => world.cut_off(id),
        Fall::Stopped => leader.stop.cancel(),
    }
    let limit = if fall == Fall::Stopped { SECOND } else { TIMINGS.lease + TAKE_OVER_SLACK };
    world.run_until("y leads", limit, |world| {
        Reign::of(world).renewals.last().is_some_and(|(holder, ..)| *holder != id)
    });
    // The new leader is working when the old one resumes.
    world.ask(|person| async move {
        person.patch(&networks("a"), &json!({"spec": {"cidr": "10.2.0.0/16"}})).await;
        person.patch(&networks("b"), &json!({"spec": {"cidr": "10.3.0.0/16"}})).await;
    });
    match fall {
        Fall::Stalled => world.resume(id),
        Fall::CutOff => world.heal(id),
        Fall::Killed | Fall::Stopped => {}
    }
    if fall != Fall::Killed {
        world.run_until("x has ended", SECOND, |world| world.has_ended(id));
        let ended = leader.process.take_output().unwrap();
        match fall {
            Fall::Stopped => ended.unwrap(),
            _ => assert!(matches!(ended, Err(ManagerError::LeadershipLost { .. })), "{ended:?}"),
        }
        world.run_for(Duration::from_millis(2));
        assert_eq!(world.n_tasks(id), 0, "tasks are left");
    }
    converge(&mut world, &seen, SECOND * 60, |world| Reign::of(world).holder());
    assert_fenced(&world);
    assert!(world.now() >= fell);
    true
}

/// The leader falls at every poll.
fn fall_everywhere(how: Fall) {
    let asked = std::env::var("POLL").ok().map(|n| n.parse::<u64>().unwrap());
    if let Some(n) = asked {
        assert!(fall(how, n));
        return;
    }
    for n in 0.. {
        let _at = At { how, n };
        if !fall(how, n) {
            println!("{how:?} at {n} polls");
            assert!(n > 25, "{n} polls are no work");
            return;
        }
    }
}

/// Prints the poll at which the test failed.
struct At {
    how: Fall,
    n: u64,
}

impl Drop for At {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{:?} at poll {}: replay with POLL={}", self.how, self.n, self.n);
        }
    }
}

#[test]
fn leader_killed_at_any_poll_is_replaced() {
    fall_everywhere(Fall::Killed);
}

#[test]
fn leader_stalled_at_any_poll_writes_nothing_past_its_deadline() {
    fall_everywhere(Fall::Stalled);
}

#[test]
fn leader_cut_off_at_any_poll_stops_before_another_leads() {
    fall_everywhere(Fall::CutOff);
}

#[test]
fn leader_stopped_at_any_poll_hands_over_within_a_second() {
    fall_everywhere(Fall::Stopped);
}
