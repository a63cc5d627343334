//! One manager with several clusters.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use serde_json::json;
use setpoint_informer::Event;
use setpoint_log::testing::{self, Lines};
use setpoint_runtime::{
    Action, BoxError, ClientError, Context, Controller, ControllerState, ElectionOptions,
    ObjectReference, Reconciler, Request, Runnable, Watch,
    cluster::{CLUSTERS_MAX, Cluster},
    controller::SYNC_TIMEOUT,
    fence::Fenced,
    manager::AddError,
    source::WatchError,
};
use tokio::sync::mpsc;

use crate::{
    server::Server,
    world::{CONFIG_MAPS, EVENTS, PODS, Running, Trace, builder, config_map, pass, settle},
};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A key that names its cluster (CLU-2).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Place {
    cluster: &'static str,
    object: Request,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.cluster, self.object)
    }
}

#[tokio::test(start_paused = true)]
async fn clu_1_a_controller_copies_from_one_cluster_to_another() {
    let (west, east) = (Server::new(&[CONFIG_MAPS, EVENTS]), Server::new(&[CONFIG_MAPS, EVENTS]));
    east.put(MAPS, config_map("from-east"));
    west.put(MAPS, config_map("from-west"));
    let trace = Trace::default();
    let mut manager = builder(&west).build();
    let cluster = manager.add_cluster("east", Cluster::builder(east.client())).unwrap();
    assert_eq!(
        manager.add_cluster("east", Cluster::builder(east.client())).err(),
        Some(AddError::DuplicateCluster { name: "east".into() })
    );
    let (sink, other) = (trace.clone(), cluster.clone());
    let reconcile = move |place: Place, context: Context| {
        let (sink, other) = (sink.clone(), other.clone());
        async move {
            let client = if place.cluster == "east" { other.client() } else { context.client() };
            let map = client.api::<ConfigMap>().get(&place.object)?;
            if let Some(map) = map {
                sink.record(format!("{place}"));
                let recorder = other.recorder("copier");
                recorder.normal(&ObjectReference::of(&*map), "Seen", "it was seen");
            }
            Ok::<_, BoxError>(Action::await_change())
        }
    };
    let of = |cluster: &'static str| {
        move |event: &setpoint_informer::Event<ConfigMap>| {
            vec![Place { cluster, object: event.key().clone() }]
        }
    };
    let controller = Controller::<Place>::builder_of("copier")
        .watches(Watch::<ConfigMap>::new(), of("west"))
        .watches(Watch::<ConfigMap>::new().cluster(&cluster), of("east"))
        .build(reconcile)
        .unwrap();
    manager.add(controller).unwrap();
    let metrics = manager.metrics();
    let running = Running::start(manager);
    pass(Duration::from_secs(1)).await;
    let mut text: Vec<String> = trace.take().split(" · ").map(str::to_owned).collect();
    text.sort();
    assert_eq!(text, ["east/default/from-east", "west/default/from-west"]);
    let text = metrics.prometheus();
    for name in ["manager", "east"] {
        let line = format!(
            "informer_store_objects{{name=\"{name}\",group=\"\",version=\"v1\",resource=\"configmaps\"}} 1"
        );
        assert!(text.contains(&line), "{line} in {text}");
    }
    let events = |server: &Server| {
        server.take_writes().iter().filter(|write| write.contains("events")).count()
    };
    settle().await;
    assert_eq!((events(&west), events(&east)), (0, 2), "of the cluster whose recorder it is");
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn mgr_3_members_without_a_leader_wait_for_the_caches_of_all_clusters() {
    let (west, east) = (Server::new(&[CONFIG_MAPS, EVENTS]), Server::new(&[EVENTS]));
    let trace = Trace::default();
    let mut manager = builder(&west).build();
    let cluster = manager.add_cluster("east", Cluster::builder(east.client())).unwrap();
    let informer = cluster.cache().informer::<ConfigMap>();
    let sink = trace.clone();
    manager
        .add_task("task", move |_| async move {
            sink.record("it runs");
            Ok(())
        })
        .unwrap();
    let running = Running::start(manager);
    pass(Duration::from_secs(60)).await;
    assert_eq!(trace.take(), "");
    east.serve(CONFIG_MAPS);
    pass(Duration::from_secs(60)).await;
    assert!(informer.has_synced());
    assert_eq!(trace.take(), "it runs");
    running.stop().await.unwrap();
}

