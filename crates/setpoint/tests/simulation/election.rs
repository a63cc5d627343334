//! Candidates for one Lease are stalled, killed and disconnected at every point. Two never lead at
//! once, and no write leaves a process whose lease has expired.

use crate::election_leases::{late_writes, usurped_writes};
use crate::harness::{Faults, Ground, Replay, Setting, Started, Tally, World, map, maps, seeds};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::api::{Api, Patch, PatchParams};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use setpoint::runtime::{
    ElectionOptions,
    election::{LeaderElector, Leadership},
    fence::FenceLayer,
};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tower::Layer;

const SEEDS: u64 = 15;
const ACTS: usize = 20;
const SECOND: Duration = Duration::from_secs(1);
const GUARDED: &str = "guarded";
/// How long a crashed leader's lease blocks others, plus the time of a candidate's requests.
const TAKE_OVER_MAX: Duration = Duration::from_secs(26);

struct Candidate {
    process: Started<()>,
    stop: CancellationToken,
}

/// A program that takes part in elections repeatedly, and writes continuously while it leads.
async fn program(ground: Ground, stop: CancellationToken) {
    let mut n_terms = 0;
    while !stop.is_cancelled() {
        n_terms += 1;
        let identity = format!("{}-{n_terms}", ground.name());
        let options = ElectionOptions::new("main")
            .identity(identity)
            .namespace("default")
            .release_on_stop(true)
            .seed(ground.seed);
        let elector = LeaderElector::new(ground.client(), ground.clock(), options).unwrap();
        let leadership = elector.leadership();
        let election_stop = CancellationToken::new();
        let work = async {
            if leadership.elected().await {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = guarded(&ground, &leadership) => {}
                }
            }
            // The guarded task has ended, so the lease may be released.
            election_stop.cancel();
        };
        tokio::select! {
            biased;
            // The program would exit here, whatever it was doing.
            _ = elector.run(election_stop.clone()) => {}
            () = async { tokio::join!(work, std::future::pending::<()>()); } => {}
            () = async { stop.cancelled().await; tokio::time::sleep(SECOND * 15).await } => {}
        }
    }
}

