//! Types that are cached for several namespaces: one informer each, behind one API (CCH-3, CCH-4).

use std::{sync::Arc, time::Duration};

use expect_test::expect;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube_core::{ApiResource, DynamicObject, params::DeleteParams};
use serde_json::{Value, json};
use setpoint_object::label::Selector;
use setpoint_runtime::{
    Action, BoxError, Cache, CacheOptions, ClientError, Context, Controller, ControllerState,
    ManagerBuilder, Request, Watch,
    cache::{ALL_NAMESPACES, ByType, CacheConfig, Namespaces},
};
use tokio::time::Instant;

use crate::{
    controller::chain,
    server::Server,
    world::{CONFIG_MAPS, EVENTS, PODS, Running, Trace, builder, config_map, pass, settle},
};

const NODES: &str = "/api/v1/nodes";

fn server() -> Server {
    Server::new(&[CONFIG_MAPS, PODS, NODES, EVENTS])
}

fn maps_in(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps")
}

fn pods_in(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods")
}

/// A manager that caches these namespaces of every type.
fn of_namespaces(server: &Server, names: &[&str]) -> ManagerBuilder {
    builder(server).namespaces(names.iter().copied()).unwrap()
}

fn pod_of(owner: &Value, name: &str) -> Value {
    let meta = &owner["metadata"];
    let reference = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "controller": true,
        "name": meta["name"], "uid": meta["uid"],
    });
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "ownerReferences": [reference]},
        "spec": {"nodeName": "n1"},
    })
}

fn key(text: &str) -> Request {
    text.parse().unwrap()
}

fn map(namespace: &str, name: &str) -> ConfigMap {
    let mut map: ConfigMap = serde_json::from_value(config_map(name)).unwrap();
    map.metadata.namespace = Some(namespace.into());
    map
}

/// The keys of objects, as they are queued.
fn keys<'a, K: kube_core::ResourceExt + 'a>(
    objects: impl IntoIterator<Item = &'a Arc<K>>,
) -> String {
    let key = |object: &Arc<K>| format!("{}/{}", object.namespace().unwrap(), object.name_any());
    objects.into_iter().map(key).collect::<Vec<_>>().join(" ")
}

fn sorted(text: &str) -> String {
    let mut text: Vec<_> = text.split(" · ").collect();
    text.sort_unstable();
    text.join(" · ")
}

