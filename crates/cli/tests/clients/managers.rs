//! Managers as processes against the built program over HTTPS: the leader is killed, stopped and
//! frozen.
//!
//! Each process is this test binary, run with [`child`] as its only test. A [`Witness`] watches
//! their writes: all versions of all objects, in the server's order.

mod child;
mod process;
mod shards;
mod witness;

use crate::server::Server;
use child::{LEASE, RETRY, Role};
use process::Process;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use witness::Witness;

/// Extra time for a busy machine.
const SLACK: Duration = Duration::from_secs(5);
/// Number of objects.
const N_MAPS: usize = 3;

/// The wall clock in µs, which all processes of a machine share.
fn wall() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap()
}

/// A server with objects, a leader that writes, and a candidate.
struct Stage {
    witness: Witness,
    leader: Process,
    candidate: Process,
    server: Server,
}

impl Stage {
    fn set() -> Self {
        let server = Server::start();
        let witness = Witness::of(&server);
        witness.create(0..N_MAPS);
        let leader = Process::start(&server, Role::leading("a"));
        witness.until("a writes", |versions| versions.by("a").count() >= N_MAPS);
        let candidate = Process::start(&server, Role::leading("b"));
        candidate.until("it is warm", |lines| lines.iter().any(|line| line.what == "warm"));
        let n = witness.look(|versions| versions.by("a").count());
        // The candidate waits: only the leader writes.
        witness.until("a goes on", |versions| versions.by("a").count() >= n + 10);
        witness.look(|versions| assert_eq!(versions.by("b").count(), 0, "b writes beside a"));
        Self { witness, leader, candidate, server }
    }

    /// Waits until the candidate writes; returns how long after `since` the first of its writes was
    /// observed.
    fn taken_over(&self, since: Instant) -> Duration {
        self.witness.until("b writes", |versions| versions.by("b").count() > 0);
        let first = self.witness.look(|versions| versions.by("b").next().unwrap().seen);
        first.saturating_duration_since(since)
    }

    /// Asserts that no write of `a` follows a write of `b`, in the server's order, and that `b`
    /// continues.
    fn assert_succession(&self) {
        let n = self.witness.look(|versions| versions.by("b").count());
        self.witness.until("b goes on", |versions| versions.by("b").count() >= n + 10);
        self.witness.look(|versions| {
            let late = versions.all().iter().skip_while(|version| version.by != "b");
            let late: Vec<_> = late.filter(|version| version.by == "a").collect();
            assert!(late.is_empty(), "after the take-over a wrote {late:?}");
        });
    }
}

#[test]
fn killed_leader_is_replaced_when_its_lease_expires() {
    let mut stage = Stage::set();
    let killed = Instant::now();
    stage.leader.signal("KILL");
    let took = stage.taken_over(killed);
    println!("take-over after SIGKILL: {took:?} (lease {LEASE:?}, retry {RETRY:?})");
    assert!(took <= LEASE + RETRY.mul_f64(2.2) + SLACK, "{took:?}");
    stage.assert_succession();
    assert_eq!(stage.leader.wait(), None, "it was killed");
}

#[test]
fn stopped_leader_hands_over_at_once() {
    let mut stage = Stage::set();
    let stopped = Instant::now();
    stage.leader.signal("TERM");
    let took = stage.taken_over(stopped);
    println!("hand-over after SIGTERM: {took:?}");
    // The lease was renewed at most two periods ago. How short a hand-over is, in periods and not
    // on a busy machine, the runtime's tests show.
    assert!(took < LEASE - RETRY * 2, "{took:?}: the candidate waited for the lease");
    assert_eq!(stage.leader.wait(), Some(0));
    stage.assert_succession();
    // Passes end before the lease is released.
    let begun = stage.leader.count("begin");
    assert_eq!(stage.leader.count("end"), begun, "passes were cut");
}

#[test]
fn frozen_leader_writes_nothing_more() {
    let mut stage = Stage::set();
    stage.leader.signal("STOP");
    let frozen = Instant::now();
    let took = stage.taken_over(frozen);
    println!("take-over after SIGSTOP: {took:?}");
    stage.leader.signal("CONT");
    let status = stage.leader.wait();
    println!("{} writes were held back", stage.leader.count("fenced"));
    assert_eq!(status, Some(child::LOST), "it says that it lost the lead");
    stage.assert_succession();
    drop(stage.candidate);
    drop(stage.server);
}