async fn guarded(ground: &Ground, leadership: &Leadership) {
    let client = ground.client();
    let service = tower::service_fn(move |request| {
        let client = client.clone();
        async move { client.send(request).await }
    });
    let layer = FenceLayer::new(leadership.fence());
    let client = kube_client::Client::new(layer.layer(service), "default");
    let api: Api<ConfigMap> = Api::namespaced(client, "default");
    let mut n_writes = 0;
    while leadership.is_leader() {
        let _pass = ground.pass("leader", &GUARDED);
        n_writes += 1;
        let patch = json!({"data": {"by": ground.name(), "n": n_writes.to_string()}});
        // A failure is ignored: the next write follows.
        let _ = api.patch(GUARDED, &PatchParams::default(), &Patch::Merge(patch)).await;
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
}

struct Race {
    world: World,
    rng: SmallRng,
    candidates: Vec<Candidate>,
    n_started: usize,
}

impl Race {
    fn new(seed: u64, n_candidates: usize) -> Self {
        let mut world = World::new(Setting::of(seed));
        world.ask(|person| async move {
            person.create(&maps("default", ""), &map(GUARDED, &json!({}))).await;
        });
        let rng = SmallRng::seed_from_u64(seed.wrapping_add(1 << 44));
        let mut race = Self { world, rng, candidates: Vec::new(), n_started: 0 };
        for _ in 0..n_candidates {
            race.start();
        }
        race
    }

    fn start(&mut self) {
        let name = format!("candidate-{}", self.n_started);
        self.n_started += 1;
        let stop = CancellationToken::new();
        let asked = stop.clone();
        let process = self.world.start(&name, move |ground| program(ground, asked));
        self.candidates.push(Candidate { process, stop });
    }

    fn some_time(&mut self, max_ms: u64) -> Duration {
        Duration::from_millis(self.rng.random_range(0..=max_ms))
    }

    /// The candidate that started the last pass, if it still runs.
    fn leader(&self) -> Option<usize> {
        let last = self.world.journal().passes().pop()?.process;
        self.candidates.iter().position(|candidate| candidate.process.id() == last)
    }

    fn act(&mut self) {
        // Most events happen to the leader.
        let any = self.rng.random_range(0..self.candidates.len());
        let at = if self.rng.random_bool(0.7) { self.leader().unwrap_or(any) } else { any };
        let id = self.candidates[at].process.id();
        match self.rng.random_range(0..8) {
            0 => {
                self.world.kill(id);
                self.candidates.remove(at);
                self.start();
            }
            1 => {
                let left = self.candidates.remove(at);
                left.stop.cancel();
                self.world.run_until("it has stopped", SECOND * 60, |world| world.has_ended(id));
                self.start();
            }
            2..=4 => {
                let n_polls = self.rng.random_range(1..200);
                self.world.creep(id, n_polls, SECOND * 3);
                self.world.stall(id);
                let pause = self.some_time(40_000);
                self.world.run_for(pause);
                self.world.resume(id);
            }
            _ => {
                self.world.cut_off(id);
                let pause = self.some_time(40_000);
                self.world.run_for(pause);
                self.world.heal(id);
            }
        }
        let max = [0, 20, 200, 2000, 20_000][self.rng.random_range(0..5)];
        let pause = self.some_time(max);
        self.world.run_for(pause);
    }

    fn check(&self) {
        let journal = self.world.journal();
        // Property 2: the intervals in which passes start do not overlap.
        let mut passes = journal.passes();
        passes.sort_by_key(|pass| pass.began);
        let mut last_of = std::collections::BTreeMap::new();
        for pass in &passes {
            last_of.insert(pass.process, pass.began);
        }
        for (before, after) in passes.iter().zip(&passes[1.min(passes.len())..]) {
            if before.process != after.process {
                // The previous leader never starts another pass in this term: it would need the
                // lease again.
                let again = passes
                    .iter()
                    .find(|pass| pass.process == before.process && pass.began > after.began);
                if let Some(again) = again {
                    let took = journal.writes_to("/leases").into_iter().any(|lease| {
                        lease.process == again.process
                            && lease.left > after.began
                            && lease.left <= again.began
                            && lease.answered.is_some_and(|(_, code)| code.is_success())
                    });
                    assert!(took, "{before:?} {after:?} {again:?}");
                }
            }
        }
        let overlaps = journal.overlaps_awake();
        assert!(overlaps.is_empty(), "two lead: {overlaps:#?}");
        let is_guarded = |write: &crate::harness::WriteEntry| write.path.contains(GUARDED);
        let late = late_writes(journal, is_guarded);
        assert!(late.is_empty(), "writes past the deadline: {late:#?}");
        let usurped = usurped_writes(journal, is_guarded);
        assert!(usurped.is_empty(), "writes under another's lease: {usurped:#?}");
    }
}

#[test]
fn at_most_one_leads_in_every_storm() {
    let mut tally = Tally::default();
    for seed in seeds(SEEDS) {
        let _replay = Replay::of(seed, "at_most_one_leads");
        let mut race = Race::new(seed, 3);
        let chance = race.rng.random_range(0.0..0.15);
        race.world.set_faults(Faults::stormy(chance));
        for _ in 0..ACTS {
            race.act();
        }
        race.check();
        // After the storm there is a leader, and it continues.
        race.world.set_faults(Faults::default());
        race.world.run_for(TAKE_OVER_MAX + SECOND * 20);
        let n_passes = race.world.journal().n_passes();
        race.world.run_for(SECOND * 10);
        assert!(race.world.journal().n_passes() > n_passes + 30);
        race.check();
        tally.add(&race.world.tally());
    }
    println!("{tally:?}");
    tally.assert_seen(&["stall", "partition", "write never answered", "answer to a write lost"], 5);
}

/// A leader is stalled at any of its steps, for longer than its lease.
#[test]
fn leader_stalled_at_every_poll_writes_nothing_afterwards() {
    let n_polls_max = 50;
    for n_polls in seeds(n_polls_max) {
        let _replay = Replay::of(n_polls, "leader_stalled_at_every_poll");
        let mut race = Race::new(7, 2);
        race.world.set_faults(Faults { connection_busy_max: SECOND / 50, ..Faults::default() });
        race.world.run_for(SECOND * 5);
        let leader = race.leader().unwrap();
        let id = race.candidates[leader].process.id();
        race.world.creep(id, n_polls + 1, SECOND * 5);
        race.world.stall(id);
        let stalled = race.world.now();
        race.world.run_for(SECOND * 20);
        assert_ne!(race.leader(), Some(leader), "the other one has taken over");
        race.world.resume(id);
        race.world.run_for(SECOND * 10);
        race.check();
        let late = race.world.journal().writes_of(id).into_iter();
        let late: Vec<_> = late
            .filter(|write| write.path.contains(GUARDED) && write.left > stalled + SECOND)
            .collect();
        assert!(late.is_empty(), "{late:#?}");
    }
}

/// LE-14: the next candidate leads within a second of a clean stop.
#[test]
fn clean_stop_hands_over_in_under_a_second() {
    for seed in seeds(10) {
        let _replay = Replay::of(seed, "clean_stop_hands_over");
        let mut race = Race::new(seed, 3);
        let pause = race.some_time(20_000) + SECOND * 5;
        race.world.run_for(pause);
        let leader = race.leader().unwrap();
        let stopped = race.world.now();
        race.candidates[leader].stop.cancel();
        let id = race.candidates[leader].process.id();
        race.world.run_for(SECOND);
        let next = race.world.journal().passes().into_iter().find(|pass| pass.process != id);
        let next = next.expect("nobody leads").began - stopped;
        assert!(next < SECOND, "{next:?}");
        race.check();
    }
}
