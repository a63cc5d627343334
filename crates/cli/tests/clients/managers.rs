//! Managers as processes against the built program over HTTPS: the leader killed, stopped and
//! frozen.
//!
//! The processes are this test binary again, with [`child`] as the only test it runs. A [`Witness`]
//! watches what they write: all versions of all objects, in the server's order.

mod child;
mod process;
mod shards;
mod witness;

use crate::server::Server;
use child::{LEASE, RETRY, Role};
use process::Process;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use witness::Witness;

/// What a busy machine may add to anything.
const SLACK: Duration = Duration::from_secs(5);
/// How long a hand-over may take when nobody has to wait for a lease: less than any lease, of which
/// the shortest is a second.
const HAND_OVER_MAX: Duration = Duration::from_millis(900);
/// How many objects there are.
const N_MAPS: usize = 3;

/// The wall clock, which all processes of a machine share: µs.
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
        // The candidate stands by: only the leader goes on writing.
        witness.until("a goes on", |versions| versions.by("a").count() >= n + 10);
        witness.look(|versions| assert_eq!(versions.by("b").count(), 0, "b writes beside a"));
        Self { witness, leader, candidate, server }
    }

    /// Waits until the candidate writes; gives how long after `since` the first of its writes was
    /// seen.
    fn taken_over(&self, since: Instant) -> Duration {
        self.witness.until("b writes", |versions| versions.by("b").count() > 0);
        let first = self.witness.look(|versions| versions.by("b").next().unwrap().seen);
        first.saturating_duration_since(since)
    }

    /// Nothing of `a` comes after anything of `b`, in the server's order; and `b` goes on.
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
fn leader_that_is_killed_is_succeeded_when_its_lease_is_over() {
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
fn leader_that_is_stopped_hands_over_at_once() {
    let mut stage = Stage::set();
    let stopped = Instant::now();
    stage.leader.signal("TERM");
    let took = stage.taken_over(stopped);
    println!("hand-over after SIGTERM: {took:?}");
    assert!(took <= HAND_OVER_MAX, "{took:?}: the candidate waited for the lease");
    assert_eq!(stage.leader.wait(), Some(0));
    stage.assert_succession();
    // A pass ends before the lease is given up.
    let begun = stage.leader.count("begin");
    assert_eq!(stage.leader.count("end"), begun, "passes were cut");
}

#[test]
fn leader_that_was_frozen_writes_nothing_more() {
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
