//! A controller with caches of several namespaces of a real API server (CCH-3, CCH-4).

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube_core::ResourceExt;
use kube_core::params::{DeleteParams, ListParams};
use serde_json::json;
use setpoint::ControlPlane;
use setpoint::object::label::Selector;
use setpoint::object::time::Timestamp;
use setpoint::runtime::cache::{ALL_NAMESPACES, CacheConfig, Namespaces};
use setpoint::runtime::{
    Action, Api, BoxError, CacheOptions, Children, ClientError, Clock, Context, Controller,
    Manager, Request, Watch, children::Child,
};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Creates one secret per entry of a map, and deletes others.
async fn reconcile(request: Request, context: Context) -> Result<Action, BoxError> {
    let (maps, secrets) = (context.client().api::<ConfigMap>(), context.client().api::<Secret>());
    let Some(map) = maps.get(&request)? else { return Ok(Action::await_change()) };
    if !map.labels().contains_key("secrets") {
        return Ok(Action::await_change());
    }
    let children = map.data.iter().flatten().map(|(name, _)| {
        let key = Request::new(request.namespace.clone(), format!("{}-{name}", request.name));
        let made = json!({"metadata": {"namespace": *key.namespace, "name": *key.name}});
        let make = move |existing: Option<Secret>| {
            existing.unwrap_or_else(|| serde_json::from_value(made).unwrap())
        };
        Child::make(key, make)
    });
    Children::of(&*map, &())?.run(&secrets, children).await?;
    Ok(Action::await_change())
}

fn map(namespace: &str, entries: &[&str]) -> ConfigMap {
    let data: std::collections::BTreeMap<_, _> = entries.iter().map(|entry| (*entry, "")).collect();
    let object = json!({
        "metadata": {"namespace": namespace, "name": "m", "labels": {"secrets": "yes"}},
        "data": data,
    });
    serde_json::from_value(object).unwrap()
}

async fn names(secrets: &Api<Secret>) -> String {
    let held = secrets.list_live(None, &ListParams::default()).await.unwrap();
    let name = |of: &Secret| format!("{}/{}", of.namespace().unwrap(), of.name_any());
    held.iter().map(name).collect::<Vec<_>>().join(" ")
}

#[tokio::test(start_paused = true)]
async fn cch_4_owned_objects_of_several_namespaces_are_maintained_and_pruned() {
    let plane = ControlPlane::builder().simulated(1).build();
    let clock = Clock::starting_at(Timestamp(Duration::from_secs(1_767_225_600)));
    // `a` separately, and all other namespaces, without duplicates.
    let chosen = ["a", ALL_NAMESPACES].map(|name| (name.to_owned(), CacheConfig::default()));
    let both = CacheOptions::new().namespaces_with(Namespaces::from(chosen)).unwrap();
    let named = CacheOptions::new().namespaces(["a", "b"]).unwrap();
    let mut ready = plane.ready();
    let kube = plane.client();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { plane.run(CancellationToken::new()).await.unwrap() });
    ready.wait_for(|ready| *ready).await.unwrap();

    for (rules, others) in [(named, false), (both, true)] {
        let mut manager =
            Manager::builder(kube.clone()).clock(clock.clone()).seed(1).cache(rules).build();
        let controller = Controller::builder("secrets")
            .for_(Watch::<ConfigMap>::new())
            .owns(Watch::<Secret>::new())
            .build(reconcile)
            .unwrap();
        let handle = manager.add(controller).unwrap();
        let client = manager.client().clone();
        let maps = client.api::<ConfigMap>();
        let secrets = client.api::<Secret>();
        let stop = CancellationToken::new();
        let mut running = JoinSet::new();
        running.spawn(manager.run(stop.clone()));
        for name in ["a", "b", "c"] {
            let namespace: Namespace =
                serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
            let made = client.api::<Namespace>().create(&namespace).await;
            assert!(made.is_ok() || made.is_err_and(|error| error.is_already_exists()));
            maps.create(&map(name, &["x", "y"])).await.unwrap();
        }
        let quiet = || tokio::time::sleep(Duration::from_secs(60));
        quiet().await;
        let in_c = if others { " c/m-x c/m-y" } else { "" };
        assert_eq!(names(&secrets).await, format!("a/m-x a/m-y b/m-x b/m-y{in_c}"));

        // A deleted child is recreated, in any namespace; an undeclared one is deleted.
        for namespace in ["a", "b"] {
            let key = Request::new(namespace, "m-x");
            secrets.delete(&key, &DeleteParams::default()).await.unwrap();
            quiet().await;
            assert!(secrets.get(&key).unwrap().is_some());
            maps.update_with_retry(&Request::new(namespace, "m"), |map| {
                map.data.as_mut().unwrap().remove("y");
            })
            .await
            .unwrap();
        }
        quiet().await;
        assert_eq!(names(&secrets).await, format!("a/m-x b/m-x{in_c}"));
        let cached = secrets.list(None, &Selector::everything()).unwrap().len();
        assert_eq!(cached, if others { 4 } else { 2 }, "no object twice");
        let elsewhere = secrets.get(&Request::new("c", "m-x"));
        match others {
            true => assert!(elsewhere.unwrap().is_some()),
            false => assert!(matches!(elsewhere, Err(ClientError::NamespaceNotCached(_)))),
        }
        assert_eq!(handle.stats().error, 0);

        for namespace in ["a", "b", "c"] {
            let key = Request::new(namespace, "m");
            maps.delete(&key, &DeleteParams::background()).await.unwrap();
        }
        quiet().await;
        assert_eq!(names(&secrets).await, "", "the garbage collector has taken them");
        stop.cancel();
        running.join_next().await.unwrap().unwrap().unwrap();
    }
}
