//! One manager with several clusters.

use std::{fmt, time::Duration};

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use serde_json::json;
use setpoint_runtime::{
    Action, BoxError, ClientError, Context, Controller, ElectionOptions, ObjectReference,
    Reconciler, Request, Watch, cluster::Cluster, fence::Fenced, manager::AddError,
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
