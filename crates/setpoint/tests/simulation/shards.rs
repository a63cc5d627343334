//! Replicas of one sharded controller are stalled, killed, disconnected and replaced. No key is
//! processed by two replicas at once, and in the end each is processed by its owner.

use crate::election_leases::late_writes;
use crate::harness::{
    Faults, Ground, ProcessId, Replay, Setting, Started, Tally, World, map, maps, seeds,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::api::Patch;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use setpoint::runtime::{
    Action, CacheOptions, ClientError, Context, Controller, Manager, ManagerError, Request,
    ShardOptions, Sharded, Watch, shard::owner,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const SEEDS: u64 = 8;
const ACTS: usize = 25;
const SECOND: Duration = Duration::from_secs(1);
/// Longer than the longest back-off that a storm causes.
const QUIET: Duration = Duration::from_secs(1500);
const N_KEYS: usize = 12;
const CONTROLLER: &str = "shard";

struct ReplicaProcess {
    identity: String,
    process: Started<Result<(), ManagerError>>,
    stop: CancellationToken,
}

struct Group {
    world: World,
    rng: SmallRng,
    replicas: Vec<ReplicaProcess>,
    n_started: usize,
    n_writes: u64,
    tally: Tally,
}

fn manager(ground: &Ground, identity: &str) -> Manager {
    let mut manager = Manager::builder(ground.client())
        .clock(ground.clock())
        .seed(ground.seed)
        .cache(CacheOptions::new().backoff(Duration::from_millis(200), Duration::from_secs(2)))
        .build();
    let sharded = Sharded::new(ShardOptions::new("maps", identity).namespace("default")).unwrap();
    let rng = Arc::new(Mutex::new(SmallRng::seed_from_u64(ground.seed)));
    let (ground, identity) = (ground.clone(), identity.to_owned());
    let reconcile = move |request: Request, context: Context| {
        let (ground, identity, rng) = (ground.clone(), identity.clone(), rng.clone());
        async move {
            let _pass = ground.pass(CONTROLLER, &request);
            let pauses = {
                let mut rng = rng.lock().unwrap();
                let max = [0, 30, 300, 6000][rng.random_range(0..4)];
                [rng.random_range(0..=max), rng.random_range(0..=max)]
            };
            let api = context.client().api::<ConfigMap>();
            let Some(found) = api.get(&request)? else { return Ok(Action::await_change()) };
            tokio::time::sleep(Duration::from_millis(pauses[0])).await;
            let version = found.data.as_ref().and_then(|data| data.get("version"));
            let patch = json!({"metadata": {"annotations": {"by": identity, "seen": version}}});
            api.patch(&request, &Patch::Merge(patch)).await?;
            tokio::time::sleep(Duration::from_millis(pauses[1])).await;
            Ok::<_, ClientError>(Action::await_change())
        }
    };
    let controller = Controller::builder(CONTROLLER)
        .for_(Watch::<ConfigMap>::new())
        .concurrency(3)
        .sync_timeout(None)
        .sharded(sharded)
        .build(reconcile)
        .unwrap();
    manager.add(controller).unwrap();
    manager
}

fn key(n: usize) -> String {
    format!("key-{n}")
}

impl Group {
    fn new(seed: u64, n_replicas: usize) -> Self {
        let mut world = World::new(Setting::of(seed));
        world.ask(|person| async move {
            for n in 0..N_KEYS {
                person.create(&maps("default", ""), &map(&key(n), &json!({"version": "0"}))).await;
            }
        });
        let rng = SmallRng::seed_from_u64(seed.wrapping_add(1 << 43));
        let mut group = Self {
            world,
            rng,
            replicas: Vec::new(),
            n_started: 0,
            n_writes: 0,
            tally: Tally::default(),
        };
        for _ in 0..n_replicas {
            group.join();
        }
        group
    }

    fn join(&mut self) {
        let identity = format!("replica-{}", self.n_started);
        self.n_started += 1;
        let stop = CancellationToken::new();
        let (asked, name) = (stop.clone(), identity.clone());
        let process = self.world.start(&identity, move |ground| async move {
            manager(&ground, &name).run(asked).await
        });
        self.replicas.push(ReplicaProcess { identity, process, stop });
    }

    fn some_time(&mut self, max_ms: u64) -> Duration {
        Duration::from_millis(self.rng.random_range(0..=max_ms))
    }

    fn write(&mut self) {
        let name = key(self.rng.random_range(0..N_KEYS));
        self.n_writes += 1;
        let version = self.n_writes.to_string();
        self.world.ask(move |person| async move {
            person.patch(&maps("default", &name), &json!({"data": {"version": version}})).await;
        });
    }

    fn some_replica(&mut self) -> usize {
        self.rng.random_range(0..self.replicas.len())
    }

    fn id(&self, at: usize) -> ProcessId {
        self.replicas[at].process.id()
    }

    fn act(&mut self) {
        let at = self.some_replica();
        let id = self.id(at);
        match self.rng.random_range(0..14) {
            0 if self.replicas.len() < 5 => {
                self.tally.note("join");
                self.join();
            }
            1 if self.replicas.len() > 1 => {
                self.tally.note("kill");
                self.world.kill(id);
                self.replicas.remove(at);
            }
            2 if self.replicas.len() > 1 => {
                self.tally.note("leave");
                let left = self.replicas.remove(at);
                left.stop.cancel();
                self.world.run_until("it has left", SECOND * 60, |world| world.has_ended(id));
                self.world.kill(id);
            }
            3 | 4 => {
                self.world.stall(id);
                let pause = self.some_time(30_000);
                self.world.run_for(pause);
                self.write();
                self.world.resume(id);
            }
            5 => {
                // At an arbitrary point: after a number of polls of its tasks.
                let n_polls = self.rng.random_range(1..400);
                self.world.creep(id, n_polls, SECOND * 3);
                self.world.stall(id);
                let pause = self.some_time(30_000);
                self.world.run_for(pause);
                self.world.resume(id);
            }
            6 | 7 => {
                self.world.cut_off(id);
                let pause = self.some_time(40_000);
                self.world.run_for(pause);
                self.write();
                self.world.heal(id);
            }
            _ => self.write(),
        }
        let max = [0, 20, 200, 2000, 20_000][self.rng.random_range(0..5)];
        let pause = self.some_time(max);
        self.world.run_for(pause);
    }

    /// The last writer of each key, and whether it has seen the current version.
    fn last_writers(&mut self) -> BTreeMap<String, (String, bool)> {
        let objects =
            self.world.ask(|person| async move { person.list(&maps("default", "")).await });
        let writers = objects.into_iter().map(|object| {
            let meta = &object["metadata"];
            let text =
                |field: &str| meta["annotations"][field].as_str().unwrap_or_default().to_owned();
            let is_new = text("seen") == object["data"]["version"].as_str().unwrap();
            (meta["name"].as_str().unwrap().to_owned(), (text("by"), is_new))
        });
        writers.collect()
    }

    /// The owner that each key should have.
    fn expected(&self) -> BTreeMap<String, (String, bool)> {
        let identities = || self.replicas.iter().map(|replica| replica.identity.as_str());
        let keys = (0..N_KEYS).map(|n| {
            let winner = owner(identities(), &format!("default/{}", key(n))).unwrap();
            (key(n), (winner.to_owned(), true))
        });
        keys.collect()
    }

    fn check(&self) {
        let journal = self.world.journal();
        let overlaps = journal.overlaps_awake();
        assert!(overlaps.is_empty(), "a key in two hands: {overlaps:#?}");
        let late = late_writes(journal, |write| write.origin.is_some());
        assert!(late.is_empty(), "writes past the deadline: {late:#?}");
    }

    /// In the end each key is processed by its owner only.
    fn settle(&mut self) {
        let expected = self.expected();
        let end = self.world.now() + QUIET;
        loop {
            let writers = self.last_writers();
            if writers == expected {
                break;
            }
            assert!(self.world.now() < end, "{writers:#?} but {expected:#?}");
            self.world.run_for(SECOND * 5);
        }
        self.world.run_for(SECOND * 30);
        let n_before = self.world.journal().n_passes();
        self.world.ask(|person| async move {
            for n in 0..N_KEYS {
                let path = maps("default", &key(n));
                person.patch(&path, &json!({"data": {"version": "last"}})).await;
            }
        });
        self.world.run_for(SECOND * 60);
        assert_eq!(self.last_writers(), expected);
        for pass in &self.world.journal().passes()[n_before..] {
            let name = pass.key.strip_prefix("default/").unwrap();
            assert_eq!(*pass.who, *expected[name].0, "{name}");
        }
    }

    fn rage(mut self) -> Tally {
        let chance = self.rng.random_range(0.0..0.1);
        self.world.set_faults(Faults::stormy(chance));
        for _ in 0..ACTS {
            self.act();
        }
        self.check();
        self.world.set_faults(Faults::default());
        self.settle();
        self.check();
        self.tally.add(&self.world.tally());
        self.tally
    }
}

#[test]
fn sharded_keys_have_one_owner_in_every_storm() {
    let mut tally = Tally::default();
    for seed in seeds(SEEDS) {
        let _replay = Replay::of(seed, "sharded_keys_have_one_owner");
        tally.add(&Group::new(seed, 3).rage());
    }
    println!("{tally:?}");
    let seen =
        ["join", "leave", "kill", "stall", "request into a partition", "write never answered"];
    tally.assert_seen(&seen, 2);
}
