//! Many networks are created, changed and deleted at random, with conflicts and faults. In the end
//! the address registry and the objects must agree.

use crate::plane::{Person, network, networks};
use crate::replay::{Replay, seeds};
use crate::world::lives;
use network::subnet::Subnet;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use setpoint::ControlPlane;
use setpoint::testenv::wire::{Crash, Faults, Wire};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Number of seeds, unless `SEEDS` is set.
const SEEDS: u64 = 40;
/// Number of user actions in one run.
const ACTS: usize = 25;
/// Longer than two of the longest back-offs, 1000 s each: a network that waits for a released range
/// has retried by then.
const QUIET: Duration = Duration::from_secs(2500);
/// Requested ranges: nested, disjoint and invalid ones.
const RANGES: &[(&str, &str)] = &[
    ("10.0.0.0/16", "10.0.0.1"),
    ("10.0.1.0/24", "10.0.1.1"),
    ("10.0.2.0/24", "10.0.2.1"),
    ("10.1.0.0/16", "10.1.0.1"),
    ("10.1.0.0/24", "10.1.0.9"),
    ("10.2.0.0/24", "10.2.0.1"),
    ("10.2.0.1/24", "10.2.0.1"),
    ("10.2.0.0/24", "10.3.0.1"),
];
const NAMES: &[&str] = &["a", "b", "c", "d", "e"];

/// One user action; impossible ones (creating an existing object, editing a missing one) are
/// ignored.
async fn act(person: &Person, rng: &mut SmallRng) {
    let name = NAMES[rng.random_range(0..NAMES.len())];
    let (cidr, gateway) = RANGES[rng.random_range(0..RANGES.len())];
    let path = networks("default", name);
    let json_type = "application/json";
    let _ = match rng.random_range(0..10) {
        0..5 => {
            let object = network(name, cidr, gateway);
            person.request("POST", &networks("default", ""), json_type, &object).await
        }
        5..8 => {
            let patch = json!({"spec": {"cidr": cidr, "gateway": gateway}});
            person.request("PATCH", &path, "application/merge-patch+json", &patch).await
        }
        _ => person.request("DELETE", &path, json_type, &Value::Null).await,
    };
}

fn subnet(value: &Value) -> Option<Subnet> {
    value.as_str()?.parse().ok()
}

/// A difference between the registry on disk and an object.
fn fault(object: &Value, held: &serde_json::Map<String, Value>) -> Option<String> {
    let (metadata, spec, status) = (&object["metadata"], &object["spec"], &object["status"]);
    let uid = metadata["uid"].as_str().unwrap();
    let entry = held.get(uid).unwrap_or(&Value::Null);
    let ready = &status["conditions"][0];
    if metadata["generation"] != status["observedGeneration"] {
        return Some("the last edit was not looked at".into());
    }
    if entry["cidr"] != status["cidr"] {
        return Some(format!("on disk it has {entry}"));
    }
    let right = match ready["reason"].as_str().unwrap_or_default() {
        "Synced" => status["cidr"] == spec["cidr"] && status["gateway"] == spec["gateway"],
        "RangeTaken" => subnet(&spec["cidr"]).is_some_and(|wanted| {
            let others = held.iter().filter(|(holder, _)| **holder != uid);
            others.filter_map(|(_, entry)| subnet(&entry["cidr"])).any(|o| o.overlaps(&wanted))
        }),
        "InvalidSpec" => {
            subnet(&spec["cidr"]).is_none() || spec["gateway"].as_str() == Some("10.3.0.1")
        }
        _ => false,
    };
    (!right).then(|| "its condition is wrong".to_owned())
}

async fn live(seed: u64) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let folder = tempfile::tempdir().unwrap();
    let registry = folder.path().join("networks.json");
    let plane = ControlPlane::builder().simulated(seed).controllers(false).build();
    let person = Person { client: plane.client() };
    let crash = match seed % 3 {
        0 => None,
        1 => Some(Crash::Before(rng.random_range(1..40))),
        _ => Some(Crash::After(rng.random_range(1..40))),
    };
    let faults = Faults { seed, chance: 0.2, faults_max: 100 };
    let trace = crate::replay::trace();
    let wire = Wire::new(plane.client(), "controller", trace.clone(), faults, crash);
    let mut running = JoinSet::new();
    running.spawn(async move { plane.run(CancellationToken::new()).await.unwrap() });
    person.define_networks().await;
    let present = Arc::new(Mutex::new(None));
    running.spawn(lives(wire.clone(), seed, registry.clone(), present, CancellationToken::new()));

    for _ in 0..ACTS {
        act(&person, &mut rng).await;
        // Often immediately, sometimes long enough for everything to settle.
        let pause = [0, 0, 1, 5, 50, 500, 20_000][rng.random_range(0..7)];
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
    wire.stop_faults();
    tokio::time::sleep(QUIET).await;

    let text = std::fs::read_to_string(&registry).unwrap_or_else(|_| "{}".into());
    let held: serde_json::Map<String, Value> = serde_json::from_str(&text).unwrap();
    let list = person.get(&networks("default", "")).await.unwrap();
    let objects = list["items"].as_array().unwrap();
    for object in objects {
        assert_eq!(fault(object, &held), None, "{object:#}\nheld: {held:#?}");
    }
    for (uid, entry) in &held {
        let is_there = objects.iter().any(|object| object["metadata"]["uid"] == uid.as_str());
        assert!(is_there, "nobody owns {entry}");
    }
    let n = wire.n_requests();
    assert!(n < 2000, "{n} requests");
}

#[test]
fn registry_and_objects_agree_in_the_end() {
    for seed in seeds(SEEDS) {
        let _replay = Replay { seed, test: "registry_and_objects_agree" };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(live(seed));
    }
}