#[tokio::test(start_paused = true)]
async fn cch_4_a_controller_gets_the_events_of_all_its_namespaces_and_no_others() {
    let (server, trace) = (server(), Trace::default());
    let owners = ["a", "b", "c"].map(|namespace| {
        let owner = server.put(&maps_in(namespace), config_map("own"));
        server.put(&pods_in(namespace), pod_of(&owner, "pod"));
        (namespace, owner)
    });
    server.put(NODES, json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}));
    let sink = trace.clone();
    let controller = Controller::builder("config")
        .for_(Watch::<ConfigMap>::new())
        .owns(Watch::<Pod>::new())
        .watches(Watch::<Node>::new(), |event| vec![event.key().clone()])
        .build(move |request: Request, context: Context| {
            sink.record(request.to_string());
            async move {
                // It can read every object whose key it gets.
                if !request.namespace.is_empty() {
                    context.client().api::<ConfigMap>().get(&request)?.unwrap();
                }
                Ok::<_, BoxError>(Action::await_change())
            }
        })
        .unwrap();
    let options = CacheOptions::new().namespaces(["a", "b"]).unwrap().keep_managed_fields(true);
    let mut manager = builder(&server).cache(options).build();
    let handle = manager.add(controller).unwrap();
    let nodes = manager.client().api::<Node>();
    let running = Running::start(manager);
    settle().await;
    assert_eq!(sorted(&trace.take()), "a/own · b/own · n1");
    assert_eq!(nodes.list(None, &Selector::everything()).unwrap().len(), 1);
    let resources: Vec<_> = handle.sources().into_iter().map(|source| source.resource).collect();
    assert_eq!(resources, ["configmaps", "pods", "nodes"], "one source each");
    let watchers = |path: &str| server.watchers(path);
    assert_eq!((watchers(PODS), watchers(&pods_in("a")), watchers(&pods_in("b"))), (2, 1, 1));
    assert_eq!(watchers(NODES), 1, "what has no namespaces has one informer");

    for (namespace, owner) in &owners {
        server.put(&pods_in(namespace), pod_of(owner, "another"));
        settle().await;
        let expected = if *namespace == "c" { String::new() } else { format!("{namespace}/own") };
        assert_eq!(trace.take(), expected);
    }
    server.delete(&format!("{}/another", pods_in("b")));
    settle().await;
    assert_eq!(trace.take(), "b/own");
    assert_eq!(handle.stats().error, 0);

    // The explanation finds the object in the cache of its namespace.
    let mut changed = config_map("own");
    changed["metadata"]["managedFields"] =
        json!([{"manager": "kubectl", "operation": "Update", "time": "2026-01-01T00:00:00Z"}]);
    changed["data"] = json!({"k": "v"});
    server.put(&maps_in("b"), changed);
    settle().await;
    let last = handle.explain(&key("b/own")).remove(0).to_string();
    assert!(last.contains("written by kubectl (Update)"), "{last}");

    running.stop().await.unwrap();
    assert_eq!((watchers(PODS), watchers(CONFIG_MAPS)), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn cch_4_reads_go_to_the_namespace_and_lists_over_all_of_them() {
    let server = server();
    for (namespace, name) in [("a", "1"), ("b", "0"), ("b", "2"), ("c", "3")] {
        server.put(&pods_in(namespace), pod_of(&json!({"metadata": {}}), name));
    }
    let manager = of_namespaces(&server, &["a", "b"]).build();
    let (cache, pods) = (manager.cache().clone(), manager.client().api::<Pod>());
    let informer = cache.informer::<Pod>();
    let by_node = |pod: &Pod| pod.spec.iter().filter_map(|spec| spec.node_name.clone()).collect();
    informer.add_index("spec.nodeName", by_node).unwrap();
    let metrics = manager.metrics();
    let running = Running::start(manager);
    settle().await;

    assert!(pods.get(&key("b/2")).unwrap().is_some());
    assert!(pods.get(&key("b/none")).unwrap().is_none(), "absence is known where it is cached");
    let everything = Selector::everything();
    let not_cached = |error: ClientError| {
        assert!(matches!(error, ClientError::NamespaceNotCached(_)), "{error:?}");
        assert!(!error.is_not_found());
        error.to_string()
    };
    expect![[r#"read pods of namespace "c" from the cache: that namespace is not cached. Cache it (ManagerBuilder::namespaces), or read it live (Api::get_live, Api::list_live)"#]]
        .assert_eq(&not_cached(pods.get(&key("c/3")).unwrap_err()));
    not_cached(pods.list(Some("c"), &everything).unwrap_err());
    not_cached(pods.select().namespace("c").all().unwrap_err());
    not_cached(pods.get_own(&key("c/3")).await.map(|_| ()).and(pods.get(&key("c/3"))).unwrap_err());
    not_cached(pods.get_at_least(&key("c/3"), "1").await.unwrap_err());
    assert!(pods.get_live(&key("c/3")).await.unwrap().is_some(), "it can be read live");

    assert_eq!(keys(&pods.list(None, &everything).unwrap()), "a/1 b/0 b/2");
    assert_eq!(keys(&pods.list(Some("b"), &everything).unwrap()), "b/0 b/2");
    let select = || pods.select().index("spec.nodeName", "n1");
    assert_eq!(keys(&select().all().unwrap()), "a/1 b/0 b/2");
    assert_eq!(keys(&select().namespace("a").all().unwrap()), "a/1");
    for (limit, expected) in [(0, ""), (1, "a/1"), (2, "a/1 b/0"), (4, "a/1 b/0 b/2")] {
        assert_eq!(keys(&select().limit(limit).all().unwrap()), expected);
        assert_eq!(keys(&pods.select().limit(limit).all().unwrap()), expected);
    }
    assert!(matches!(pods.select().index("no", "n").all(), Err(ClientError::NotIndexed { .. })));
    let lister = pods.lister().unwrap();
    assert_eq!((lister.len(), lister.is_empty()), (3, false));
    assert_eq!(keys(&lister.by_index("spec.nodeName", "n1").unwrap()), "a/1 b/0 b/2");
    assert!(informer.add_index("spec.nodeName", |_| Vec::new()).is_err(), "the name is taken");

    let text = metrics.prometheus();
    for (name, n) in [("manager/a", 1), ("manager/b", 2)] {
        let line = format!(
            "informer_store_objects{{name=\"{name}\",group=\"\",version=\"v1\",resource=\"pods\"}} {n}"
        );
        assert!(text.contains(&line), "{line} in {text}");
    }
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn cch_4_a_forbidden_namespace_is_named_and_delays_the_type() {
    let (server, trace) = (server(), Trace::default());
    server.put(&maps_in("a"), config_map("x"));
    server.put(&maps_in("b"), config_map("x"));
    server.forbid(&maps_in("b"));
    let sink = trace.clone();
    let seer = move |request: Request, _: Context| {
        sink.record(request.to_string());
        std::future::ready(Ok::<_, BoxError>(Action::await_change()))
    };
    let controller = Controller::builder("config").for_(Watch::<ConfigMap>::new());
    let controller = controller.sync_timeout(None).build(seer.clone()).unwrap();
    let mut manager = of_namespaces(&server, &["a", "b"]).build();
    let handle = manager.add(controller).unwrap();
    let (cache, maps) = (manager.cache().clone(), manager.client().api::<ConfigMap>());
    let running = Running::start(manager);
    pass(Duration::from_secs(10)).await;
    assert_eq!((handle.state(), trace.take().as_str()), (ControllerState::Syncing, ""));
    let unsynced = cache.unsynced();
    let [text] = &*unsynced else { panic!("{unsynced:?}") };
    assert!(text.starts_with("configmaps in namespace b has not synced: "), "{text}");
    assert!(text.ends_with("configmaps is forbidden"), "{text}");
    let degraded = handle.sources().remove(0).degraded.unwrap();
    assert!(degraded.starts_with("configmaps in namespace b: "), "{degraded}");
    // The other namespace can be read; reads of both fail.
    assert!(maps.get(&key("a/x")).unwrap().is_some());
    assert!(matches!(maps.get(&key("b/x")), Err(ClientError::NotSynced { .. })));
    let all = maps.list(None, &Selector::everything());
    assert!(matches!(all, Err(ClientError::NotSynced { .. })));

    server.permit(&maps_in("b"));
    pass(Duration::from_secs(60)).await;
    assert_eq!(sorted(&trace.take()), "a/x · b/x");
    assert_eq!((handle.state(), cache.unsynced().len()), (ControllerState::Running, 0));
    running.stop().await.unwrap();

    server.forbid(&maps_in("b"));
    let controller =
        Controller::builder("config").for_(Watch::<ConfigMap>::new()).build(seer).unwrap();
    let mut manager = of_namespaces(&server, &["a", "b"]).build();
    manager.add(controller).unwrap();
    let error = chain(&Running::start(manager).ended().await.unwrap_err());
    assert!(error.contains("the cache of configmaps in namespace b has not synced"), "{error}");
    assert!(error.contains("permit it to list and watch it"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn cch_3_all_namespaces_next_to_a_named_one_means_all_others() {
    let server = server();
    let labeled = |name: &str, app: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "labels": {"app": app}, "annotations": {"long": "text"}}})
    };
    for namespace in ["a", "b", "c"] {
        server.put(&maps_in(namespace), labeled("x", namespace));
    }
    // Objects of `b` are cached without annotations.
    let of_b = CacheConfig::new().transform(|object: bytes::Bytes| {
        let text = String::from_utf8_lossy(&object).replace("\"long\":\"text\"", "");
        Ok(text.into_bytes().into())
    });
    let chosen =
        Namespaces::from([("b".to_owned(), of_b), (ALL_NAMESPACES.to_owned(), CacheConfig::new())]);
    let of_maps = ByType::new().namespaces_with(chosen);
    let rules = CacheOptions::new().of::<ConfigMap>(&(), of_maps).unwrap();
    let manager = builder(&server).cache(rules).build();
    let informer = manager.cache().informer::<ConfigMap>();
    let maps = manager.client().api::<ConfigMap>();
    let running = Running::start(manager);
    settle().await;
    let of_each: Vec<_> = informer
        .informers()
        .map(|(namespace, informer)| (namespace, informer.lister().len()))
        .collect();
    assert_eq!(of_each, [(Some("b"), 1), (None, 2)], "no object is held twice");
    let everything = Selector::everything();
    assert_eq!(keys(&maps.list(None, &everything).unwrap()), "a/x b/x c/x", "by key");
    let annotations = |text: &str| {
        let map = maps.get(&key(text)).unwrap().unwrap();
        map.metadata.annotations.clone().unwrap_or_default().len()
    };
    assert_eq!([annotations("a/x"), annotations("b/x"), annotations("c/x")], [1, 0, 1]);
    assert!(maps.get(&key("d/x")).unwrap().is_none(), "every other namespace is cached");

    for namespace in ["b", "d"] {
        server.put(&maps_in(namespace), labeled("y", namespace));
    }
    server.delete(&format!("{}/x", maps_in("c")));
    settle().await;
    assert_eq!(keys(&maps.list(None, &everything).unwrap()), "a/x b/x b/y d/y");
    let counts: Vec<_> = informer.informers().map(|(_, of)| of.lister().len()).collect();
    assert_eq!(counts, [2, 2]);
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn cch_4_own_writes_are_waited_for_in_their_namespace_alone() {
    let server = server();
    // A list at version 0 is followed by a replay, whose versions are not meaningful.
    server.put(&maps_in("c"), config_map("before"));
    let manager = of_namespaces(&server, &["a", "b"]).build();
    let maps = manager.client().api::<ConfigMap>();
    manager.cache().informer::<ConfigMap>();
    let running = Running::start(manager);
    settle().await;
    server.delay_watches(Duration::from_millis(100));
    let began = Instant::now();
    maps.create(&map("a", "x")).await.unwrap();
    assert!(maps.get(&key("a/x")).unwrap().is_none(), "the cache is late");
    assert!(maps.get_own(&key("a/x")).await.unwrap().is_some());
    // The last write is in `a`; the cache of `b`, where nothing happens, need not reach its
    // version.
    maps.create(&map("b", "x")).await.unwrap();
    maps.create(&map("a", "y")).await.unwrap();
    maps.create(&map("c", "x")).await.unwrap();
    let lister = maps.lister_own().await.unwrap();
    assert_eq!(keys(&lister.list(&Selector::everything()).unwrap()), "a/x a/y b/x");
    maps.delete(&key("b/x"), &DeleteParams::default()).await.unwrap();
    assert_eq!(maps.lister_own().await.unwrap().len(), 2);
    assert!(began.elapsed() <= Duration::from_millis(400), "{:?}", began.elapsed());
    running.stop().await.unwrap();
}

/// Such reads waited for the cache, which never shows the object, and failed.
#[tokio::test(start_paused = true)]
async fn own_write_of_an_object_that_the_cache_does_not_select_is_not_waited_for() {
    let server = server();
    let manager = builder(&server).cache(CacheOptions::new().fields("metadata.namespace!=b"));
    let manager = manager.build();
    let maps = manager.client().api::<ConfigMap>();
    manager.cache().informer::<ConfigMap>();
    let running = Running::start(manager);
    settle().await;
    server.delay_watches(Duration::from_millis(100));
    maps.create(&map("b", "x")).await.unwrap();
    assert!(maps.get_own(&key("b/x")).await.unwrap().is_none());
    assert_eq!(maps.lister_own().await.unwrap().len(), 0);
    maps.create(&map("a", "x")).await.unwrap();
    assert!(maps.get_own(&key("a/x")).await.unwrap().is_some(), "this one is waited for");
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn cch_4_a_pass_that_writes_to_one_namespace_does_not_wait_for_the_others() {
    let (server, trace) = (server(), Trace::default());
    for namespace in ["a", "b"] {
        server.put(&maps_in(namespace), config_map("x"));
    }
    let (sink, began) = (trace.clone(), Instant::now());
    let controller = Controller::builder("config")
        .for_(Watch::<ConfigMap>::new())
        .owns(Watch::<Pod>::new())
        .build(move |request: Request, context: Context| {
            let sink = sink.clone();
            async move {
                sink.record(format!("{request} at {:?}", began.elapsed()));
                let pods = context.client().api::<Pod>();
                let key = Request::new(request.namespace.clone(), "made");
                if pods.get(&key)?.is_none() {
                    let maps = context.client().api::<ConfigMap>();
                    let owner = serde_json::to_value(&*maps.get(&request)?.unwrap())?;
                    let mut made: Pod = serde_json::from_value(pod_of(&owner, "made"))?;
                    made.metadata.namespace = Some(request.namespace.to_string());
                    pods.create(&made).await?;
                }
                Ok::<_, BoxError>(Action::await_change())
            }
        })
        .unwrap();
    let mut manager = of_namespaces(&server, &["a", "b"]).build();
    let handle = manager.add(controller).unwrap();
    let running = Running::start(manager);
    pass(Duration::from_secs(10)).await;
    expect!["a/x at 0ns · a/x at 0ns · b/x at 0ns · b/x at 0ns"].assert_eq(&sorted(&trace.take()));
    assert_eq!(handle.stats().error, 0);
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn cch_4_a_type_declared_cluster_scoped_is_cached_whole() {
    let (server, trace) = (server(), Trace::default());
    server.put(NODES, json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}));
    let nodes = ApiResource::erase::<Node>(&());
    let sink = trace.clone();
    let watch = || Watch::<DynamicObject>::dynamic(nodes.clone()).cluster_scoped();
    let controller = Controller::builder("nodes")
        .for_(watch())
        .build(move |request: Request, _: Context| {
            sink.record(request.to_string());
            std::future::ready(Ok::<_, BoxError>(Action::await_change()))
        })
        .unwrap();
    let mut manager = of_namespaces(&server, &["a", "b"]).build();
    let handle = manager.add(controller).unwrap();
    let api = manager.client().api_with::<DynamicObject>(nodes.clone());
    let running = Running::start(manager);
    settle().await;
    assert_eq!((trace.take().as_str(), server.watchers(NODES)), ("n1", 1));
    assert!(api.get(&Request::cluster("n1")).unwrap().is_some());
    let second = handle.watches::<Request>().unwrap().objects(watch()).unwrap();
    assert!(second.synced().await);
    assert_eq!(server.watchers(NODES), 1, "one informer");
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn cch_4_a_manager_of_one_namespace_does_not_cache_another() {
    let server = server();
    server.put(&maps_in("b"), config_map("x"));
    let others = || CacheOptions::new().namespaces(["b"]).unwrap();
    let builders = [
        builder(&server).namespaces(["a"]).unwrap(),
        builder(&server).namespaces(["a"]).unwrap().cache(CacheOptions::new()),
        builder(&server).namespaces(["a"]).unwrap().cache(others()),
        builder(&server).cache(others()).namespaces(["a"]).unwrap(),
    ];
    for builder in builders {
        let manager = builder.build();
        let maps = manager.client().api::<ConfigMap>();
        manager.cache().informer::<ConfigMap>();
        let running = Running::start(manager);
        settle().await;
        assert!(maps.get(&key("a/x")).unwrap().is_none());
        assert!(matches!(maps.get(&key("b/x")), Err(ClientError::NamespaceNotCached(_))));
        running.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn cch_4_a_watch_of_several_namespaces_is_added_and_removed_with_all_its_informers() {
    let (server, trace) = (server(), Trace::default());
    for namespace in ["a", "b"] {
        server.put(&pods_in(namespace), pod_of(&json!({"metadata": {}}), "p"));
    }
    let sink = trace.clone();
    let controller = Controller::builder("config").for_(Watch::<ConfigMap>::new());
    let controller = controller.build(move |request: Request, _: Context| {
        sink.record(request.to_string());
        std::future::ready(Ok::<_, BoxError>(Action::await_change()))
    });
    let mut manager = of_namespaces(&server, &["a", "b"]).build();
    let handle = manager.add(controller.unwrap()).unwrap();
    let cache: Cache = manager.cache().clone();
    let running = Running::start(manager);
    settle().await;
    for _ in 0..2 {
        let watch = handle.watch(Watch::<Pod>::new(), |event| vec![event.key().clone()]).unwrap();
        assert!(watch.synced().await);
        settle().await;
        assert_eq!(sorted(&trace.take()), "a/p · b/p");
        let watches = handle.watches::<Request>().unwrap();
        watches.requeue(|key: &Request| *key.namespace == *"b").await;
        settle().await;
        assert_eq!(trace.take(), "b/p");
        assert_eq!(server.watchers(PODS), 2);
        assert!(watch.remove());
        settle().await;
        assert_eq!((server.watchers(PODS), cache.known::<Pod>(&()).is_none()), (0, true));
    }
    assert_eq!(server.watchers(CONFIG_MAPS), 2);
    running.stop().await.unwrap();
}
