//! Random histories, faults and handlers, each a function of its seed (spec §9).
use crate::model::{Model, Objects};
use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use setpoint_informer::{
    CachePolicy, Event, Handler, HandlerOptions, HandlerRegistration, SharedInformer,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// How many seeds a normal run tries.
const SEEDS: u64 = 300;

/// What one handler has been told, checked as it is told.
#[derive(Clone, Default)]
struct Witness(Arc<Mutex<Told>>);

#[derive(Default)]
struct Told {
    believes: Objects,
    newest: Objects,
    trace: Vec<String>,
}

/// A handler that may dawdle.
struct Slow {
    witness: Witness,
    rng: SmallRng,
    dawdles: f64,
}

impl Handler<ConfigMap> for Slow {
    async fn handle(&mut self, event: Event<ConfigMap>) {
        if self.rng.random_bool(self.dawdles) {
            sleep(Duration::from_millis(self.rng.random_range(1..3000))).await;
        }
        self.witness.hear(&event);
    }
}

impl Witness {
    fn hear(&self, event: &Event<ConfigMap>) {
        let mut told = self.0.lock();
        told.trace.push(format!("{event:?}"));
        let name = event.key().name.to_string();
        let version: u64 = event.object().unwrap().resource_version().parse().unwrap();
        // Invariant 3.
        let newest = told.newest.insert(name.clone(), version);
        assert!(newest.is_none_or(|newest| newest <= version), "{event:?} goes back");
        // Invariant 2.
        match event {
            Event::Added { .. } => {
                assert_eq!(told.believes.insert(name, version), None, "{event:?} added twice");
            }
            Event::Updated { old, .. } => {
                let old: u64 = old.resource_version().parse().unwrap();
                assert_eq!(told.believes.insert(name, version), Some(old), "{event:?}");
            }
            Event::Deleted { .. } => {
                assert!(told.believes.remove(&name).is_some(), "{event:?} was not there");
            }
            other => panic!("{other:?}"),
        }
    }
}

fn join(
    informer: &SharedInformer<ConfigMap>,
    rng: &mut SmallRng,
) -> (Witness, HandlerRegistration) {
    let witness = Witness::default();
    let dawdles = if rng.random_bool(0.5) { 0.0 } else { 0.5 };
    let handler =
        Slow { witness: witness.clone(), rng: SmallRng::seed_from_u64(rng.random()), dawdles };
    let options = HandlerOptions::default().queue_max(rng.random_range(1..8));
    let registration = informer.add_handler(handler, options).unwrap();
    (witness, registration)
}

/// One life of an informer. Returns everything that was asked and told.
async fn live(seed: u64) -> Vec<String> {
    let mut rng = SmallRng::seed_from_u64(seed);
    let model = Model::new(rng.random(), rng.random());
    for _ in 0..rng.random_range(0..8) {
        model.write();
    }
    let policy = if rng.random() { CachePolicy::Compact } else { CachePolicy::Decoded };
    let resync = if rng.random() { Duration::from_secs(7) } else { Duration::ZERO };
    let (informer, worker) = SharedInformer::<ConfigMap>::builder(model.clone())
        .policy(policy)
        .resync(resync)
        .seed(rng.random())
        .index("v", |map: &ConfigMap| {
            map.data.iter().flat_map(|data| data["v"].chars().last()).map(String::from).collect()
        })
        .build();
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    let mut handlers = vec![join(&informer, &mut rng), join(&informer, &mut rng)];
    tasks.spawn(worker.run(stop.clone()));

    for _ in 0..rng.random_range(10..60) {
        sleep(Duration::from_millis(rng.random_range(0..1500))).await;
        match rng.random_range(0..20) {
            0 => handlers.push(join(&informer, &mut rng)),
            1 if handlers.len() > 2 => {
                let at = rng.random_range(0..handlers.len());
                let (witness, registration) = handlers.swap_remove(at);
                registration.remove_and_wait().await;
                let heard = witness.0.lock().trace.len();
                sleep(Duration::from_millis(500)).await;
                assert_eq!(witness.0.lock().trace.len(), heard, "invariant 13");
            }
            _ => model.write(),
        }
        let snapshot = informer.lister().snapshot();
        if informer.has_synced() {
            let version: u64 = snapshot.resource_version().parse().unwrap();
            assert!(version <= model.version());
        } else {
            assert!(snapshot.is_empty(), "invariant 14: nothing shows before the first whole list");
        }
    }

    // Invariant 1: no more faults and writes, and some time.
    model.heal();
    informer.synced().await.unwrap();
    sleep(Duration::from_secs(300)).await;
    let want = model.objects();
    let snapshot = informer.lister().snapshot();
    let have: Objects = snapshot
        .iter()
        .map(|object| (object.name().to_owned(), object.resource_version().parse().unwrap()))
        .collect();
    assert_eq!(have, want, "the cache equals the server");
    let mut index: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, version) in &want {
        let digit = version.to_string().chars().last().unwrap();
        index.entry(digit.to_string()).or_default().push(name.clone());
    }
    let indexed: BTreeMap<String, Vec<String>> = snapshot
        .index_values("v")
        .iter()
        .map(|value| {
            let keys = snapshot.index_keys("v", value).unwrap();
            (value.to_string(), keys.iter().map(|key| key.name.to_string()).collect())
        })
        .collect();
    assert_eq!(indexed, index, "the index equals a recomputation");
    // Invariant 5: early or late, slow or quick, every handler believes the same.
    let mut trace = model.requests();
    for (witness, registration) in &handlers {
        registration.synced().await.unwrap();
        let told = witness.0.lock();
        assert_eq!(told.believes, want);
        assert_eq!(registration.panics(), 0);
        trace.extend(told.trace.iter().cloned());
    }
    stop.cancel();
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    trace
}

fn run(seed: u64) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(live(seed))
}

#[test]
fn invariants_1_2_3_5_13_14_hold_for_random_histories_faults_and_handlers() {
    for seed in 0..SEEDS {
        let outcome = std::panic::catch_unwind(|| run(seed));
        assert!(outcome.is_ok(), "seed {seed}");
    }
}

#[test]
fn a_life_is_a_function_of_its_seed() {
    for seed in 0..10 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
    assert_ne!(run(1), run(2));
}