/// The manager never led and ran no task.
#[tokio::test(start_paused = true)]
async fn cluster_that_cannot_be_reached_delays_the_start_for_a_limited_time() {
    let (west, east) = (Server::new(&[CONFIG_MAPS, EVENTS]), Server::new(&[EVENTS]));
    west.put(MAPS, config_map("a"));
    let trace = Trace::default();
    let mut manager = builder(&west).build();
    let cluster = manager.add_cluster("east", Cluster::builder(east.client())).unwrap();
    cluster.cache().informer::<ConfigMap>();
    let sink = trace.clone();
    let task = move |_| async move {
        sink.record("a task");
        Ok(())
    };
    manager.add_runnable("task", Runnable::new(task).needs_leader(false)).unwrap();
    let controller = Controller::<Place>::builder_of("seen")
        .watches(Watch::<ConfigMap>::new(), of("west"))
        .build(seen(&trace))
        .unwrap();
    manager.add(controller).unwrap();
    let running = Running::start(manager);
    pass(SYNC_TIMEOUT).await;
    settle().await;
    assert_eq!(trace.take(), "a task · west/default/a");
    assert!(cluster.cache().unsynced()[0].starts_with("configmaps has not synced: "));
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn logs_of_failures_name_the_cluster_and_the_namespace() {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt().with_writer(lines.clone()).with_ansi(false).finish();
    let _default = testing::set_default(subscriber);
    let (west, east) = (Server::new(&[CONFIG_MAPS, EVENTS]), Server::new(&[EVENTS]));
    west.forbid("/api/v1/namespaces/b/configmaps");
    let manager = builder(&west).namespaces(["a", "b"]).unwrap().build();
    manager.cache().informer::<ConfigMap>();
    let cluster = manager.add_cluster("east", Cluster::builder(east.client())).unwrap();
    cluster.cache().informer::<ConfigMap>();
    let running = Running::start(manager);
    settle().await;
    let text = lines.text();
    let warned = |name: &str| {
        let name = format!("informer=\"{name}\"");
        text.lines().filter(|line| line.contains(" WARN ") && line.contains(&name)).count()
    };
    assert_eq!((warned("manager/a"), warned("manager/b"), warned("east")), (0, 1, 1), "{text}");
    running.stop().await.unwrap();
}

/// Copies a ConfigMap to another cluster, and sends the context of each pass.
fn copier(to: &Cluster, contexts: mpsc::Sender<Context>) -> impl Reconciler<Request> + use<> {
    let to = to.clone();
    move |request: Request, context: Context| {
        let (to, contexts) = (to.clone(), contexts.clone());
        async move {
            let Some(map) = context.client().api::<ConfigMap>().get(&request)? else {
                return Ok(Action::await_change());
            };
            let copies = context.client_of(&to).api::<ConfigMap>();
            if copies.get(&request)?.is_none() {
                let mut copy = ConfigMap { data: map.data.clone(), ..ConfigMap::default() };
                copy.metadata.name = map.metadata.name.clone();
                copy.metadata.namespace = map.metadata.namespace.clone();
                copies.create(&copy).await?;
            }
            contexts.send(context.clone()).await?;
            Ok::<_, BoxError>(Action::await_change())
        }
    }
}

const LEASES: &str = "/apis/coordination.k8s.io/v1/leases";

#[tokio::test(start_paused = true)]
async fn writes_to_another_cluster_are_fenced_and_explained_under_the_controllers_name() {
    let west = Server::new(&[CONFIG_MAPS, EVENTS, LEASES]);
    let east = Server::new(&[CONFIG_MAPS, EVENTS]);
    west.put(MAPS, config_map("a"));
    let options = ElectionOptions::new("main").identity("one").namespace("default").seed(1);
    let options = options.release_on_stop(true);
    let mut manager = builder(&west).leader_election(options).unwrap().build();
    let cluster = manager.add_cluster("east", Cluster::builder(east.client())).unwrap();
    let refused = manager.leader_client_of(&cluster).check_fence();
    assert_eq!(refused, Err(Fenced::NotHeld), "before the election");
    assert_eq!(cluster.client().check_fence(), Ok(()));

    let (contexts, mut passes) = mpsc::channel(8);
    let controller = Controller::builder("copier")
        .for_(Watch::<ConfigMap>::new())
        .owns(Watch::<ConfigMap>::new().cluster(&cluster))
        .build(copier(&cluster, contexts))
        .unwrap();
    let handle = manager.add(controller).unwrap();
    let running = Running::start(manager);
    pass(Duration::from_secs(1)).await;
    assert_eq!(east.take_writes(), ["POST /api/v1/namespaces/default/configmaps by copier"]);
    let explained = handle.explain(&Request::new("default", "a"));
    let text: Vec<_> = explained.iter().map(ToString::to_string).collect();
    let text = text.join("\n");
    for line in [
        "read configmaps default/a from the cache",
        "read configmaps of east default/a from the cache",
        "create configmaps of east default/a: now 1",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }

    let context = passes.recv().await.unwrap();
    assert_eq!(context.client_of(&cluster).check_fence(), Ok(()));
    running.stop().await.unwrap();
    let client = context.client_of(&cluster);
    assert!(client.check_fence().is_err(), "after the lease was released");
    let late: ConfigMap = serde_json::from_value(config_map("late")).unwrap();
    let written = client.api::<ConfigMap>().create(&late).await;
    assert!(matches!(written, Err(ClientError::Fenced { .. })), "{written:?}");
    assert_eq!(east.take_writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn key_is_held_back_until_the_watch_of_the_cluster_shows_the_write() {
    let (west, east) = (Server::new(&[CONFIG_MAPS, EVENTS]), Server::new(&[CONFIG_MAPS, EVENTS]));
    west.put(MAPS, config_map("a"));
    // A version that the watch of the manager's own cluster does not reach.
    (0..99).for_each(|_| east.bookmark(CONFIG_MAPS));
    east.delay_watches(Duration::from_millis(20));
    let mut manager = builder(&west).build();
    let cluster = manager.add_cluster("east", Cluster::builder(east.client())).unwrap();
    let (contexts, mut passes) = mpsc::channel(8);
    let controller = Controller::builder("copier")
        .for_(Watch::<ConfigMap>::new())
        .owns(Watch::<ConfigMap>::new().cluster(&cluster))
        .build(copier(&cluster, contexts))
        .unwrap();
    let handle = manager.add(controller).unwrap();
    let running = Running::start(manager);
    passes.recv().await.unwrap();
    settle().await;
    assert_eq!(handle.queue().resting, 1);
    pass(Duration::from_millis(30)).await;
    assert_eq!((handle.queue().resting, handle.stats().catch_up_timeouts), (0, 0));
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn index_of_the_watched_cluster_finds_the_keys_or_else_that_of_the_managers_own() {
    let pods = |map: &ConfigMap| -> Vec<String> {
        let pod = map.data.iter().filter_map(|data| data.get("pod"));
        pod.map(|pod| format!("default/{pod}")).collect()
    };
    for is_own in [false, true] {
        let trace = Trace::default();
        let west = Server::new(&[CONFIG_MAPS, EVENTS]);
        let east = Server::new(&[CONFIG_MAPS, PODS, EVENTS]);
        let mut manager = builder(&west).build();
        let cluster = manager.add_cluster("east", Cluster::builder(east.client())).unwrap();
        let maps = Watch::<ConfigMap>::new().index("pods", pods);
        let (holder, maps) = if is_own { (&west, maps) } else { (&east, maps.cluster(&cluster)) };
        let mut map = config_map("a");
        map["data"] = json!({"pod": "p"});
        holder.put(MAPS, map);
        let sink = trace.clone();
        let reconcile = move |request: Request, _: Context| {
            sink.record(request.to_string());
            std::future::ready(Ok::<_, BoxError>(Action::await_change()))
        };
        let controller = Controller::builder("config")
            .for_(maps)
            .watches_by_index::<ConfigMap, _>(Watch::<Pod>::new().cluster(&cluster), "pods")
            .build(reconcile)
            .unwrap();
        manager.add(controller).unwrap();
        let running = Running::start(manager);
        settle().await;
        assert_eq!(trace.take(), "default/a");
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}});
        east.put("/api/v1/namespaces/default/pods", pod);
        settle().await;
        assert_eq!(trace.take(), "default/a", "own: {is_own}");
        running.stop().await.unwrap();
    }
}

/// Reports the keys of each pass, which name their cluster.
fn seen(trace: &Trace) -> impl Reconciler<Place> + use<> {
    let trace = trace.clone();
    move |place: Place, _: Context| {
        trace.record(place.to_string());
        std::future::ready(Ok::<_, BoxError>(Action::await_change()))
    }
}

fn of(cluster: &'static str) -> impl Fn(&Event<ConfigMap>) -> Vec<Place> + Send + Sync {
    move |event| vec![Place { cluster, object: event.key().clone() }]
}

#[tokio::test(start_paused = true)]
async fn clu_2_cluster_comes_and_goes_while_the_manager_runs() {
    let west = Server::new(&[CONFIG_MAPS, EVENTS]);
    let trace = Trace::default();
    let manager = builder(&west).build();
    let controller = Controller::<Place>::builder_of("seen")
        .watches(Watch::<ConfigMap>::new(), of("west"))
        .build(seen(&trace));
    let controller = manager.handle().add(controller.unwrap()).unwrap();
    let handle = manager.handle();
    let running = Running::start(manager);
    settle().await;

    // The second time with another server, as after a change of its address.
    for round in 0..2 {
        let east = Server::new(&[CONFIG_MAPS, EVENTS]);
        let map = east.put(MAPS, config_map("a"));
        let cluster = handle.add_cluster("east", Cluster::builder(east.client())).unwrap();
        let watch = controller.watch(Watch::<ConfigMap>::new().cluster(&cluster), of("east"));
        assert!(watch.unwrap().synced().await);
        settle().await;
        assert_eq!(trace.take(), "east/default/a", "{round}");
        let maps = cluster.client().api::<ConfigMap>();
        let key = Request::new("default", "a");
        assert!(maps.get(&key).unwrap().is_some());
        let map: ConfigMap = serde_json::from_value(map).unwrap();
        let seen = ObjectReference::of(&map);
        cluster.recorder("seen").normal(&seen, "Seen", "it was seen");

        assert!(handle.remove_cluster("east"));
        assert!(!handle.remove_cluster("east"), "once");
        let taken = handle.add_cluster("east", Cluster::builder(east.client())).err();
        assert_eq!(taken, Some(AddError::DuplicateCluster { name: "east".into() }));
        assert_eq!((handle.clusters().len(), controller.sources().len()), (0, 1));
        cluster.ended().await;
        assert_eq!(east.watchers(CONFIG_MAPS), 0);
        let written = east.take_writes();
        assert!(written.iter().all(|write| write.contains("events")), "{written:?}");
        assert_eq!(written.len(), 1, "the last event is written");
        assert!(!handle.metrics().prometheus().contains("name=\"east\""));

        assert!(cluster.is_removed());
        let late: ConfigMap = serde_json::from_value(config_map("late")).unwrap();
        let refused = maps.create(&late).await;
        let Err(ClientError::Fenced { source, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!(source, Fenced::ClusterRemoved);
        assert!(matches!(maps.get(&key), Err(ClientError::NotCached { .. })));
        let watch = controller.watch(Watch::<ConfigMap>::new().cluster(&cluster), of("east"));
        assert_eq!(watch.err(), Some(WatchError::ClusterRemoved));
        east.put(MAPS, config_map("b"));
        west.put(MAPS, config_map(&format!("own-{round}")));
        settle().await;
        assert_eq!(trace.take(), format!("west/default/own-{round}"));
    }
    running.stop().await.unwrap();
    let after = handle.add_cluster("late", Cluster::builder(west.client())).err();
    assert_eq!(after, Some(AddError::Stopping { name: "late".into() }));
}

#[tokio::test(start_paused = true)]
async fn controller_watches_each_cluster_that_comes_and_waits_for_none() {
    let west = Server::new(&[CONFIG_MAPS, EVENTS]);
    let servers = || Server::new(&[CONFIG_MAPS, EVENTS]);
    let (north, east, mute) = (servers(), servers(), Server::new(&[EVENTS]));
    for server in [&west, &north, &east] {
        server.put(MAPS, config_map("a"));
    }
    let (trace, n_calls) = (Trace::default(), Arc::new(AtomicUsize::new(0)));
    let manager = builder(&west).build();
    let add = |name: &'static str, server: &Server| {
        manager.add_cluster(name, Cluster::builder(server.client()))
    };
    // Before the controller; one that never answers a list.
    add("north", &north).unwrap();
    add("mute", &mute).unwrap();
    let calls = n_calls.clone();
    let controller = Controller::<Place>::builder_of("seen")
        .watches(Watch::<ConfigMap>::new(), of("west"))
        .each_cluster(move |cluster, watches| {
            calls.fetch_add(1, Ordering::Relaxed);
            let name = ["north", "east", "mute"].into_iter().find(|name| *name == cluster.name());
            watches.watch(Watch::<ConfigMap>::new().cluster(cluster), of(name.unwrap()))?;
            Ok(())
        })
        .build(seen(&trace))
        .unwrap();
    let handle = manager.handle();
    let controller = handle.add(controller).unwrap();
    let running = Running::start(manager);
    settle().await;
    assert_eq!(controller.state(), ControllerState::Running);
    let sorted = |trace: &Trace| {
        let mut seen: Vec<String> = trace.take().split(" · ").map(str::to_owned).collect();
        seen.sort();
        seen
    };
    assert_eq!(sorted(&trace), ["north/default/a", "west/default/a"]);

    // While it runs; again after a removal; and longer than any time-out.
    for round in 0..2 {
        let add = handle.add_cluster("east", Cluster::builder(east.client()));
        let cluster = add.unwrap();
        settle().await;
        assert_eq!(trace.take(), "east/default/a", "{round}");
        assert_eq!(controller.sources().len(), 4);
        assert!(handle.remove_cluster("east"));
        cluster.ended().await;
        assert_eq!((controller.sources().len(), east.watchers(CONFIG_MAPS)), (3, 0));
    }
    pass(Duration::from_secs(600)).await;
    assert_eq!(controller.state(), ControllerState::Running);
    assert_eq!(n_calls.load(Ordering::Relaxed), 4);
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn cluster_or_controller_whose_watches_are_refused_is_not_added() {
    let (west, east) = (Server::new(&[CONFIG_MAPS, EVENTS]), Server::new(&[CONFIG_MAPS, EVENTS]));
    let manager = builder(&west).build();
    // Another function takes the name first.
    let picky = |name: &str| {
        Controller::<Place>::builder_of(name.to_owned())
            .each_cluster(|cluster, watches| {
                let watch = Watch::<ConfigMap>::new().cluster(cluster);
                watches.watch(watch.index("x", |_| Vec::new()), of("east"))?;
                let watch = Watch::<ConfigMap>::new().cluster(cluster);
                watches.watch(watch.index("x", |_| vec![String::new()]), of("east"))?;
                Ok(())
            })
            .build(seen(&Trace::default()))
            .unwrap()
    };
    manager.handle().add(picky("first")).unwrap();
    let add = || manager.add_cluster("east", Cluster::builder(east.client()));
    let refused = add().err();
    let Some(AddError::Engage { controller, cluster, source }) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!((&*controller, &*cluster), ("first", "east"));
    assert!(matches!(source, WatchError::Index(_)), "{source}");
    assert_eq!(manager.clusters().len(), 0);

    manager.remove("first");
    add().unwrap();
    let refused = manager.handle().add(picky("second"));
    assert!(matches!(refused, Err(AddError::Engage { .. })), "{refused:?}");
    assert_eq!(manager.controllers().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn controller_does_not_wait_for_a_cluster_that_was_removed() {
    // It never answers a list.
    let (west, east) = (Server::new(&[CONFIG_MAPS, EVENTS]), Server::new(&[EVENTS]));
    west.put(MAPS, config_map("a"));
    for is_running in [false, true] {
        let trace = Trace::default();
        let manager = builder(&west).build();
        let cluster = manager.add_cluster("east", Cluster::builder(east.client())).unwrap();
        let controller = Controller::<Place>::builder_of("seen")
            .watches(Watch::<ConfigMap>::new(), of("west"))
            .watches(Watch::<ConfigMap>::new().cluster(&cluster), of("east"))
            .build(seen(&trace))
            .unwrap();
        let handle = manager.handle();
        if !is_running {
            assert!(handle.remove_cluster("east"));
            cluster.ended().await;
        }
        let controller = handle.add(controller).unwrap();
        let running = Running::start(manager);
        pass(Duration::from_secs(60)).await;
        if is_running {
            assert_eq!(controller.state(), ControllerState::Syncing);
            assert!(handle.remove_cluster("east"));
            settle().await;
        }
        assert_eq!(controller.state(), ControllerState::Running);
        assert_eq!(trace.take(), "west/default/a");
        running.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn pass_writes_no_more_to_a_cluster_that_was_removed_meanwhile() {
    let (west, east) = (Server::new(&[CONFIG_MAPS, EVENTS]), Server::new(&[CONFIG_MAPS, EVENTS]));
    west.put(MAPS, config_map("a"));
    let manager = builder(&west).build();
    let cluster = manager.add_cluster("east", Cluster::builder(east.client())).unwrap();
    cluster.cache().informer::<ConfigMap>();
    let (contexts, mut passes) = mpsc::channel(8);
    let controller = Controller::builder("copier").for_(Watch::<ConfigMap>::new());
    let controller = controller.build(copier(&cluster, contexts)).unwrap();
    let handle = manager.handle();
    handle.add(controller).unwrap();
    let running = Running::start(manager);
    let context = passes.recv().await.unwrap();
    let client = context.client_of(&cluster);
    assert_eq!(client.check_fence(), Ok(()));
    handle.remove_cluster("east");
    for client in [client, context.client_of(&cluster), handle.leader_client_of(&cluster)] {
        assert_eq!(client.check_fence(), Err(Fenced::ClusterRemoved));
    }
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn clusters_are_bounded_and_those_that_never_ran_leave_at_once() {
    let west = Server::new(&[EVENTS]);
    let manager = builder(&west).build();
    let add = |n: usize| manager.add_cluster(n.to_string(), Cluster::builder(west.client()));
    let all: Vec<_> = (0..CLUSTERS_MAX).map(|n| add(n).unwrap()).collect();
    assert_eq!(add(CLUSTERS_MAX).err(), Some(AddError::TooMany { name: "256".into() }));
    assert!(manager.remove_cluster("7"));
    all[7].ended().await;
    add(7).unwrap();
    drop(manager);
    for cluster in all {
        cluster.ended().await;
    }
}
