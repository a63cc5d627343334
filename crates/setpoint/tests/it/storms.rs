//! The built-in controllers with faults and crashes: they delete exactly the objects that must be
//! deleted.

use crate::plane::{Person, map, maps, network, networks, owner};
use crate::replay::{Replay, assert_same, seeds};
use serde_json::json;
use setpoint::ControlPlane;
use setpoint::object::time::{Clock, Timestamp};
use setpoint::store::fault::{self, FaultStore};
use setpoint::store::{MemoryStore, RangeRequest, Store};
use setpoint::testenv::wire::{Crash, Faults, Wire};
use setpoint_controllers::{GarbageCollector, NamespaceController, Setup};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Number of seeds, unless `SEEDS` is set.
const SEEDS: u64 = 24;
/// Maximum number of requests of the controllers in the quiet minutes at the end: discovery twice a
/// minute, renewed watches.
const REQUESTS_AFTERWARDS_MAX: usize = 600;

/// How long the store fails. A pass over a namespace makes a hundred requests, so few succeed while
/// the store fails.
const STORE_FAILS_FOR: Duration = Duration::from_secs(20);

/// Runs both controllers, and restarts them whenever they die.
async fn lives(wire: Wire) {
    let clock = Clock::starting_at(Timestamp(Duration::from_secs(1_767_225_600)));
    loop {
        let never = CancellationToken::new();
        let mut life = JoinSet::new();
        let setup = Setup::new(wire.client(), clock.clone()).seed(0);
        life.spawn(setup.run(never.clone(), |setup, manager| {
            NamespaceController::new(setup.clone()).add_to(manager)
        }));
        let garbage = GarbageCollector::new(wire.client()).seed(1).run(never.clone());
        life.spawn(async move {
            garbage.await;
            Ok(())
        });
        tokio::select! {
            biased;
            () = wire.crashed() => life.shutdown().await,
            ended = life.join_next() => panic!("a controller ended by itself: {ended:?}"),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

struct Ended {
    /// The keys of all objects except events.
    left: Vec<String>,
    trace: String,
    n_writes: usize,
    n_requests_afterwards: usize,
}

/// Creates objects, deletes them in every way, and waits.
async fn live(
    seed: u64,
    faults: Faults,
    crash: Option<Crash>,
    store_faults: fault::Faults,
) -> Ended {
    let trace = crate::replay::trace();
    let store = FaultStore::new(MemoryStore::default(), fault::Faults::default(), seed);
    let plane = ControlPlane::builder()
        .simulated(seed)
        .store(Arc::new(store.clone()))
        .controllers(false)
        .build();
    let person = Person { client: plane.client() };
    let wire = Wire::new(plane.client(), "controllers", trace.clone(), faults, crash);
    let mut running = JoinSet::new();
    running.spawn(async move { plane.run(CancellationToken::new()).await.unwrap() });
    running.spawn(lives(wire.clone()));

    person.define_networks().await;
    let doomed = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "doomed"}});
    person.create("/api/v1/namespaces", &doomed).await;
    let here = maps("default", "");
    for (name, dependent) in [("a", "b"), ("d", "e"), ("f", "g")] {
        let object = person.create(&here, &map(name, &[])).await;
        person.create(&here, &map(dependent, &[owner(&object)])).await;
        person.create(&maps("doomed", ""), &map(name, &[])).await;
    }
    let mut n = network("n", "10.0.0.0/24", "10.0.0.1");
    person.create(&networks("doomed", ""), &n).await;
    n["metadata"]["ownerReferences"] =
        json!([owner(&person.get(&maps("default", "b")).await.unwrap())]);
    person.create(&networks("default", ""), &n).await;
    // With some seeds the controllers have seen everything by now, with others nothing.
    tokio::time::sleep(Duration::from_millis(seed % 5 * 400)).await;
    store.set_faults(store_faults);
    running.spawn({
        let store = store.clone();
        async move {
            tokio::time::sleep(STORE_FAILS_FOR).await;
            store.set_faults(fault::Faults::default());
        }
    });
    person.delete(&maps("default", "a"), "Background").await;
    person.delete(&maps("default", "d"), "Foreground").await;
    person.delete(&maps("default", "f"), "Orphan").await;
    person.delete("/api/v1/namespaces/doomed", "Background").await;
    for gone in ["a", "b", "d", "e", "f"] {
        person.gone(&maps("default", gone)).await;
    }
    person.gone(&networks("default", "n")).await;
    person.gone("/api/v1/namespaces/doomed").await;
    let g = person.get(&maps("default", "g")).await.expect("an orphan stays");
    assert!(g["metadata"]["ownerReferences"].as_array().is_none_or(Vec::is_empty), "{g}");

    let before = wire.n_requests();
    tokio::time::sleep(Duration::from_secs(180)).await;
    let range = store.inner().range(RangeRequest::prefix("")).await.unwrap();
    let keys = range.value.entries.iter().map(|entry| String::from_utf8_lossy(&entry.key));
    Ended {
        left: keys.filter(|key| !key.contains("/events/")).map(String::from).collect(),
        trace: trace.text(),
        n_writes: wire.n_writes(),
        n_requests_afterwards: wire.n_requests() - before,
    }
}

fn run(seed: u64, faults: Faults, crash: Option<Crash>, store_faults: fault::Faults) -> Ended {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(live(seed, faults, crash, store_faults))
}

#[test]
fn deletions_reach_the_same_state_with_faults_and_crashes() {
    let clean = run(1, Faults::default(), None, fault::Faults::default());
    assert_same(&run(1, Faults::default(), None, fault::Faults::default()).trace, &clean.trace);
    for seed in seeds(SEEDS) {
        let _replay = Replay { seed, test: "deletions_reach_the_same_state" };
        let n = usize::try_from(seed).unwrap() % clean.n_writes + 1;
        let crash = if seed % 2 == 0 { Crash::Before(n) } else { Crash::After(n) };
        // Every other storm affects the store.
        let chance = if seed % 4 < 2 { 0.0 } else { 0.05 };
        let store_faults =
            fault::Faults { unavailable: chance, answer_lost: chance, feed_broken: chance / 5.0 };
        let faults = Faults { seed, chance: 0.1, faults_max: 60 };
        let ended = run(seed, faults, Some(crash), store_faults);
        assert_eq!(ended.left, clean.left);
        assert!(
            ended.n_requests_afterwards <= REQUESTS_AFTERWARDS_MAX,
            "{} requests",
            ended.n_requests_afterwards
        );
    }
}
