//! What a manager's cache holds, and when.

use std::time::Duration;

use expect_test::expect;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube_core::{ApiResource, DynamicObject, metadata::PartialObjectMeta};
use serde_json::json;
use setpoint_informer::ResourceType;
use setpoint_runtime::{
    Action, BoxError, CacheOptions, ClientError, Context, Controller, ControllerState, Request,
    Watch,
    cache::{ByType, CacheConfig},
};

use tokio::time::Instant;

use crate::{
    controller::chain,
    server::Server,
    world::{CONFIG_MAPS, EVENTS, PODS, Running, Trace, builder, config_map, pass, settle},
};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test(start_paused = true)]
async fn cch_1_rules_of_one_type_apply_to_that_type_only() {
    let server = Server::new(&[CONFIG_MAPS, PODS, EVENTS]);
    for namespace in ["a", "b"] {
        for (resource, kind) in [("configmaps", "ConfigMap"), ("pods", "Pod")] {
            let object = json!({
                "apiVersion": "v1", "kind": kind,
                "metadata": {"name": "x", "annotations": {"long": "text"}},
            });
            server.put(&format!("/api/v1/namespaces/{namespace}/{resource}"), object);
        }
    }
    let config = CacheConfig::new().transform(|object: bytes::Bytes| {
        let text = String::from_utf8_lossy(&object).replace("\"long\":\"text\"", "");
        Ok(text.into_bytes().into())
    });
    let of_maps = ByType::new().namespaces(["a"]).config(config);
    let rules = CacheOptions::new().of::<ConfigMap>(&(), of_maps).unwrap();
    let manager = builder(&server).cache(rules).build();
    let maps = manager.cache().informer::<ConfigMap>();
    let pods = manager.cache().informer::<Pod>();
    let running = Running::start(manager);
    settle().await;
    assert_eq!((maps.lister().len(), pods.lister().len()), (1, 2));
    let map = maps.lister().get("a", "x").unwrap().unwrap();
    assert!(map.metadata.annotations.clone().unwrap_or_default().is_empty(), "{map:?}");
    let pod = pods.lister().get("b", "x").unwrap().unwrap();
    assert_eq!(pod.metadata.annotations.as_ref().unwrap()["long"], "text");
    running.stop().await.unwrap();
}

/// One informer per namespace.
#[tokio::test(start_paused = true)]
async fn status_of_a_type_has_the_panics_of_all_its_informers() {
    let server = Server::new(&[CONFIG_MAPS, EVENTS]);
    let options = CacheOptions::new().namespaces(["a", "b", "c"]).unwrap();
    let manager = builder(&server).cache(options).build();
    let maps = manager.cache().informer::<ConfigMap>();
    let index = |map: &ConfigMap| match map.metadata.namespace.as_deref() {
        Some("a") => Vec::new(),
        namespace => panic!("{namespace:?}"),
    };
    maps.add_index("fails", index).unwrap();
    let running = Running::start(manager);
    settle().await;
    assert_eq!(maps.status().panics, 0);
    for namespace in ["a", "b", "c"] {
        server.put(&format!("/api/v1/namespaces/{namespace}/configmaps"), config_map("x"));
    }
    settle().await;
    let status = maps.status();
    assert_eq!(status.panics, 2);
    let last = status.last_panic.unwrap();
    assert!(last.contains("fails"), "{last}");
    running.stop().await.unwrap();
}

/// How long a change stays unknown that a watch did not bring before it fell silent.
async fn silence(options: CacheOptions) -> Duration {
    let server = Server::new(&[CONFIG_MAPS, EVENTS]);
    let manager = builder(&server).cache(options).build();
    let maps = manager.cache().informer::<ConfigMap>();
    let running = Running::start(manager);
    settle().await;
    server.bookmark(CONFIG_MAPS);
    settle().await;
    server.mute_watches();
    server.put(MAPS, config_map("a"));
    settle().await;
    server.unmute_watches();
    let begun = Instant::now();
    while maps.lister().is_empty() {
        pass(Duration::from_secs(1)).await;
    }
    running.stop().await.unwrap();
    begun.elapsed()
}

