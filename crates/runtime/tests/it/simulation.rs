//! A controller under faults: whatever is cut, refused, lost or killed on the way, the actual state
//! matches the declared one in the end.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::Method;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube_core::params::DeleteParams;
use parking_lot::Mutex;
use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde_json::{Value, json};
use setpoint_runtime::{
    Action, BoxError, Context, Controller, Finalize, Request, Watch, create_or_update, finalizer,
};

use crate::{
    server::Server,
    world::{CONFIG_MAPS, EVENTS, PODS, Running, builder, pass},
};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const ITS_PODS: &str = "/api/v1/namespaces/default/pods";
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// The keys that are being reconciled.
type Held = Arc<Mutex<BTreeMap<String, Arc<AtomicBool>>>>;

/// Gives each ConfigMap a Pod with its number, and deletes the Pod before the ConfigMap.
async fn mirror(request: Request, context: Context, held: Held) -> Result<Action, BoxError> {
    let flag = held.lock().entry(request.to_string()).or_default().clone();
    assert!(!flag.swap(true, Ordering::SeqCst), "{request} is reconciled twice at the same time");
    let _released = Released(flag);
    let maps = context.client().api::<ConfigMap>();
    let pods = context.client().api::<Pod>();
    let Some(map) = maps.get(&request)? else { return Ok(Action::await_change()) };
    let pass = async |asked: Finalize<ConfigMap>| match asked {
        Finalize::Apply(map) => {
            let number =
                map.data.as_ref().and_then(|data| data.get("n")).cloned().unwrap_or_default();
            create_or_update(&pods, &request, |existing| {
                let mut pod = existing.unwrap_or_default();
                pod.metadata.name = Some(request.name.to_string());
                pod.metadata.namespace = Some(request.namespace.to_string());
                pod.metadata.labels.get_or_insert_default().insert("n".into(), number);
                pod
            })
            .await?;
            Ok::<_, BoxError>(Action::await_change())
        }
        Finalize::Cleanup(_) => {
            pods.delete(&request, &DeleteParams::default()).await?;
            Ok(Action::await_change())
        }
    };
    Ok(finalizer(&maps, "example.com/mirror", map, pass).await?)
}

/// Removes a key from the reconciled ones, even if the pass is killed.
struct Released(Arc<AtomicBool>);

impl Drop for Released {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

fn start(server: &Server, seed: u64) -> Running {
    let held = Held::default();
    let map = |event: &setpoint_informer::Event<Pod>| vec![event.key().clone()];
    let controller = Controller::builder("mirror")
        .for_(Watch::<ConfigMap>::new())
        .watches(Watch::<Pod>::new(), map)
        .concurrency(2)
        .build(move |request, context| mirror(request, context, held.clone()))
        .unwrap();
    let mut manager = builder(server).seed(seed).build();
    manager.add(controller).unwrap();
    Running::start(manager)
}

/// Plays a random history; returns the final state.
async fn live(seed: u64) -> Vec<Value> {
    let mut rng = SmallRng::seed_from_u64(seed);
    let server = Server::new(&[CONFIG_MAPS, PODS, EVENTS]);
    let mut running = start(&server, seed);
    for n in 0..80 {
        let name = NAMES[rng.random_range(0..NAMES.len())];
        match rng.random_range(0..12) {
            0..4 => {
                let path = format!("{MAPS}/{name}");
                let mut map = server.get(&path).unwrap_or_else(
                    || json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}),
                );
                map["data"] = json!({"n": n.to_string()});
                server.put(MAPS, map);
            }
            4 | 5 => server.delete(&format!("{MAPS}/{name}")),
            6 => server.delete(&format!("{ITS_PODS}/{name}")),
            7 => server.cut_watches(rng.random()),
            8 | 9 => {
                let methods = [Method::POST, Method::PATCH, Method::DELETE, Method::GET];
                let method = methods[rng.random_range(0..methods.len())].clone();
                let code = [0, 1, 409, 500, 503][rng.random_range(0..5)];
                server.fail_next(method, ["pods", "configmaps"][rng.random_range(0..2)], code);
            }
            10 => {
                // As a killed process: nothing is awaited or flushed.
                drop(running);
                running = start(&server, seed + n);
            }
            _ => server.delay_watches(Duration::from_millis(rng.random_range(0..300))),
        }
        if rng.random() {
            pass(Duration::from_millis(rng.random_range(0..2_000))).await;
        }
    }
    server.heal();
    pass(Duration::from_secs(1_200)).await;

    let maps = server.list(CONFIG_MAPS);
    let pods = server.list(PODS);
    assert!(
        maps.iter().all(|map| map["metadata"]["deletionTimestamp"].is_null()),
        "seed {seed}: a deletion hangs: {maps:#?}"
    );
    let wanted: Vec<_> =
        maps.iter().map(|map| (&map["metadata"]["name"], &map["data"]["n"])).collect();
    let made: Vec<_> = pods
        .iter()
        .map(|pod| (&pod["metadata"]["name"], &pod["metadata"]["labels"]["n"]))
        .collect();
    assert_eq!(made, wanted, "seed {seed}");
    server.take_writes();
    pass(Duration::from_secs(1_200)).await;
    assert_eq!(
        server.take_writes(),
        Vec::<String>::new(),
        "seed {seed}: at rest nothing is written"
    );
    running.stop().await.unwrap();
    maps.into_iter().chain(pods).collect()
}

#[test]
fn actual_state_matches_the_declared_one_after_any_faults() {
    for seed in 0..30 {
        let run = || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .start_paused(true)
                .build()
                .unwrap();
            runtime.block_on(live(seed))
        };
        let left = run();
        if seed < 10 {
            assert_eq!(run(), left, "seed {seed}: the same seed is the same history");
        }
    }
}
