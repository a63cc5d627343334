//! Writes over a store that refuses some and loses the answers of others.
use crate::slow::SlowStore;
use bytes::Bytes;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use setpoint_object::time::{Clock, Timestamp};
use setpoint_registry::{
    Attributes, Body, DeleteOptions, Format, PatchType, Registry, Target, Verb, WriteOptions,
};
use setpoint_store::fault::{FaultStore, Faults};
use setpoint_store::memory::MemoryOptions;
use setpoint_store::{MemoryStore, RangeRequest, Store};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

fn body(value: &Value) -> Body {
    Body { bytes: Bytes::from(value.to_string()), format: Format::Json }
}

#[tokio::test(start_paused = true)]
async fn no_two_services_have_the_same_address_whatever_the_store_does() {
    let mut refused = BTreeSet::new();
    for seed in 0..8 {
        let store = Arc::new(FaultStore::new(
            MemoryStore::new(MemoryOptions::default()),
            Faults::default(),
            seed,
        ));
        let clock = Clock::starting_at(Timestamp(Duration::from_secs(1_795_158_000)));
        let (registry, worker) = Registry::builder(store.clone(), clock).seed(seed).build();
        let (mut tasks, stop) = (JoinSet::new(), CancellationToken::new());
        tasks.spawn(worker.run(stop.clone()));
        registry.ready().wait_for(|ready| *ready).await.unwrap();
        store.set_faults(Faults { unavailable: 0.1, answer_lost: 0.2, feed_broken: 0.0 });
        let options = WriteOptions::default();
        let services = registry.catalog().get("", "v1", "services").unwrap().clone();
        let request = |verb: Verb, name: &str| {
            Attributes::loopback(verb, Target::new(services.clone(), "default", name))
        };
        for i in 0..120_u32 {
            let name = format!("s{}", i % 12);
            let wanted = json!({
                "metadata": {"name": name},
                // A few that all request the same.
                "spec": {"type": "NodePort", "clusterIP": format!("10.0.0.{}", 10 + i % 5), "ports": [{"port": 80, "nodePort": 30_000 + i % 5}]},
            });
            let result = match i % 4 {
                0 => registry
                    .delete(&request(Verb::Delete, &name), &DeleteOptions::default())
                    .await
                    .err(),
                1 => {
                    let flip = json!({"spec": {"type": if i % 8 == 1 { "ClusterIP" } else { "NodePort" }}});
                    let (request, flip) = (request(Verb::Patch, &name), body(&flip));
                    let patch = registry.patch(&request, PatchType::Merge, flip, &options);
                    patch.await.err()
                }
                _ => {
                    registry.create(&request(Verb::Create, ""), body(&wanted), &options).await.err()
                }
            };
            refused.extend(result.map(|e| e.code()));
        }
        let range = RangeRequest::prefix("/registry/services/specs/");
        let entries = store.inner().range(range).await.unwrap().value.entries;
        let (mut addresses, mut ports) = (BTreeSet::new(), BTreeSet::new());
        for entry in entries {
            let service: Value = serde_json::from_slice(&entry.value).unwrap();
            let spec = &service["spec"];
            assert!(
                addresses.insert(spec["clusterIP"].as_str().unwrap().to_owned()),
                "seed {seed}: {service}"
            );
            if let Some(port) = spec["ports"][0]["nodePort"].as_i64() {
                assert!(ports.insert(port), "seed {seed}: {service}");
            }
        }
        store.set_faults(Faults::default());
        stop.cancel();
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap().unwrap();
        }
    }
    assert!(refused.contains(&503) && refused.contains(&504), "the faults happened: {refused:?}");
}

fn policy(rng: &mut impl Rng) -> &'static str {
    ["SingleStack", "PreferDualStack", "RequireDualStack"][rng.random_range(0..3)]
}