#[tokio::test(start_paused = true)]
async fn watch_that_fell_silent_is_replaced_after_the_time_of_the_options() {
    let second = Duration::from_secs(1);
    let within = |took: Duration, timeout: Duration| {
        assert!(took + second >= timeout && took <= timeout * 5 / 4 + second, "{took:?}");
    };
    within(silence(CacheOptions::new()).await, 90 * second);
    within(silence(CacheOptions::new().watch_quiet_timeout(20 * second)).await, 20 * second);
    let off = silence(CacheOptions::new().watch_quiet_timeout(Duration::ZERO)).await;
    assert!(off >= 300 * second, "{off:?}: the watch's own timeout");
}

#[tokio::test(start_paused = true)]
async fn failures_of_all_caches_are_handled() {
    let (server, trace) = (Server::new(&[CONFIG_MAPS, EVENTS]), Trace::default());
    server.forbid(CONFIG_MAPS);
    let sink = trace.clone();
    let options = CacheOptions::new().on_error(move |resource: &ResourceType, error| {
        sink.record(format!("{resource}: {error}"));
    });
    let manager = builder(&server).cache(options).build();
    manager.cache().informer_unawaited::<ConfigMap>(&());
    let running = Running::start(manager);
    settle().await;
    expect!["configmaps: failed to list configmaps"].assert_eq(&trace.take());
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn cch_10_a_removed_cache_stops_and_a_later_request_starts_a_new_one() {
    let (server, trace) = (Server::new(&[CONFIG_MAPS, EVENTS]), Trace::default());
    server.put(MAPS, config_map("a"));
    let sink = trace.clone();
    let controller = Controller::builder("config").for_(Watch::<ConfigMap>::new());
    let controller = controller.build(move |request: Request, _: Context| {
        sink.record(request.to_string());
        std::future::ready(Ok::<_, BoxError>(Action::await_change()))
    });
    let mut manager = builder(&server).build();
    let handle = manager.add(controller.unwrap()).unwrap();
    let (cache, maps) = (manager.cache().clone(), manager.client().api::<ConfigMap>());
    let before = cache.informer::<ConfigMap>();
    before.add_index("by-name", |map| map.metadata.name.iter().cloned().collect()).unwrap();
    let mut running = Running::start(manager);
    settle().await;
    assert_eq!((trace.take().as_str(), server.watchers(CONFIG_MAPS)), ("default/a", 1));

    assert!(cache.remove::<ConfigMap>());
    assert!(!cache.remove::<ConfigMap>(), "it is gone");
    before.stopped().await;
    server.put(MAPS, config_map("b"));
    settle().await;
    assert_eq!((trace.take().as_str(), server.watchers(CONFIG_MAPS)), ("", 0));
    let read = maps.get(&Request::new("default", "a"));
    assert!(matches!(read, Err(ClientError::NotCached { .. })), "{read:?}");
    assert_eq!(before.lister().len(), 1, "who holds it reads what was there");
    // The controller goes on, and its source is reported as stopped.
    assert_eq!(handle.state(), ControllerState::Running);
    assert!(handle.sources()[0].has_stopped);

    let again = cache.informer::<ConfigMap>();
    again.synced().await.unwrap();
    assert_eq!(again.lister().len(), 2);
    assert!(again.lister().by_index("by-name", "a").is_err(), "indexes must be declared again");
    settle().await;
    assert_eq!(trace.take(), "", "a watch is of the informer that it began with");
    let watch = handle.watches::<Request>().unwrap().objects(Watch::<ConfigMap>::new()).unwrap();
    assert!(watch.synced().await);
    settle().await;
    assert_eq!(trace.take(), "default/a · default/b");
    assert_eq!(server.watchers(CONFIG_MAPS), 1);

    // A lease of the removed cache does not keep the new one.
    assert!(cache.remove::<ConfigMap>());
    let after = handle.watches::<Request>().unwrap().objects(Watch::<ConfigMap>::new()).unwrap();
    assert!(after.synced().await);
    assert!(watch.remove());
    settle().await;
    assert_eq!((server.watchers(CONFIG_MAPS), maps.lister().is_ok()), (1, true));
    assert!(after.remove());
    settle().await;
    assert_eq!((server.watchers(CONFIG_MAPS), maps.lister().is_err()), (0, true));
    running.stop.cancel();
    running.ended().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn cch_10_a_controller_that_waits_for_a_removed_cache_fails() {
    let server = Server::new(&[EVENTS]);
    let controller = Controller::builder("config").for_(Watch::<ConfigMap>::new());
    let controller = controller.build(|_: Request, _: Context| {
        std::future::ready(Ok::<_, BoxError>(Action::await_change()))
    });
    let mut manager = builder(&server).build();
    manager.add(controller.unwrap()).unwrap();
    let cache = manager.cache().clone();
    let mut running = Running::start(manager);
    pass(Duration::from_secs(1)).await;
    assert!(cache.remove::<ConfigMap>());
    let error = chain(&running.ended().await.unwrap_err());
    assert!(error.contains("the informer of configmaps has stopped"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn cch_9_and_11_indexes_can_be_declared_at_any_time_without_waiting() {
    let (server, trace) = (Server::new(&[CONFIG_MAPS, EVENTS]), Trace::default());
    server.put(MAPS, config_map("a"));
    let mut manager = builder(&server).build();
    let (cache, maps) = (manager.cache().clone(), manager.client().api::<ConfigMap>());
    // Pods are not served.
    let pods = cache.informer_unawaited::<Pod>(&());
    let sink = trace.clone();
    let task = move |_| async move {
        sink.record("it runs");
        Ok(())
    };
    manager.add_task("task", task).unwrap();
    let running = Running::start(manager);
    pass(Duration::from_secs(1)).await;
    assert_eq!((trace.take().as_str(), pods.has_synced()), ("it runs", false));
    let read = maps.get(&Request::new("default", "a"));
    assert!(matches!(read, Err(ClientError::NotCached { .. })), "a read starts nothing");

    let by_name = |map: &ConfigMap| map.metadata.name.iter().cloned().collect();
    let informer = cache.informer::<ConfigMap>();
    informer.add_index("by-name", by_name).unwrap();
    settle().await;
    let found = |value: &str| maps.select().index("by-name", value).all().unwrap().len();
    assert_eq!((found("a"), found("b")), (1, 0));
    // A late index covers the objects that are already cached.
    informer.add_index("by-name-too", by_name).unwrap();
    let by_both = maps.select().index("by-name", "a").index("by-name-too", "a");
    assert_eq!(by_both.all().unwrap().len(), 1);
    let taken = cache.informer::<ConfigMap>().add_index("by-name", by_name).unwrap_err();
    assert!(taken.to_string().contains("by-name"), "{taken}");
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn types_of_one_resource_share_one_watch_and_are_removed_together() {
    let server = Server::new(&[EVENTS]);
    server.put(MAPS, config_map("a"));
    let controller = Controller::builder("config").for_(Watch::<ConfigMap>::new());
    let controller = controller.build(|_: Request, _: Context| {
        std::future::ready(Ok::<_, BoxError>(Action::await_change()))
    });
    let mut manager = builder(&server).build();
    // Metadata requested before whole objects shares their watch too.
    let metadata = manager.cache().informer::<PartialObjectMeta<ConfigMap>>();
    manager.add(controller.unwrap()).unwrap();
    let (cache, client) = (manager.cache().clone(), manager.client().clone());
    let running = Running::start(manager);
    settle().await;
    let unsynced = cache.unsynced();
    assert_eq!(unsynced.len(), 1, "{unsynced:?}");
    server.serve(CONFIG_MAPS);
    pass(Duration::from_secs(60)).await;
    assert_eq!((server.watchers(CONFIG_MAPS), server.asked_as_metadata(CONFIG_MAPS)), (1, false));
    let map = metadata.lister().get("default", "a").unwrap().unwrap();
    assert_eq!(map.metadata.name.as_deref(), Some("a"));

    // This type was never requested: it reads the cache of its resource.
    let resource = ApiResource::erase::<ConfigMap>(&());
    let (maps, dynamic) =
        (client.api::<ConfigMap>(), client.api_with::<DynamicObject>(resource.clone()));
    let key = Request::new("default", "a");
    assert!(dynamic.get(&key).unwrap().is_some() && maps.get(&key).unwrap().is_some());
    server.put(MAPS, config_map("b"));
    settle().await;
    assert_eq!((dynamic.lister().unwrap().len(), metadata.lister().len()), (2, 2));
    let lease = cache.informer_with::<DynamicObject>(&resource);
    assert_eq!((lease.has_synced(), server.watchers(CONFIG_MAPS)), (true, 1));

    assert!(cache.remove_with::<DynamicObject>(&resource));
    settle().await;
    assert_eq!(server.watchers(CONFIG_MAPS), 0);
    assert!(matches!(maps.get(&key), Err(ClientError::NotCached { .. })));
    assert!(matches!(dynamic.get(&key), Err(ClientError::NotCached { .. })));
    assert!(metadata.has_stopped() && lease.has_stopped());
    running.stop().await.unwrap();
}