/// One of two servers: changes Services that the other one changes too.
async fn change_services(registry: &Registry, seed: u64) -> BTreeSet<u16> {
    let mut rng = rand::rngs::SmallRng::seed_from_u64(seed);
    let options = WriteOptions::default();
    let services = registry.catalog().get("", "v1", "services").unwrap().clone();
    let mut refused = BTreeSet::new();
    for _ in 0..150 {
        let name = format!("s{}", rng.random_range(0..10));
        let request = |verb: Verb, name: &str| {
            Attributes::loopback(verb, Target::new(services.clone(), "default", name))
        };
        let mut spec = json!({"type": "NodePort", "ports": [{"port": 80}]});
        spec["ipFamilyPolicy"] = policy(&mut rng).into();
        if rng.random() {
            // A few that all request the same.
            let [four, six] =
                ["10.0.0.", "fd00:10::"].map(|net| format!("{net}{}", rng.random_range(10..14)));
            spec["clusterIP"] = four.as_str().into();
            if spec["ipFamilyPolicy"] != "SingleStack" && rng.random() {
                spec["clusterIPs"] = json!([four, six]);
            }
        }
        if rng.random() {
            spec["ports"][0]["nodePort"] = rng.random_range(30_000..30_004).into();
        }
        let error = match rng.random_range(0..10) {
            0..4 => {
                let wanted = json!({"metadata": {"name": name}, "spec": spec});
                registry.create(&request(Verb::Create, ""), body(&wanted), &options).await.err()
            }
            4 => registry
                .delete(&request(Verb::Delete, &name), &DeleteOptions::default())
                .await
                .err(),
            5 => {
                for member in ["clusterIP", "clusterIPs"] {
                    spec.as_object_mut().unwrap().remove(member);
                }
                let wanted = json!({"metadata": {"name": name}, "spec": spec});
                registry.update(&request(Verb::Update, &name), body(&wanted), &options).await.err()
            }
            n => {
                let flip = match n {
                    6 => {
                        json!({"spec": {"type": "ExternalName", "externalName": "a.b", "clusterIP": null,
                        "clusterIPs": null, "ports": null}})
                    }
                    7 => {
                        json!({"spec": {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{"port": 80}]}})
                    }
                    // Takes or releases the second address.
                    _ => json!({"spec": {"ipFamilyPolicy": policy(&mut rng)}}),
                };
                let request = request(Verb::Patch, &name);
                let patch = registry.patch(&request, PatchType::Merge, body(&flip), &options);
                patch.await.err()
            }
        };
        refused.extend(error.map(|e| e.code()));
        tokio::task::yield_now().await;
    }
    refused
}

#[tokio::test(start_paused = true)]
async fn two_servers_never_allocate_a_number_twice_or_leak_one_whatever_the_store_does() {
    let mut refused = BTreeSet::new();
    let mut n_six = 0;
    for seed in 0..10 {
        let truth = MemoryStore::new(MemoryOptions::default());
        let (mut tasks, stop) = (JoinSet::new(), CancellationToken::new());
        let mut servers = Vec::new();
        for n in [2 * seed, 2 * seed + 1] {
            let store = FaultStore::new(truth.clone(), Faults::default(), n);
            let store = Arc::new(SlowStore::new(store, n));
            let clock = Clock::starting_at(Timestamp(Duration::from_secs(1_795_158_000)));
            let networks = "10.0.0.0/24,fd00:10::/112".parse().unwrap();
            let builder = Registry::builder(store.clone(), clock).seed(n);
            let (registry, worker) = builder.service_networks(networks).build();
            tasks.spawn(worker.run(stop.clone()));
            registry.ready().wait_for(|ready| *ready).await.unwrap();
            servers.push((registry, store));
        }
        for (_, store) in &servers {
            let faults = Faults { unavailable: 0.03, answer_lost: 0.1, feed_broken: 0.01 };
            store.inner.set_faults(faults);
        }
        let (a, b) = tokio::join!(
            change_services(&servers[0].0, 1000 + seed),
            change_services(&servers[1].0, 2000 + seed),
        );
        refused.extend(a.into_iter().chain(b));
        let (held, claims) = crate::shared::numbers(&truth).await;
        assert_eq!(held, claims, "seed {seed}");
        assert!(held.len() > 4, "seed {seed}: {held:?}");
        n_six += held.keys().filter(|number| number.contains(':')).count();
        for (_, store) in &servers {
            store.inner.set_faults(Faults::default());
        }
        stop.cancel();
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap().unwrap();
        }
    }
    for code in [409, 422, 503, 504] {
        assert!(refused.contains(&code), "the faults and races happened: {refused:?}");
    }
    assert!(n_six > 10, "{n_six}");
}
